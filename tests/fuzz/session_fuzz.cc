// Bytes as a client may send them on a session's stream, through decoding, inference and the
// kernels of the CPU backend. Whatever comes: no crash, no leak, no byte of a device left in use.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "tensord/server/device/device_factory.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/engine/packed_ops.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/session/test_principal.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {
namespace {

constexpr int64_t kDeviceBytes = 4 << 20;  // small enough that every input is quick

struct World {
  World() : engine(Devices()), sessions(Limits{}, engine.slots()) {}

  static std::vector<std::unique_ptr<Device>> Devices() {
    DeviceRequest cpu{DeviceKind::kCpu, 0, kDeviceBytes};
    auto devices = MakeDevices({cpu, cpu}, /*cpu_threads=*/2);
    if (!devices.ok()) std::abort();
    return *std::move(devices);
  }

  Engine engine;
  SessionTable sessions;
};

void TakeDefinition(PackedOps& packed, const v1::Definition& definition) {
  absl::StatusOr<Attributes> attrs = FromProto(definition.attrs());
  if (!attrs.ok()) return;
  packed
      .Define(definition.number(), definition.name(), *std::move(attrs), definition.device(),
              definition.num_inputs())
      .IgnoreError();
}

void TakeProgram(PackedOps& packed, const v1::Program& program) {
  std::vector<TensorSpec> inputs;
  for (const v1::TensorSpec& input : program.inputs()) {
    absl::StatusOr<TensorSpec> spec = FromProto(input);
    if (!spec.ok()) return;
    inputs.push_back(*std::move(spec));
  }
  packed
      .AddProgram(program.number(), program.device(), std::move(inputs), program.ops(),
                  {program.outputs().begin(), program.outputs().end()})
      .IgnoreError();
}

void Take(World& world, const SessionRef& session, PackedOps& packed, uint64_t* number,
          const v1::Command& command) {
  switch (command.command_case()) {
    case v1::Command::kOp: {
      const v1::Op& op = command.op();
      absl::StatusOr<Attributes> attrs = FromProto(op.attrs());
      if (!attrs.ok()) return;
      world.engine
          .Run(session, {op.name(), op.inputs(), op.output(), *std::move(attrs), op.device()})
          .IgnoreError();
      return;
    }
    case v1::Command::kCopy:
      world.engine
          .Copy(session, command.copy().input(), command.copy().output(), command.copy().device(),
                /*share=*/true)
          .IgnoreError();
      return;
    case v1::Command::kPromise: {
      absl::StatusOr<TensorSpec> spec = FromProto(command.promise().spec());
      if (!spec.ok()) return;
      world.engine.Promise(*session, command.promise().handle(), *spec, command.promise().device())
          .IgnoreError();
      return;
    }
    case v1::Command::kDrop:
      session->Drop(command.drop().handles());
      for (uint32_t program : command.drop().programs()) packed.DropProgram(program);
      return;
    case v1::Command::kDefine:
      TakeDefinition(packed, command.define());
      return;
    case v1::Command::kBatch:
      packed
          .Take(absl::MakeConstSpan(command.batch().words().data(), command.batch().words_size()),
                number, [](uint64_t, Handle, const absl::StatusOr<TensorRef>&) {})
          .IgnoreError();
      return;
    case v1::Command::kProgram:
      TakeProgram(packed, command.program());
      return;
    case v1::Command::kRun:
      packed.RunProgram(command.run().number(), command.run().inputs(), command.run().outputs())
          .IgnoreError();
      return;
    default:
      return;
  }
}

void RunOne(const v1::SessionStreamRequest& request) {
  static World* const world = new World();
  absl::StatusOr<SessionRef> session = world->sessions.Open(TestPrincipal(), 0, "fuzz");
  if (!session.ok()) std::abort();
  {
    PackedOps packed(&world->engine, *session);  // programs go with their stream
    uint64_t number = 0;
    for (const v1::Command& command : request.commands()) {
      Take(*world, *session, packed, &number, command);
    }
  }
  for (DeviceSlot* slot : world->engine.slots()) slot->executor->Drain();
  if (!world->sessions.Close(TestPrincipal(), (*session)->id()).ok()) std::abort();
  session->reset();
  for (int pass = 0; pass < 2; ++pass) {
    for (DeviceSlot* slot : world->engine.slots()) slot->executor->Drain();
  }
  for (DeviceSlot* slot : world->engine.slots()) {
    if (slot->device->memory().used_bytes != 0) std::abort();
  }
}

}  // namespace
}  // namespace tensord::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tensord::v1::SessionStreamRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  tensord::server::RunOne(request);
  return 0;
}
