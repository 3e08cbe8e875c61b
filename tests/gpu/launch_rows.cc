// Rows in which the host's work matters: transfers, the cost of one op, and programs.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/await_compiled.h"
#include "tensord/tests/gpu/direct.h"
#include "tensord/tests/gpu/rows.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::gpu {
namespace {

using server::Handle;

constexpr int64_t kSmall = 64;   // elements of a small tensor
constexpr int64_t kMatrix = 32;  // rows and columns of a small matrix
constexpr int64_t kEngineBytes = 1024 * kMiB;

// Host memory, and a tensor of the same size on the GPU.
struct Transfer {
  Gpu* gpu;
  std::vector<uint8_t> host;
  server::BufferRef there;

  int64_t bytes() const { return static_cast<int64_t>(host.size()); }
  absl::Status Upload() {
    TENSORD_ASSIGN_OR_RETURN(there, gpu->device().Allocate(bytes()));
    return gpu->device().Write(*there, 0, host.data(), bytes());
  }
  absl::Status Download() { return gpu->device().Read(*there, 0, host.data(), bytes()); }
};

Row TransferRow(const Setup& setup, bool up, int64_t bytes) {
  Row row;
  row.name = absl::StrCat(up ? "upload " : "download ", bytes >> 10, " KiB");
  row.work = static_cast<double>(bytes);
  row.torch = absl::StrCat(up ? "upload " : "download ", bytes);
  row.ours = [gpu = setup.gpu, up, bytes]() -> absl::StatusOr<Contender> {
    auto transfer = std::make_shared<Transfer>();
    transfer->gpu = gpu;
    transfer->host = MakeData(DType::kFloat16, bytes / 2, 1);
    TENSORD_RETURN_IF_ERROR(transfer->Upload());
    TENSORD_RETURN_IF_ERROR(gpu->Wait());
    const auto work = [transfer, up](int n) {
      absl::Status status;
      for (int i = 0; i < n && status.ok(); ++i) {
        status = up ? transfer->Upload() : transfer->Download();
      }
      return status;
    };
    return TimedByHost("ours", work, nullptr);
  };
  row.direct = [up, bytes]() -> absl::StatusOr<Contender> {
    TENSORD_ASSIGN_OR_RETURN(
        auto copy, DirectCopy::Make(bytes, up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost));
    return TimedByHost(
        "cudaMemcpy, pinned", [copy](int n) { return copy->Run(n); }, nullptr);
  };
  return row;
}

// An engine with one session and its own logical device.
class EngineRunner {
 public:
  static absl::StatusOr<std::shared_ptr<EngineRunner>> Make(bool fusion, bool graphs) {
    TENSORD_ASSIGN_OR_RETURN(auto device,
                             server::MakeCudaDevice({DeviceKind::kCuda, 0}, 0, kEngineBytes));
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(std::move(device));
    auto runner = std::make_shared<EngineRunner>();
    runner->engine_ = std::make_unique<server::Engine>(std::move(devices), fusion, graphs);
    runner->sessions_ =
        std::make_unique<server::SessionTable>(server::Limits(), runner->engine_->slots());
    TENSORD_ASSIGN_OR_RETURN(runner->session_,
                             runner->sessions_->Open(server::TestPrincipal(), 0, "benchmark"));
    return runner;
  }

  absl::StatusOr<Handle> Full(const Shape& shape, double value) {
    const Attributes attrs = {
        {"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())},
        {"value", value},
        {"dtype", DType::kFloat32}};
    TENSORD_RETURN_IF_ERROR(
        engine_->Run(session_, {"full", {}, ++last_, attrs, "cuda:0"}).status());
    return last_;
  }

  // Computes y = op(y, x) `n` times. Drops each result after the next op has been submitted. Blocks
  // until all ops are done.
  absl::Status Chain(absl::string_view op, Handle x, int n) {
    Handle y = x;
    for (int i = 0; i < n; ++i) {
      const Handle inputs[] = {y, x};
      TENSORD_RETURN_IF_ERROR(engine_->Run(session_, {op, inputs, ++last_, {}, ""}).status());
      if (y != x) session_->Drop({y});
      y = last_;
    }
    return WaitAndDrop(y, x);
  }

  // Prepares a program that computes y = op(y, x) `steps` times.
  absl::Status Prepare(absl::string_view op, const TensorSpec& spec, uint32_t steps) {
    const Attributes none;
    server::ProgramSpec program{{spec, spec}, {}, {steps + 1}};
    for (uint32_t i = 0; i < steps; ++i) {
      program.steps.push_back({op, &none, {i == 0 ? 0 : i + 1, 1}});
    }
    TENSORD_ASSIGN_OR_RETURN(program_, engine_->Prepare(*session_, program, "cuda:0"));
    return absl::OkStatus();
  }
  // Runs the program `n` times, and blocks until all runs are done.
  absl::Status RunProgram(Handle x, int n) {
    Handle y = x;
    for (int i = 0; i < n; ++i) {
      TENSORD_RETURN_IF_ERROR(engine_->Run(session_, program_, {y, x}, {++last_}).status());
      if (y != x) session_->Drop({y});
      y = last_;
    }
    return WaitAndDrop(y, x);
  }

  const server::Engine& engine() const { return *engine_; }

 private:
  absl::Status WaitAndDrop(Handle y, Handle x) {
    absl::Notification idle;
    TENSORD_RETURN_IF_ERROR(engine_->WhenIdle(session_, [&] { idle.Notify(); }));
    idle.WaitForNotification();
    if (y != x) session_->Drop({y});
    return absl::OkStatus();
  }

  // Members are destroyed in reverse order.
  std::unique_ptr<server::Engine> engine_;
  std::unique_ptr<server::SessionTable> sessions_;
  server::SessionRef session_;
  std::shared_ptr<server::Program> program_;
  Handle last_ = 0;
};

absl::StatusOr<Contender> EngineChain(const std::string& name, bool fusion) {
  TENSORD_ASSIGN_OR_RETURN(auto runner, EngineRunner::Make(fusion, /*graphs=*/true));
  TENSORD_ASSIGN_OR_RETURN(const Handle x, runner->Full({kSmall}, 1));
  TENSORD_RETURN_IF_ERROR(runner->Chain("add", x, 100));
  TENSORD_RETURN_IF_ERROR(AwaitCompiled(runner->engine()));
  return TimedByHost(
      name, [runner, x](int n) { return runner->Chain("add", x, n); }, nullptr);
}

absl::StatusOr<Contender> EngineProgram(const std::string& name, const std::string& op,
                                        const Shape& shape, double value, int steps, bool graphs) {
  TENSORD_ASSIGN_OR_RETURN(auto runner, EngineRunner::Make(/*fusion=*/true, graphs));
  TENSORD_ASSIGN_OR_RETURN(const Handle x, runner->Full(shape, value));
  TENSORD_RETURN_IF_ERROR(
      runner->Prepare(op, {DType::kFloat32, shape}, static_cast<uint32_t>(steps)));
  return TimedByHost(
      name, [runner, x](int n) { return runner->RunProgram(x, n); }, nullptr);
}

Row ProgramRow(const std::string& op, const Shape& shape, double value, int steps) {
  Row row;
  row.name = absl::StrCat("program of ", steps, " ", op, "s ", SizeText(shape));
  row.unit = Unit::kMicroseconds;
  row.torch = absl::StrCat("program ", op, " ", steps, " ", SizeText(shape), " ", value);
  row.ours = [=] { return EngineProgram("ours", op, shape, value, steps, /*graphs=*/true); };
  row.direct = [=] {
    return EngineProgram("ours without graphs", op, shape, value, steps, /*graphs=*/false);
  };
  return row;
}

}  // namespace

void AppendTransferRows(const Setup& setup, std::vector<Row>* rows) {
  const std::vector<int64_t> sizes = setup.quick
                                         ? std::vector<int64_t>{1 << 12, 1 << 20}
                                         : std::vector<int64_t>{1 << 16, 4 * kMiB, 256 * kMiB};
  for (const bool up : {true, false}) {
    for (const int64_t bytes : sizes) rows->push_back(TransferRow(setup, up, bytes));
  }
}

void AppendLaunchRows(const Setup& setup, std::vector<Row>* rows) {
  const auto tiny_copy = []() -> absl::StatusOr<Contender> {
    TENSORD_ASSIGN_OR_RETURN(auto copy, DirectCopy::Make(kSmall * 4, cudaMemcpyDeviceToDevice));
    return TimedByHost(
        "one cudaMemcpy", [copy](int n) { return copy->Run(n); }, nullptr);
  };
  const TensorSpec spec{DType::kFloat32, {kSmall}};
  Row add = OpRow(setup, "add", {spec, spec});
  add.name = absl::StrCat("one add of ", kSmall, ", device layer");
  add.ours = [gpu = setup.gpu, spec]() -> absl::StatusOr<Contender> {
    TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<Op> op, Op::Make(gpu, "add", {spec, spec}, {}));
    return TimedByHost(
        "ours", [op](int n) { return op->RunIntoNewMemory(n); },
        [op] { return op->ResultChecksum(); });
  };
  add.unit = Unit::kMicroseconds;
  add.direct = tiny_copy;
  rows->push_back(std::move(add));
  for (const bool fusion : {false, true}) {
    Row chain;
    chain.name =
        absl::StrCat("one add of ", kSmall, " in a chain, engine", fusion ? ", fused" : "");
    chain.unit = Unit::kMicroseconds;
    chain.torch = absl::StrCat("chain ", kSmall);
    chain.ours = [fusion] { return EngineChain("ours", fusion); };
    chain.direct = tiny_copy;
    rows->push_back(std::move(chain));
  }
  const int steps = setup.quick ? 30 : 1000;
  rows->push_back(ProgramRow("matmul", {kMatrix, kMatrix}, 1.0 / kMatrix, steps));
  rows->push_back(ProgramRow("add", {kSmall}, 1, steps));
}

}  // namespace tensord::gpu
