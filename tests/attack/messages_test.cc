// Well-formed messages of an attacker: excessive counts, invalid numbers, names that look like
// paths. The daemon must refuse them in bounded memory, without harm to other sessions.
#include <climits>

#include "tensord/tests/attack/memory_growth.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/mib.h"

namespace tensord::attack {
namespace {

using integration::DaemonFixture;
using integration::RpcSession;
using Code = absl::StatusCode;

class MessagesTest : public DaemonFixture {
 protected:
  // Some messages take long on a busy machine, and the session isn't used meanwhile.
  MessagesTest() : DaemonFixture({"--lease-seconds=600"}) {}

  void SetUp() override {
    DaemonFixture::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(session_->Ones(1, {16}).ok());
  }

  // Expects that old and new legitimate clients are served.
  void TearDown() override {
    const auto values = session_->ReadFloats(1);
    EXPECT_TRUE(values.ok()) << values.status();
    RpcSession another(*client_);
    EXPECT_TRUE(another.Ones(1, {16}).ok());
    DaemonFixture::TearDown();
  }

  // Sends this message on a new stream. Returns the status that ends the stream.
  absl::Status Send(const v1::SessionStreamRequest& message) {
    return RunStream(*client_, {message});
  }
};

// Sends one request of 16 MiB to each method that has a list of messages or texts. Each element
// takes two bytes on the wire and 50 to 240 bytes when it is parsed. Unknown fields do the same in
// any request.
TEST_F(MessagesTest, RefusesRequestsThatTakeAHundredTimesTheirSize) {
  const auto repeated = [](std::string element) {
    std::string bytes;
    while (bytes.size() < 16 * kMiB - 2) bytes += element;
    return bytes;
  };
  const std::string second = repeated(std::string("\x12\x00", 2));
  const std::string groups = repeated("\x7b\x7c");
  const std::pair<std::string, std::string> requests[] = {
      {"RunOps", second},
      {"PublishTensor", repeated(std::string("\x2a\x00", 2))},
      {"ConnectGroup", repeated(std::string("\x1a\x00", 2))},
      {"GetTensor", groups},
      {"Read", groups},
      {"SharedMemory", groups},
      {"Write", repeated(std::string("\x0a\x04\x7b\x7c\x7b\x7c", 6))}};
  const MemoryGrowth growth(*daemon_, "VmRSS");
  for (const auto& [method, bytes] : requests) {
    SCOPED_TRACE(method);
    const Code code = method == "Write" ? Code::kInvalidArgument : Code::kResourceExhausted;
    ExpectError(client_->CallRaw(method, bytes), code);
  }
  growth.ExpectBelow(96 * kMiB);
}

// Each command takes two bytes on the wire and about sixty bytes when it is parsed.
TEST_F(MessagesTest, RefusesMillionsOfEmptyCommands) {
  std::string bytes;
  while (bytes.size() < 16 * kMiB) bytes += std::string("\x12\x00", 2);
  const MemoryGrowth growth(*daemon_, "VmRSS");
  ExpectError(client_->CallRaw("SessionStream", bytes), Code::kResourceExhausted,
              {"when it is parsed"});
  growth.ExpectBelow(64 * kMiB);
}

// Sends four million steps. None of them can run, because their input doesn't exist.
TEST_F(MessagesTest, RefusesMillionsOfFailingSteps) {
  RpcSession attacker(*client_);
  v1::SessionStreamRequest message = attacker.Attach();
  integration::AddDefinition(&message, 1, "neg", 1);
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (int i = 0; i < 4000000; ++i) {
    batch.add_words(1);
    batch.add_words(1);
    batch.add_words(1);
  }
  const MemoryGrowth growth(*daemon_, "VmRSS");
  ExpectError(Send(message), Code::kResourceExhausted, {"answers"});
  // Each failed step also takes a handle, up to the session's limit.
  growth.ExpectBelow(512 * kMiB);
}

TEST_F(MessagesTest, RefusesRunWithMillionsOfOutputs) {
  RpcSession attacker(*client_);
  v1::SessionStreamRequest message = attacker.Attach();
  v1::ProgramRun& run = *message.add_commands()->mutable_run();
  run.set_number(7);
  for (int i = 0; i < 4000000; ++i) run.add_outputs(0);
  const MemoryGrowth growth(*daemon_, "VmRSS");
  ExpectError(Send(message), Code::kResourceExhausted, {"answers"});
  growth.ExpectBelow(256 * kMiB);
}

// The memory for a stream's programs is bounded, including their outputs.
TEST_F(MessagesTest, BoundsMemoryOfProgramsWithMillionsOfOutputs) {
  RpcSession attacker(*client_);
  auto stream = client_->SessionStream();
  ASSERT_TRUE(stream->Send(attacker.Attach()));
  const MemoryGrowth growth(*daemon_, "VmRSS");
  constexpr int kPrograms = 50;
  for (int i = 1; i <= kPrograms; ++i) {
    v1::SessionStreamRequest message;
    v1::Program& program = *message.add_commands()->mutable_program();
    program.set_number(i);
    program.set_device("cpu:0");
    program.add_inputs()->set_dtype(v1::DTYPE_FLOAT32);
    for (int output = 0; output < 3000000; ++output) program.add_outputs(0);
    ASSERT_TRUE(stream->Send(message));
  }
  ASSERT_TRUE(attacker.client()
                  .Call<v1::Tensor>("GetTensor",
                                    [&] {
                                      v1::GetTensorRequest request;
                                      request.set_session(attacker.id());
                                      request.set_handle(1);
                                      request.set_after_command(kPrograms);
                                      return request;
                                    }())
                  .status()
                  .code() == Code::kNotFound);
  growth.ExpectBelow(128 * kMiB);
}

// The client requests a hundred gigabytes and reads none of it.
TEST_F(MessagesTest, BoundsMemoryOfUnreadResponses) {
  RpcSession attacker(*client_);
  ASSERT_TRUE(attacker.Ones(1, {1 << 18}).ok());  // 1 MiB
  auto stream = client_->SessionStream();
  v1::SessionStreamRequest message = attacker.Attach();
  constexpr int kCommands = 100000;
  for (int i = 0; i < kCommands; ++i) {
    v1::GetElements& get = *message.add_commands()->mutable_get_elements();
    get.set_handle(1);
    get.set_request_id(i);
  }
  const MemoryGrowth growth(*daemon_, "VmRSS");
  ASSERT_TRUE(stream->Send(message));
  v1::GetTensorRequest request;
  request.set_session(attacker.id());
  request.set_handle(1);
  request.set_after_command(kCommands);
  ASSERT_TRUE(client_->Call<v1::Tensor>("GetTensor", request).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(session_->Get(1).ok());
  growth.ExpectBelow(128 * kMiB);
  stream->Cancel();
}

// A program declares the sizes of values. Nothing is charged to its caller for them. The daemon
// prepares no kernel for values that its device can't hold.
TEST_F(MessagesTest, RefusesProgramsOfGiantValuesInBoundedMemory) {
  using Shapes = std::vector<std::vector<int64_t>>;
  constexpr int64_t kMany = int64_t{1} << 40;
  const Shapes products[] = {{{1 << 24, 100}, {100, 1 << 24}},
                             {{65535, 1000}, {1000, (int64_t{1} << 31) - 1}},
                             {{64, 255}, {255, kMany}},
                             {{3, 65535}, {65535, int64_t{1} << 32}},
                             {{kMany, 1, 2, 2}, {3, 2, 2}}};
  RpcSession attacker(*client_);
  v1::SessionStreamRequest message = attacker.Attach();
  integration::AddDefinition(&message, 1, "matmul", 2);
  uint32_t number = 0;
  for (const v1::DType dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_BFLOAT16}) {
    for (const Shapes& shapes : products) {
      v1::Program& program = *message.add_commands()->mutable_program();
      program.set_number(++number);
      program.set_device(integration::TestDevice(0));
      for (const std::vector<int64_t>& shape : shapes) {
        v1::TensorSpec& input = *program.add_inputs();
        input.set_dtype(dtype);
        for (int64_t dim : shape) input.add_shape(dim);
      }
      for (uint32_t word : {1, 0, 1}) program.add_ops(word);
      program.add_outputs(2);
      v1::ProgramRun& run = *message.add_commands()->mutable_run();
      run.set_number(number);
      run.add_inputs(1);
      run.add_inputs(1);
      run.add_outputs(100 + number);
    }
  }
  const MemoryGrowth growth(*daemon_, "VmRSS");
  uint32_t refused = 0;
  const absl::Status ended =
      RunStream(*client_, {message}, [&refused](const v1::SessionStreamResponse& response) {
        for (const v1::HandleError& error : response.errors()) {
          ++refused;
          EXPECT_EQ(error.code(), static_cast<int>(Code::kResourceExhausted)) << error.message();
          EXPECT_THAT(error.message(), testing::HasSubstr("its limit is")) << error.message();
        }
      });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(refused, number);
  growth.ExpectBelow(16 * kMiB);
}

TEST_F(MessagesTest, RefusesInvalidDtypesAndShapes) {
  constexpr int kDtypes[] = {-1, 0, 16, 255, INT_MAX, INT_MIN};
  const std::vector<std::vector<int64_t>> shapes = {
      {-1},
      {INT64_MIN, 2},
      {INT64_MAX, INT64_MAX},
      {int64_t{1} << 32, int64_t{1} << 32, int64_t{1} << 32},
      {0, INT64_MAX, INT64_MAX},
      std::vector<int64_t>(33, 1)};
  std::vector<v1::TensorSpec> specs;
  for (int dtype : kDtypes) {
    specs.emplace_back().set_dtype(static_cast<v1::DType>(dtype));
    specs.back().add_shape(1);
  }
  for (const auto& shape : shapes) {
    specs.emplace_back().set_dtype(v1::DTYPE_FLOAT32);
    for (int64_t dim : shape) specs.back().add_shape(dim);
  }
  for (const v1::TensorSpec& spec : specs) {
    SCOPED_TRACE(spec.ShortDebugString());
    v1::CreateTensorRequest create;
    create.set_session(session_->id());
    create.set_handle(9);
    create.set_device("cpu:0");
    *create.mutable_spec() = spec;
    ExpectError(client_->Call<v1::Tensor>("CreateTensor", create), Code::kInvalidArgument);

    auto write = client_->Write();
    v1::WriteRequest first = session_->FirstWrite(9, {DType::kFloat32, {1}});
    *first.mutable_spec()->mutable_spec() = spec;
    write->Send(first);
    ExpectError(write->Finish(), Code::kInvalidArgument);

    RpcSession attacker(*client_);
    v1::SessionStreamRequest message = attacker.Attach();
    v1::Promise& promise = *message.add_commands()->mutable_promise();
    promise.set_handle(9);
    promise.set_device("cpu:0");
    *promise.mutable_spec() = spec;
    EXPECT_TRUE(Send(message).ok());
    ExpectError(attacker.Get(9), Code::kInvalidArgument);

    message = attacker.Attach();
    v1::Program& program = *message.add_commands()->mutable_program();
    program.set_number(1);
    *program.add_inputs() = spec;
    ExpectError(Send(message), Code::kInvalidArgument);
  }
}

// The daemon compares names of shared tensors as they are, even if they look like paths.
TEST_F(MessagesTest, DoesNotUseNamesAsPaths) {
  const auto publish = [&](const std::string& name) {
    v1::PublishTensorRequest request;
    request.set_session(session_->id());
    request.set_handle(1);
    request.set_name(name);
    return client_->Call<v1::PublishTensorResponse>("PublishTensor", request).status();
  };
  const auto open = [&](const std::string& name) {
    v1::OpenPublishedRequest request;
    request.set_session(session_->id());
    request.set_output(2);
    request.set_name(name);
    return client_->Call<v1::Tensor>("OpenPublished", request).status();
  };
  ASSERT_TRUE(publish("../models/a").ok());
  for (const char* name : {"models/a", "./../models/a", "../models/./a", "../models//a",
                           "/etc/passwd", "../../../../etc/passwd", "/proc/self/environ"}) {
    ExpectError(open(name), Code::kNotFound);
  }
  for (const char* name : {"", "a\nb", "a\x1b[2J", "a b", "a%2fb", "a\\b"}) {
    ExpectError(publish(name), Code::kInvalidArgument);
  }
  ExpectError(session_->CreateFloats(2, {1}, "../../dev/sda"), Code::kInvalidArgument);
  ExpectError(session_->Run("../../lib/x.so", {1}, 2), Code::kNotFound);
}

// Shapes, steps and axes outside the tensor are refused at the call.
TEST_F(MessagesTest, RefusesAttributesOutsideTheTensor) {
  using Ints = std::vector<int64_t>;
  for (int64_t huge : {INT64_MAX, INT64_MIN, int64_t{1} << 40, int64_t{-1} << 40}) {
    SCOPED_TRACE(huge);
    ExpectError(session_->Run("permute", {1}, 2, {{"axes", Ints{huge}}}), Code::kInvalidArgument);
    ExpectError(session_->Run("sum", {1}, 2, {{"axes", Ints{huge}}}), Code::kInvalidArgument);
    ExpectError(session_->Run("softmax", {1}, 2, {{"axis", huge}}), Code::kInvalidArgument);
    ExpectError(session_->Run("concat", {1, 1}, 2, {{"axis", huge}}), Code::kInvalidArgument);
    ExpectError(session_->Run("reshape", {1}, 2, {{"shape", Ints{huge}}}), Code::kInvalidArgument);
    ExpectError(session_->Run("slice", {1}, 2,
                              {{"starts", Ints{0}},
                               {"stops", Ints{16}},
                               {"steps", Ints{INT64_MIN}},
                               {"axes", Ints{huge}}}),
                Code::kInvalidArgument);
    // As in Python, the bounds of a slice are clamped to the tensor.
    const auto slice =
        session_->Run("slice", {1}, 3, {{"starts", Ints{huge}}, {"stops", Ints{huge}}});
    ASSERT_TRUE(slice.ok()) << slice.status();
    EXPECT_EQ(slice->size_bytes(), 0);
    ASSERT_TRUE(session_->Delete({3}).ok());
  }
}

}  // namespace
}  // namespace tensord::attack
