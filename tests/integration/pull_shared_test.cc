// Copies from server to server through shared memory: the data is right, and no memory is left.
#include <signal.h>

#include <map>

#include "tensord/tests/integration/pull_shared_fixture.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using proxy::DelayProxy;
using Code = absl::StatusCode;

TEST_F(PullSharedTest, CopiesTensorsOfAnySizeAndDtype) {
  uint64_t handle = 0;
  for (const TensorSpec& spec :
       {Bytes(kMinSharedBytes), Bytes(3 * kSlot), Bytes(3 * kSlot + 1), Bytes(37 * kMiB + 4093),
        TensorSpec{DType::kFloat32, {1031, 1033}}, TensorSpec{DType::kFloat64, {5, 1 << 20}},
        TensorSpec{DType::kBFloat16, {2 * kMiB + 3}}, TensorSpec{DType::kInt32, {7, 11, 13, 1051}},
        TensorSpec{DType::kBool, {kSlot + 5}}}) {
    ++handle;
    const std::string bytes = spec.dtype == DType::kBool ? std::string(spec.size_bytes(), '\1')
                                                         : Pattern(spec.size_bytes());
    ASSERT_NO_FATAL_FAILURE(Make(handle, spec, bytes));
    const auto pulled = b_.Pull(handle, spec, a_, Ticket(handle));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->path(), v1::COPY_PATH_SHARED_MEMORY) << spec.ToString();
    EXPECT_EQ(pulled->bytes(), spec.size_bytes());
    EXPECT_GT(pulled->transfer_nanoseconds(), 0);
    EXPECT_EQ(pulled->resumptions(), 0);
    EXPECT_TRUE(*b_.Bytes(handle) == bytes) << spec.ToString();
  }
  EXPECT_TRUE(Eventually([&] { return Regions(a_) + Regions(b_) == 0; })) << "all rings are freed";
}

TEST_F(PullSharedTest, SmallTensorsGoOverTheNetwork) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(kMinSharedBytes - 1), Pattern(kMinSharedBytes - 1)));
  const auto pulled = b_.Pull(1, Bytes(kMinSharedBytes - 1), a_, Ticket(1));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
  EXPECT_EQ(*b_.Bytes(1), Pattern(kMinSharedBytes - 1));
}

TEST_F(PullSharedTest, CanBeSwitchedOffAtEitherEnd) {
  Node off({Node::kAnyPeer}, {}, {kNoSharedMemory});
  EXPECT_THAT(off.info.boot_id(), testing::IsEmpty());
  EXPECT_THAT(off.info.features(), testing::Not(testing::Contains("shared-memory")));
  a_.Random(1, 4 * kMiB);
  off.Random(1, 4 * kMiB);
  const TensorSpec spec{DType::kFloat32, {4 * kMiB}};
  for (const auto& [source, destination] :
       {std::pair<Node*, Node*>{&a_, &off}, std::pair<Node*, Node*>{&off, &a_}}) {
    const auto pulled =
        destination->Pull(2, spec, *source, source->Ticket(1, *destination)->ticket());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
    EXPECT_EQ(*destination->Bytes(2), *source->Bytes(1));
  }
  ExpectError(off.client->CallAnyKind("/tensord.v1.TensorService/SharedMemory",
                                      [&] {
                                        v1::SharedMemoryRequest open;
                                        open.mutable_open()->set_session(off.session->id());
                                        return open.SerializeAsString();
                                      }()),
              Code::kFailedPrecondition);
}

TEST_F(PullSharedTest, ManyCopiesAtOnceSucceed) {
  constexpr int kCopies = 6;
  std::vector<std::future<absl::StatusOr<v1::PullTensorResponse>>> pulled;
  const TensorSpec spec{DType::kFloat32, {5 * kMiB}};
  for (uint64_t handle = 1; handle <= kCopies; ++handle) {
    a_.Random(handle, 5 * kMiB);
    pulled.push_back(b_.PullAsync(handle, spec, a_, Ticket(handle)));
  }
  std::map<v1::CopyPath, int> paths;
  for (auto& copy : pulled) {
    const auto outcome = copy.get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ++paths[outcome->path()];
  }
  EXPECT_GE(paths[v1::COPY_PATH_SHARED_MEMORY], 1);
  EXPECT_EQ(paths[v1::COPY_PATH_SHARED_MEMORY] + paths[v1::COPY_PATH_NETWORK], kCopies);
  for (uint64_t handle = 1; handle <= kCopies; ++handle) {
    EXPECT_TRUE(*b_.Bytes(handle) == *a_.Bytes(handle));
  }
}

TEST_F(PullSharedTest, ForwardsAnActiveUpload) {
  BeginUpload(1, Pattern(32 * kMiB + 7));
  auto pulled = b_.PullAsync(2, Bytes(32 * kMiB + 7), a_, Ticket(1));
  upload_->SendTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  ASSERT_TRUE(upload_->Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->path(), v1::COPY_PATH_SHARED_MEMORY);
  EXPECT_TRUE(*b_.Bytes(2) == upload_->bytes());
}

TEST_F(PullSharedTest, FailedUploadFailsItsCopy) {
  BeginUpload(1, Pattern(32 * kMiB));
  auto pulled = b_.PullAsync(2, Bytes(32 * kMiB), a_, Ticket(1));
  upload_->SendTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  a_.FailPromise(1, Code::kAborted, "the root of it");
  upload_->Cancel();
  const auto outcome = pulled.get();
  EXPECT_FALSE(outcome.ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*b_.client, "cpu:0") == 0; }));
}

TEST_F(PullSharedTest, ResumesOverTheNetworkAfterABrokenConnection) {
  BeginUpload(1, Pattern(48 * kMiB));
  const auto proxy = *DelayProxy::Start({.target = a_.address()});
  auto pulled = b_.PullAsync(2, Bytes(48 * kMiB), a_, Ticket(1), proxy->address());
  upload_->SendTo(36 * kMiB);
  ASSERT_TRUE(UnderWay());
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > 0; }));
  proxy->CutAll();
  EXPECT_TRUE(Eventually([&] { return Regions(a_) == 0 && Regions(b_) == 0; }));
  ASSERT_TRUE(upload_->Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GE(outcome->resumptions(), 1);
  EXPECT_EQ(outcome->bytes(), 48 * kMiB);
  EXPECT_TRUE(*b_.Bytes(2) == upload_->bytes());
}

TEST_F(PullSharedTimeoutTest, KilledSourceKeepsThePromise) {
  BeginUpload(1, Pattern(32 * kMiB));
  b_.Promise(2, Bytes(32 * kMiB));
  auto pulled = b_.PullAsync(2, Bytes(32 * kMiB), a_, Ticket(1));
  upload_->SendTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  a_.daemon->Signal(SIGKILL);
  ExpectError(pulled.get(), Code::kUnavailable, {a_.info.peer_address()});
  const auto upload = b_.Upload(2);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_FALSE(upload->done());
  EXPECT_GT(upload->received_bytes(), 0);
  EXPECT_LE(upload->received_bytes(), 20 * kMiB);
  // The test uploads the rest.
  ASSERT_TRUE(b_.UploadBytes(2, Bytes(32 * kMiB), upload_->bytes(), upload->received_bytes()).ok());
  EXPECT_TRUE(*b_.Bytes(2) == upload_->bytes());
}

TEST_F(PullSharedTest, KilledDestinationLeavesNoMemory) {
  BeginUpload(1, Pattern(32 * kMiB));
  auto pulled = b_.PullAsync(2, Bytes(32 * kMiB), a_, Ticket(1));
  upload_->SendTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  b_.daemon->Signal(SIGKILL);
  EXPECT_FALSE(pulled.get().ok());
  EXPECT_TRUE(Eventually([&] { return Regions(a_) == 0 && MemoryFiles(a_) == 0; }));
  ASSERT_TRUE(upload_->Finish().ok());
  EXPECT_TRUE(*a_.Bytes(1) == upload_->bytes());
}

TEST_F(PullSharedTest, ClosingTheSessionEndsItsPull) {
  BeginUpload(1, Pattern(32 * kMiB));
  b_.Promise(2, Bytes(32 * kMiB));
  auto pulled = b_.PullAsync(2, Bytes(32 * kMiB), a_, Ticket(1));
  upload_->SendTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  ASSERT_TRUE(b_.session->Close().ok());
  EXPECT_FALSE(pulled.get().ok());
  EXPECT_TRUE(Eventually(
      [&] { return Regions(a_) + Regions(b_) == 0 && UsedBytes(*b_.client, "cpu:0") == 0; }));
  upload_->Cancel();
}

TEST_F(PullSharedTest, DrainFinishesActivePulls) {
  BeginUpload(1, Pattern(32 * kMiB));
  auto pulled = b_.PullAsync(2, Bytes(32 * kMiB), a_, Ticket(1));
  upload_->SendTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  a_.daemon->Signal(SIGTERM);
  ASSERT_TRUE(upload_->Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(*b_.Bytes(2) == upload_->bytes());
  a_.stream.reset();
  a_.daemon->ExpectEndsCleanly();
}

}  // namespace
}  // namespace tensord::integration
