// Writes the seeds that are messages at build time, because the tree holds only text.
//   usage: make_seeds FOLDER        writes FOLDER/TARGET/NAME
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/fuzz/session_frames.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::fuzz {
namespace {

std::filesystem::path folder;

void Save(const std::string& target, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder / target);
  std::ofstream out(folder / target / name, std::ios::binary);
  out << bytes;
  if (!out.flush()) std::exit(1);
}

v1::SessionStreamRequest Attach(bool resumable) {
  v1::SessionStreamRequest message;
  message.mutable_attach()->set_resumable(resumable);
  if (resumable) message.set_first_command(1);
  return message;
}

v1::TensorSpec Floats(int64_t n) {
  v1::TensorSpec spec;
  spec.set_dtype(v1::DTYPE_FLOAT32);
  spec.add_shape(n);
  return spec;
}

void AddOnes(v1::SessionStreamRequest& message, uint64_t handle) {
  v1::Op& op = *message.add_commands()->mutable_op();
  op.set_name("ones");
  op.set_output(handle);
  op.set_device("cpu:0");
  (*op.mutable_attrs())["shape"].mutable_ints()->add_values(4);
}

void AddGetElements(v1::SessionStreamRequest& message, uint64_t handle) {
  message.add_commands()->mutable_get_elements()->set_handle(handle);
  message.mutable_commands(message.commands_size() - 1)
      ->mutable_get_elements()
      ->set_request_id(handle);
}

void Define(v1::SessionStreamRequest& message, uint32_t number, const std::string& name,
            uint32_t inputs) {
  v1::Definition& definition = *message.add_commands()->mutable_define();
  definition.set_number(number);
  definition.set_name(name);
  definition.set_num_inputs(inputs);
}

std::string SendFrame(const v1::SessionStreamRequest& message, FrameKind kind = FrameKind::kSend) {
  std::string frame;
  AppendFrame(kind, message.SerializeAsString(), &frame);
  return frame;
}

std::string Ops() {
  v1::SessionStreamRequest message = Attach(false);
  AddOnes(message, 1);
  v1::Op& add = *message.add_commands()->mutable_op();
  add.set_name("add");
  add.add_inputs(1);
  add.add_inputs(1);
  add.set_output(2);
  v1::Copy& copy = *message.add_commands()->mutable_copy();
  copy.set_input(2);
  copy.set_output(3);
  copy.set_device("cpu:1");
  AddGetElements(message, 3);
  message.add_commands()->mutable_barrier()->set_barrier_id(1);
  message.add_commands()->mutable_drop()->add_handles(1);
  std::string frames = SendFrame(message);
  for (const char* device : {"0", "1"}) AppendFrame(FrameKind::kRunSlice, device, &frames);
  AppendFrame(FrameKind::kRead, "x", &frames);
  return frames;
}

std::string Programs() {
  v1::SessionStreamRequest message = Attach(true);
  AddOnes(message, 1);
  Define(message, 1, "neg", 1);
  Define(message, 2, "add", 2);
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (uint64_t word : {1, 2, 1, 2, 1, 1, 2, 0, 1}) batch.add_words(word);
  v1::Program& program = *message.add_commands()->mutable_program();
  program.set_number(1);
  program.set_device("cpu:0");
  *program.add_inputs() = Floats(4);
  for (uint32_t word : {1, 0, 2, 0, 1}) program.add_ops(word);
  program.add_outputs(2);
  v1::ProgramRun& run = *message.add_commands()->mutable_run();
  run.set_number(1);
  run.add_inputs(1);
  run.add_outputs(9);
  AddGetElements(message, 9);
  std::string frames = SendFrame(message);
  AppendFrame(FrameKind::kRunSlice, "0", &frames);
  AppendFrame(FrameKind::kRead, "x", &frames);
  return frames;
}

std::string Resumed() {
  v1::SessionStreamRequest message = Attach(true);
  AddOnes(message, 1);
  AddGetElements(message, 1);
  std::string frames = SendFrame(message);
  AppendFrame(FrameKind::kRead, "", &frames);
  AppendFrame(FrameKind::kCutUnnoticed, "", &frames);
  message.set_answers_received(1);
  frames += SendFrame(message);
  AppendFrame(FrameKind::kCut, "", &frames);
  v1::SessionStreamRequest next = Attach(true);
  next.set_first_command(3);
  AddGetElements(next, 7);
  return frames + SendFrame(next);
}

std::string Uploads() {
  v1::SessionStreamRequest message = Attach(true);
  v1::Promise& promise = *message.add_commands()->mutable_promise();
  promise.set_handle(1);
  *promise.mutable_spec() = Floats(4);
  promise.set_device("cpu:0");
  AddGetElements(message, 1);
  std::string frames = SendFrame(message);
  v1::WriteRequest write;
  write.mutable_spec()->set_handle(1);
  *write.mutable_spec()->mutable_spec() = Floats(4);
  write.mutable_spec()->set_device("cpu:0");
  write.mutable_spec()->set_resumable(true);
  write.set_data("12345678");
  AppendFrame(FrameKind::kWrite, write.SerializeAsString(), &frames);
  AppendFrame(FrameKind::kAbortWrite, "", &frames);
  v1::GetUploadRequest get;
  get.set_handle(1);
  AppendFrame(FrameKind::kGetUpload, get.SerializeAsString(), &frames);
  write.set_offset(8);
  AppendFrame(FrameKind::kWrite, write.SerializeAsString(), &frames);
  AppendFrame(FrameKind::kEndWrite, "", &frames);
  AppendFrame(FrameKind::kRead, "x", &frames);
  return frames;
}

std::string Shared() {
  v1::SessionStreamRequest message = Attach(false);
  AddOnes(message, 1);
  std::string frames = SendFrame(message);
  v1::PublishTensorRequest publish;
  publish.set_handle(1);
  publish.set_name("weights");
  publish.add_principals("other");
  AppendFrame(FrameKind::kPublish, publish.SerializeAsString(), &frames);
  AppendFrame(FrameKind::kOtherClient, "", &frames);
  v1::OpenPublishedRequest open;
  open.set_output(5);
  open.set_owner("one");
  open.set_name("weights");
  AppendFrame(FrameKind::kOpen, open.SerializeAsString(), &frames);
  AppendFrame(FrameKind::kOtherClient, "", &frames);
  v1::UnpublishTensorRequest unpublish;
  unpublish.set_name("weights");
  AppendFrame(FrameKind::kUnpublish, unpublish.SerializeAsString(), &frames);
  return frames;
}

// Messages that are applied in slices, with other actions between two slices.
std::string Slices() {
  v1::SessionStreamRequest message = Attach(true);
  AddOnes(message, 1);
  Define(message, 1, "neg", 1);
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (int step = 0; step < 16; ++step) {
    for (uint64_t word : {1, step == 0 ? 2 : 1, 1}) batch.add_words(word);
  }
  for (int i = 0; i < 20; ++i) AddGetElements(message, 17);
  v1::Program& program = *message.add_commands()->mutable_program();
  program.set_number(1);
  message.add_commands()->mutable_drop()->add_programs(1);
  message.add_commands()->mutable_drop()->add_handles(1);
  std::string frames = SendFrame(message, FrameKind::kSendSlice);
  AppendFrame(FrameKind::kContinue, "x", &frames);
  AppendFrame(FrameKind::kRunSlice, "0", &frames);
  AppendFrame(FrameKind::kCutUnnoticed, "", &frames);
  frames += SendFrame(message, FrameKind::kSendSlice);
  AppendFrame(FrameKind::kContinue, "x", &frames);
  AppendFrame(FrameKind::kContinue, "", &frames);
  AppendFrame(FrameKind::kRead, "x", &frames);
  AppendFrame(FrameKind::kClose, "", &frames);
  frames += SendFrame(message, FrameKind::kSendSlice);
  AppendFrame(FrameKind::kClose, "", &frames);
  AppendFrame(FrameKind::kContinue, "", &frames);
  return frames;
}

template <typename Request>
std::string TicketRequest() {
  Request request;
  request.set_destination_epoch("there");
  request.set_principal_kind("token");
  request.set_principal_name("one");
  request.set_pull_id("0123456789abcdef");
  return request.SerializeAsString();
}

std::string Fetched() {
  v1::SessionStreamRequest message = Attach(false);
  AddOnes(message, 1);
  std::string frames = SendFrame(message);
  v1::CreateTicketRequest create;
  create.set_handle(1);
  create.set_destination_epoch("there");
  AppendFrame(FrameKind::kCreateTicket, create.SerializeAsString(), &frames);
  AppendFrame(FrameKind::kFetch, TicketRequest<v1::FetchRequest>(), &frames);
  AppendFrame(FrameKind::kReleaseTicket, TicketRequest<v1::ReleaseTicketRequest>(), &frames);
  AppendFrame(FrameKind::kEndFetch, "x", &frames);
  return frames;
}

void SaveAll() {
  Save("session_fuzz", "ops", Ops());
  Save("session_fuzz", "programs", Programs());
  Save("session_fuzz", "resumed", Resumed());
  Save("session_fuzz", "uploads", Uploads());
  Save("session_fuzz", "shared", Shared());
  Save("session_fuzz", "slices", Slices());
  Save("session_fuzz", "fetched", Fetched());

  // The input begins with the slice size, the size of the output and the number of filled bytes.
  v1::WriteRequest write;
  write.mutable_spec()->set_session("0123456789abcdef");
  *write.mutable_spec()->mutable_spec() = Floats(4);
  write.set_offset(300);
  write.set_data("payload");
  Save("bulk_codec_fuzz", "write", std::string("\x06\x10\x00", 3) + write.SerializeAsString());
  v1::ReadResponse read;
  *read.mutable_spec() = Floats(4);
  read.set_offset(4);
  read.set_data("payload");
  Save("bulk_codec_fuzz", "read", "\x02\x10\x04" + read.SerializeAsString());

  const absl::Status limit = ToStatus({.reason = "SESSION_BYTES_EXCEEDED",
                                       .subject = "session",
                                       .limit = "max-bytes-per-session",
                                       .value = 1000,
                                       .message = "too much"});
  Save("status_details_fuzz", "limit", EncodeDetails(limit, "too much"));
}

}  // namespace
}  // namespace tensord::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds FOLDER\n");
    return 2;
  }
  tensord::fuzz::folder = argv[1];
  tensord::fuzz::SaveAll();
  return 0;
}
