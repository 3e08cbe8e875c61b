// Write and Read: chunks, offsets, ranges, and cleanup after cancelled calls.
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

const TensorSpec kSpec{DType::kUInt8, {10}};

class WriteReadTest : public DaemonFixture {
 protected:
  void TearDown() override {
    EXPECT_TRUE(Eventually([this] { return Used(0) == expected_bytes_; })) << Used(0);
    DaemonFixture::TearDown();
  }

  // Sends the messages and ends the call.
  absl::StatusOr<v1::Tensor> Write(const std::vector<v1::WriteRequest>& messages) {
    auto call = client_->Write();
    for (const v1::WriteRequest& message : messages) {
      if (!call->Send(message)) break;
    }
    return call->Finish();
  }

  v1::WriteRequest First(uint64_t handle, const std::string& data = "",
                         const TensorSpec& spec = kSpec, const std::string& device = "cpu:0") {
    v1::WriteRequest message = session_->FirstWrite(handle, spec, device);
    message.set_data(data);
    return message;
  }

  static v1::WriteRequest Chunk(int64_t offset, const std::string& data) {
    v1::WriteRequest message;
    message.set_offset(offset);
    message.set_data(data);
    return message;
  }

  absl::StatusOr<std::string> ReadAll(const v1::ReadRequest& request) {
    auto call = client_->Read(request);
    std::string data;
    while (const auto message = call->Next()) {
      EXPECT_EQ(message->offset(), request.offset() + static_cast<int64_t>(data.size()));
      EXPECT_EQ(message->has_spec(), data.empty());
      data += message->data();
    }
    const absl::Status status = call->Finish();
    if (!status.ok()) return status;
    return data;
  }

  int64_t expected_bytes_ = 0;
};

TEST_F(WriteReadTest, AcceptsChunksOfAnySizeInOrder) {
  ASSERT_TRUE(Write({First(1, "0123456789")}).ok());
  ASSERT_TRUE(Write({First(2), Chunk(0, "0123"), Chunk(4, ""), Chunk(4, "456789")}).ok());
  const auto made = Write({First(3, "01"), Chunk(2, "2"), Chunk(3, "3456789")});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->handle(), 3u);
  EXPECT_EQ(made->size_bytes(), 10);
  for (uint64_t handle : {1, 2, 3}) {
    EXPECT_EQ(*ReadAll(session_->ReadRequest(handle)), "0123456789");
  }
  expected_bytes_ = 30;
}

TEST_F(WriteReadTest, TransfersEmptyTensors) {
  ASSERT_TRUE(Write({First(1, "", {DType::kFloat64, {0, 3}})}).ok());
  EXPECT_EQ(*ReadAll(session_->ReadRequest(1)), "");
  auto call = client_->Read(session_->ReadRequest(1));
  const auto message = call->Next();
  ASSERT_TRUE(message.has_value()) << "an empty tensor has a message with its spec";
  EXPECT_EQ(FromProto(message->spec()), (TensorSpec{DType::kFloat64, {0, 3}}));
  EXPECT_FALSE(call->Next().has_value());
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(WriteReadTest, TransfersLargeTensorsInManyChunks) {
  const int64_t size = 5'000'001;
  std::string data(size, 0);
  for (int64_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
  std::vector<v1::WriteRequest> messages{First(1, "", {DType::kUInt8, {size}}, "cpu:1")};
  for (int64_t at = 0; at < size; at += 300'000) {
    messages.push_back(Chunk(at, data.substr(at, 300'000)));
  }
  ASSERT_TRUE(Write(messages).ok());
  EXPECT_TRUE(*ReadAll(session_->ReadRequest(1)) == data);
  v1::ReadRequest part = session_->ReadRequest(1);
  part.set_offset(1'234'567);
  part.set_limit_bytes(2'000'000);
  EXPECT_TRUE(*ReadAll(part) == data.substr(1'234'567, 2'000'000));
  part.set_limit_bytes(0);
  EXPECT_TRUE(*ReadAll(part) == data.substr(1'234'567)) << "0: to the end";
}

TEST_F(WriteReadTest, RejectsRangesOutsideTheTensor) {
  ASSERT_TRUE(Write({First(1, "0123456789")}).ok());
  expected_bytes_ = 10;
  for (const auto& [offset, limit] : {std::pair<int64_t, int64_t>(-1, 0),
                                      {11, 0},
                                      {0, 11},
                                      {5, 6},
                                      {0, -1},
                                      {INT64_MAX, 1},
                                      {1, INT64_MAX},
                                      {INT64_MIN, INT64_MIN}}) {
    v1::ReadRequest request = session_->ReadRequest(1);
    request.set_offset(offset);
    request.set_limit_bytes(limit);
    ExpectError(ReadAll(request), Code::kOutOfRange, {"10"});
  }
  v1::ReadRequest end = session_->ReadRequest(1);
  end.set_offset(10);
  EXPECT_EQ(*ReadAll(end), "");
  ExpectError(ReadAll(session_->ReadRequest(99)), Code::kNotFound, {"99"});
  v1::ReadRequest nowhere;
  ExpectError(ReadAll(nowhere), Code::kInvalidArgument, {"session"});
}

TEST_F(WriteReadTest, OnlyTheFirstMessageCarriesTheSpec) {
  ExpectError(Write({}), Code::kInvalidArgument, {"spec"});
  ExpectError(Write({Chunk(0, "0123456789")}), Code::kInvalidArgument, {"spec"});
  ExpectError(Write({First(1, "01234"), First(1, "56789")}), Code::kInvalidArgument, {"spec"});
  ExpectError(session_->Get(1), Code::kNotFound);
}

TEST_F(WriteReadTest, OffsetsAreChecked) {
  for (int64_t offset : {0, 4, 6, -1, 1000}) {
    ExpectError(Write({First(1, "01234"), Chunk(offset, "56789")}), Code::kInvalidArgument,
                {"offset", std::to_string(offset), "5"});
  }
  ExpectError(session_->Get(1), Code::kNotFound);
}

TEST_F(WriteReadTest, RejectsTooFewAndTooManyBytes) {
  ExpectError(Write({First(1, "012345678")}), Code::kInvalidArgument, {"10", "9"});
  ExpectError(Write({First(1)}), Code::kInvalidArgument, {"10", "0"});
  ExpectError(Write({First(1, "0123456789A")}), Code::kInvalidArgument, {"10", "11"});
  ExpectError(Write({First(1, "0123456789"), Chunk(10, "A")}), Code::kInvalidArgument,
              {"10", "11"});
  ExpectError(session_->Get(1), Code::kNotFound);
  ASSERT_TRUE(Write({First(1, "0123456789")}).ok()) << "the handle is free";
  expected_bytes_ = 10;
}

TEST_F(WriteReadTest, SpecsHandlesAndDevicesAreChecked) {
  ASSERT_TRUE(Write({First(1, "0123456789")}).ok());
  expected_bytes_ = 10;
  ExpectError(Write({First(1, "0123456789")}), Code::kAlreadyExists, {"1"});
  ExpectError(Write({First(0, "0123456789")}), Code::kInvalidArgument, {"0"});
  ExpectError(Write({First(2, "", {DType::kUnspecified, {1}})}), Code::kInvalidArgument, {"dtype"});
  ExpectError(Write({First(2, "", {DType::kUInt8, {-1}})}), Code::kInvalidArgument, {"-1"});
  ExpectError(Write({First(2, "", {DType::kUInt8, {int64_t{1} << 60}})}), Code::kInvalidArgument);
  ExpectError(Write({First(2, "", kSpec, "cuda:9")}), Code::kNotFound, {"cuda:9"});
  ExpectError(Write({First(2, "", kSpec, "")}), Code::kInvalidArgument);
  ExpectError(Write({First(2, "", {DType::kUInt8, {65 << 20}}, "cpu:1")}), Code::kResourceExhausted,
              {"cpu:1", "67108864"});
  v1::WriteRequest foreign = First(2, "0123456789");
  foreign.mutable_spec()->set_session(std::string(32, 'f'));
  ExpectError(Write({foreign}), Code::kNotFound, {"session"});
}

TEST_F(WriteReadTest, CancelledWriteFreesItsMemory) {
  {
    auto call = client_->Write();
    ASSERT_TRUE(call->Send(First(1, "01234", {DType::kUInt8, {1 << 20}})));
    ASSERT_TRUE(Eventually([this] { return Used(0) == 1 << 20; })) << "memory is taken up front";
    call->Cancel();
  }
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0; }));
  ExpectError(session_->Get(1), Code::kNotFound);
  ASSERT_TRUE(Write({First(1, "0123456789")}).ok());
  expected_bytes_ = 10;
}

TEST_F(WriteReadTest, WriteOfAClosedConnectionFreesItsMemory) {
  {
    RpcClient doomed(daemon_->address());
    auto call = doomed.Write();
    ASSERT_TRUE(call->Send(First(1, "01234", {DType::kUInt8, {1 << 20}})));
    ASSERT_TRUE(Eventually([this] { return Used(0) == 1 << 20; }));
    call->Cancel();
  }
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0; }));
}

TEST_F(WriteReadTest, CancelledReadsHarmNothing) {
  ASSERT_TRUE(session_->Ones(1, {8 << 20}).ok());
  for (int i = 0; i < 5; ++i) {
    auto call = client_->Read(session_->ReadRequest(1));
    ASSERT_TRUE(call->Next().has_value());
    call->Cancel();
    call->Finish().IgnoreError();
  }
  EXPECT_TRUE(session_->Get(1).ok());
  expected_bytes_ = 32 << 20;
}

TEST_F(WriteReadTest, ActiveWriteEndsWithItsSession) {
  auto call = client_->Write();
  ASSERT_TRUE(call->Send(First(1, "01234")));
  ASSERT_TRUE(Eventually([this] { return Used(0) == 10; }));
  ASSERT_TRUE(session_->Close().ok());
  call->Send(Chunk(5, "56789"));
  EXPECT_FALSE(call->Finish().ok());
}

// Uploads of a promised tensor whose connections break. Messages of one connection may arrive after
// those of the next one, and must do no harm.
class ResumedWriteTest : public WriteReadTest {
 protected:
  void SetUp() override {
    WriteReadTest::SetUp();
    v1::SessionStreamRequest message = session_->Attach();
    v1::Promise& promise = *message.add_commands()->mutable_promise();
    promise.set_handle(1);
    *promise.mutable_spec() = ToProto(kSpec);
    promise.set_device("cpu:0");
    ASSERT_TRUE(RunStream(*client_, {message}).ok());
    expected_bytes_ = 10;
  }

  v1::WriteRequest Resumed(int64_t offset, const std::string& data) {
    v1::WriteRequest message = First(1, data);
    message.mutable_spec()->set_resumable(true);
    message.set_offset(offset);
    return message;
  }
  absl::StatusOr<v1::Upload> GetUpload() {
    v1::GetUploadRequest request;
    request.set_session(session_->id());
    request.set_handle(1);
    return client_->Call<v1::Upload>("GetUpload", request);
  }
};

TEST_F(ResumedWriteTest, RefusesASecondCallDuringAnActiveOne) {
  auto late = client_->Write();
  ASSERT_TRUE(late->Send(Resumed(0, "0123")));
  ASSERT_TRUE(Eventually([&] { return Used(0) == 10; }));
  ExpectError(Write({Resumed(0, "0123456789")}), Code::kAborted, {"GetUpload"});
  ASSERT_TRUE(late->Send(Chunk(4, "456789")));
  ASSERT_TRUE(late->Finish().ok());
  EXPECT_EQ(*ReadAll(session_->ReadRequest(1)), "0123456789");
  ExpectError(Write({Resumed(4, "456789")}), Code::kAborted);  // the upload is complete
  EXPECT_TRUE(GetUpload()->done());
}

TEST_F(ResumedWriteTest, KeepsReceivedBytesAfterWrongOffsets) {
  ExpectError(Write({Resumed(0, "0123")}), Code::kAborted);
  for (const int64_t offset : {0, 3, 5}) {
    ExpectError(Write({Resumed(offset, "45")}), Code::kAborted, {"GetUpload"});
    EXPECT_EQ(GetUpload()->received_bytes(), 4);
  }
  ASSERT_TRUE(Write({Resumed(4, "456789")}).ok());
  EXPECT_EQ(*ReadAll(session_->ReadRequest(1)), "0123456789");
}

}  // namespace
}  // namespace tensord::integration
