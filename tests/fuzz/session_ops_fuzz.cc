// Fuzzes sessions as session_fuzz does, but the clients send mostly valid commands, in any order,
// over connections that break. So it reaches code that session_fuzz rarely reaches, because an
// invalid message ends a stream. It makes the same checks.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/server/rpc/proto_convert.h"
#include "tensord/tests/fuzz/any_op.h"
#include "tensord/tests/fuzz/session_player.h"

namespace tensord::server {
namespace {

using fuzz::FuzzInput;

// A client that makes valid commands. It remembers the definitions, programs and messages that it
// has sent.
class ValidClient {
 public:
  ValidClient(FuzzWorld* world, PrincipalRef principal) : player_(world, std::move(principal)) {}

  void Step(FuzzInput& in);

 private:
  struct Shape {
    size_t inputs;
    size_t outputs;
  };
  struct Defined {
    uint32_t inputs;
    uint32_t outputs;
  };

  static uint64_t AnyHandle(FuzzInput& in) {
    return in.OneIn(32) ? in.Raw<uint64_t>() : in.Range(0, 15);
  }
  static std::string AnyDevice(FuzzInput& in) {
    static constexpr const char* kNames[] = {"cpu:0", "cpu:0", "cpu:0",  "cpu:1",
                                             "cpu",   "",      "cuda:0", "cpu:9"};
    return in.Pick(kNames);
  }
  static v1::TensorSpec AnySpec(FuzzInput& in) {
    v1::TensorSpec spec;
    spec.set_dtype(static_cast<v1::DType>(in.OneIn(4) ? in.Range(0, 16) : 8));
    for (int i = in.Range(0, 3); i > 0; --i) spec.add_shape(in.Number());
    return spec;
  }
  static SessionPlayer::Slice AnySlice(FuzzInput& in) {
    return in.Bool() ? SessionPlayer::Slice::kSmallest : SessionPlayer::Slice::kAll;
  }
  static std::string AnyName(FuzzInput& in) {
    return in.OneIn(8) ? in.Bytes(8) : std::string(1, static_cast<char>('a' + in.Range(0, 2)));
  }

  // Donates some of `inputs` inputs.
  template <typename Message>
  static void AddDonations(FuzzInput& in, int inputs, Message* message) {
    if (!in.OneIn(4)) return;
    for (int i = 0; i < inputs; ++i) {
      if (in.Bool()) message->add_donate(in.OneIn(32) ? in.Byte() : i);
    }
  }
  // Adds an op whose elements are often bad indices, or an op that uses them.
  static void AddIndexOp(FuzzInput& in, v1::Op* op);
  static void AddAnyOp(FuzzInput& in, v1::Op* op);

  void Send(FuzzInput& in);
  void AddCommand(FuzzInput& in, v1::Command* command);
  void AddOp(FuzzInput& in, v1::Op* op);
  void AddDefinition(FuzzInput& in, v1::Definition* definition);
  void AddBatch(FuzzInput& in, v1::Batch* batch);
  void AddProgram(FuzzInput& in, v1::Program* program);
  void AddRun(FuzzInput& in, v1::ProgramRun* run);
  void Write(FuzzInput& in);
  void Fetch(FuzzInput& in);
  void Close();

  SessionPlayer player_;
  std::vector<Defined> definitions_;
  std::vector<Shape> programs_;
  std::vector<v1::SessionStreamRequest> sent_;  // for retransmissions
  uint64_t next_command_ = 1;
  uint64_t answers_ = 0;
};

void ValidClient::AddIndexOp(FuzzInput& in, v1::Op* op) {
  op->set_output(AnyHandle(in));
  Attributes attrs;
  if (in.Bool()) {
    op->set_name("index");
    for (int i = in.OneIn(4) ? 3 : 2; i > 0; --i) op->add_inputs(AnyHandle(in));
    attrs.Set("axis", int64_t{in.Range(0, 1)});
  } else {
    op->set_name("arange");
    op->set_device("cpu:0");
    const int64_t start = in.Range(-3, 3);
    attrs.Set("start", start);
    attrs.Set("stop", start + in.Range(1, 4));
  }
  for (const auto& [name, value] : attrs) ToProto(value, &(*op->mutable_attrs())[name]);
}

void ValidClient::AddOp(FuzzInput& in, v1::Op* op) {
  in.OneIn(4) ? AddIndexOp(in, op) : AddAnyOp(in, op);
  AddDonations(in, op->inputs_size(), op);
}

void ValidClient::AddAnyOp(FuzzInput& in, v1::Op* op) {
  const OpSchema& schema = fuzz::AnySchema(in);
  op->set_name(schema.name);
  const int fewest = schema.min_inputs;
  int inputs = in.Range(fewest, std::max(fewest, std::min(schema.max_inputs, 4)));
  if (in.OneIn(32)) ++inputs;
  for (; inputs > 0; --inputs) op->add_inputs(AnyHandle(in));
  op->set_output(AnyHandle(in));
  for (const auto& [name, value] : fuzz::AnyAttributes(in, schema)) {
    ToProto(value, &(*op->mutable_attrs())[name]);
  }
  if (schema.min_inputs == 0 || in.OneIn(8)) op->set_device(AnyDevice(in));
  op->set_num_outputs(CountOutputs(schema));
  if (in.OneIn(8)) op->set_num_outputs(in.OneIn(16) ? in.Raw<uint32_t>() : in.Range(0, 5));
}

void ValidClient::AddDefinition(FuzzInput& in, v1::Definition* definition) {
  v1::Op op;
  AddOp(in, &op);
  definition->set_number(in.OneIn(64) ? in.Byte() : static_cast<uint32_t>(definitions_.size()) + 1);
  definition->set_name(op.name());
  *definition->mutable_attrs() = op.attrs();
  definition->set_device(op.device());
  definition->set_num_inputs(in.OneIn(64) ? in.Raw<uint32_t>() : op.inputs_size());
  *definition->mutable_donate() = op.donate();
  definition->set_num_outputs(op.num_outputs());
  definitions_.push_back({definition->num_inputs(), std::max(1u, op.num_outputs())});
}

void ValidClient::AddBatch(FuzzInput& in, v1::Batch* batch) {
  uint64_t last = 0;
  // The smallest slice of a batch has at least 3 steps.
  for (int steps = in.Range(1, 16); steps > 0; --steps) {
    if (in.OneIn(4) || definitions_.empty()) {
      batch->add_words(0);
      batch->add_words(last - AnyHandle(in));
      continue;
    }
    const int which = in.Range(0, static_cast<int>(definitions_.size()) - 1);
    const uint64_t output = AnyHandle(in);
    batch->add_words(which + 1);
    batch->add_words(output - last);
    last = output + definitions_[which].outputs - 1;
    for (uint32_t i = 0; i < definitions_[which].inputs && i < 8; ++i) {
      batch->add_words(output - AnyHandle(in));
    }
  }
  if (in.OneIn(32)) batch->add_words(in.Raw<uint64_t>());
}

void ValidClient::AddProgram(FuzzInput& in, v1::Program* program) {
  program->set_number(in.OneIn(64) ? in.Byte() : static_cast<uint32_t>(programs_.size()) + 1);
  program->set_device(AnyDevice(in));
  int values = in.Range(0, 3);
  for (int i = 0; i < values; ++i) *program->add_inputs() = AnySpec(in);
  for (int steps = in.Range(0, 8); steps > 0 && !definitions_.empty(); --steps) {
    const int which = in.Range(0, static_cast<int>(definitions_.size()) - 1);
    program->add_ops(which + 1);
    for (uint32_t i = 0; i < definitions_[which].inputs && i < 8; ++i) {
      program->add_ops(in.OneIn(32) ? in.Byte() : in.Range(0, std::max(values - 1, 0)));
    }
    values += static_cast<int>(std::min(definitions_[which].outputs, 8u));
  }
  for (int outputs = in.Range(0, 3); outputs > 0; --outputs) {
    program->add_outputs(in.OneIn(32) ? in.Byte() : in.Range(0, std::max(values - 1, 0)));
  }
  programs_.push_back(
      {static_cast<size_t>(program->inputs_size()), static_cast<size_t>(program->outputs_size())});
}

void ValidClient::AddRun(FuzzInput& in, v1::ProgramRun* run) {
  const int which = in.Range(0, static_cast<int>(programs_.size()));
  run->set_number(which);
  Shape shape{1, 1};
  if (which > 0) shape = programs_[which - 1];
  for (size_t i = 0; i < shape.inputs; ++i) run->add_inputs(AnyHandle(in));
  for (size_t i = 0; i < shape.outputs; ++i) run->add_outputs(AnyHandle(in));
  AddDonations(in, static_cast<int>(shape.inputs), run);
}

void ValidClient::AddCommand(FuzzInput& in, v1::Command* command) {
  switch (in.Range(0, 12)) {
    case 0:
      command->mutable_copy()->set_input(AnyHandle(in));
      command->mutable_copy()->set_output(AnyHandle(in));
      command->mutable_copy()->set_device(AnyDevice(in));
      return;
    case 1:
      command->mutable_promise()->set_handle(AnyHandle(in));
      *command->mutable_promise()->mutable_spec() = AnySpec(in);
      command->mutable_promise()->set_device(AnyDevice(in));
      return;
    case 2:
      for (int i = in.Range(0, 3); i > 0; --i) command->mutable_drop()->add_handles(AnyHandle(in));
      if (in.OneIn(4)) command->mutable_drop()->add_programs(in.Range(0, 4));
      return;
    case 3:
      command->mutable_get_elements()->set_handle(AnyHandle(in));
      command->mutable_get_elements()->set_request_id(in.Byte());
      return;
    case 4:
      command->mutable_barrier()->set_barrier_id(in.Byte());
      return;
    case 5:
    case 6:
      return AddDefinition(in, command->mutable_define());
    case 7:
    case 8:
      return AddBatch(in, command->mutable_batch());
    case 9:
      return AddProgram(in, command->mutable_program());
    case 10:
      return AddRun(in, command->mutable_run());
    default:
      return AddOp(in, command->mutable_op());
  }
}

void ValidClient::Send(FuzzInput& in) {
  v1::SessionStreamRequest message;
  if (!sent_.empty() && in.OneIn(8)) {
    message = sent_[in.Range(0, static_cast<int>(sent_.size()) - 1)];
  } else {
    // The smallest slice has 16 commands, if none of them is a batch.
    for (int commands = in.OneIn(8) ? 20 : in.Range(0, 6); commands > 0; --commands) {
      AddCommand(in, message.add_commands());
    }
    message.set_first_command(in.OneIn(16) ? in.Byte() : next_command_);
    for (const v1::Command& command : message.commands()) {
      if (!command.has_batch()) ++next_command_;
    }
    sent_.push_back(message);
  }
  message.mutable_attach()->set_resumable(!in.OneIn(8));
  message.set_answers_received(in.OneIn(4) ? answers_ += in.Byte() : 0);
  player_.Send(message, AnySlice(in));
}

void ValidClient::Write(FuzzInput& in) {
  v1::WriteRequest message;
  if (in.Bool()) {
    message.mutable_spec()->set_handle(AnyHandle(in));
    *message.mutable_spec()->mutable_spec() = AnySpec(in);
    message.mutable_spec()->set_device(AnyDevice(in));
    message.mutable_spec()->set_resumable(in.Bool());
    message.mutable_spec()->set_after_command(in.OneIn(4) ? in.Byte() : 0);
  }
  message.set_offset(in.OneIn(4) ? in.Number() : 4 * in.Range(0, 4));
  message.set_data(std::string(4 * in.Range(0, 4), 'x'));
  player_.Write(message.SerializeAsString());
}

template <typename Request>
Request AnyTicketRequest(FuzzInput& in) {
  Request request;
  request.set_ticket(std::string(in.Range(0, 3), 'x'));
  request.set_destination_epoch("there");
  request.set_principal_kind("token");
  request.set_principal_name(in.OneIn(8) ? "other" : "one");
  request.set_pull_id(std::string(Tickets::kPullIdBytes, in.OneIn(4) ? 'b' : 'a'));
  return request;
}

void ValidClient::Fetch(FuzzInput& in) {
  if (in.OneIn(4)) return player_.ReleaseTicket(AnyTicketRequest<v1::ReleaseTicketRequest>(in));
  player_.Fetch(AnyTicketRequest<v1::FetchRequest>(in));
}

void ValidClient::Close() {
  player_.Close();
  definitions_.clear();
  programs_.clear();
  sent_.clear();
  next_command_ = 1;
  answers_ = 0;
}

void ValidClient::Step(FuzzInput& in) {
  switch (in.Range(0, 23)) {
    case 0:
      return player_.Cut(/*noticed=*/in.Bool());
    case 1:
    case 2:
      return player_.Read(in.Bool());
    case 3:
    case 4:
      return Write(in);
    case 5:
      return in.Bool() ? player_.EndWrite() : player_.AbortWrite();
    case 6:
      return player_.GetUpload(AnyHandle(in));
    case 7: {
      v1::PublishTensorRequest request;
      request.set_handle(AnyHandle(in));
      request.set_name(AnyName(in));
      request.add_principals(in.Bool() ? "one" : "other");
      return player_.Publish(request);
    }
    case 8: {
      v1::OpenPublishedRequest request;
      request.set_output(AnyHandle(in));
      request.set_name(AnyName(in));
      request.set_owner(in.Bool() ? "one" : "other");
      return player_.Open(request);
    }
    case 9:
      return player_.Unpublish(AnyName(in));
    case 10:
    case 11:
    case 12:
      return player_.Continue(AnySlice(in));
    case 13: {
      v1::CreateTicketRequest request;
      request.set_handle(AnyHandle(in));
      request.set_destination_epoch(in.OneIn(8) ? "elsewhere" : "there");
      return player_.CreateTicket(request);
    }
    case 14:
      return Fetch(in);
    case 15:
      return in.OneIn(8) ? Close() : player_.EndFetch(in.Bool());
    default:
      return Send(in);
  }
}

void RunOne(FuzzInput in) {
  static FuzzWorld* const world = new FuzzWorld();
  {
    ValidClient one(world, world->one), other(world, world->other);
    while (in.remaining() > 0) {
      (in.OneIn(8) ? other : one).Step(in);
      if (in.Bool()) world->RunSlice(in.Byte());
    }
    world->Drain();
  }
  world->CheckEmpty();
}

}  // namespace
}  // namespace tensord::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);
  tensord::server::RunOne({data, size});
  return 0;
}
