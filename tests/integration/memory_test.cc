// The daemon's own memory: when it is idle, for each small tensor, and after tensors were dropped.
#include <sys/resource.h>

#include <string>
#include <vector>

#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/sanitized.h"

namespace tensord::integration {
namespace {

class MemoryTest : public DaemonFixture {
 protected:
  MemoryTest() : DaemonFixture({"--max-host-bytes=2GiB"}) {}

  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow is counted as the daemon's memory";
    DaemonFixture::SetUp();
  }

  int64_t ResidentBytes() { return daemon_->MemoryBytes("VmRSS"); }

  // Makes `count` tensors of 64 float32 elements: 2, 3, …
  void MakeSmallTensors(int64_t count) {
    ASSERT_TRUE(session_->Ones(1, {64}).ok());
    v1::SessionStreamRequest message = session_->Attach();
    AddDefinition(&message, 1, "add", 2);
    auto stream = client_->SessionStream();
    constexpr int64_t kPerMessage = 20000;
    for (int64_t made = 0; made < count; made += kPerMessage) {
      v1::Batch& batch = *message.add_commands()->mutable_batch();
      for (int64_t i = 0; i < kPerMessage; ++i) {
        const uint64_t handle = made + i + 2;
        batch.add_words(1);
        batch.add_words(i == 0 ? handle : 1);
        batch.add_words(handle - 1);  // both inputs are tensor 1
        batch.add_words(handle - 1);
      }
      ASSERT_TRUE(stream->Send(message));
      message.Clear();
    }
    ASSERT_TRUE(session_->Get(count + 1, /*after_command=*/count + 1).ok());
    stream->HalfClose();
    while (stream->Next().has_value()) {
    }
    EXPECT_TRUE(stream->Finish().ok());
  }
};

TEST_F(MemoryTest, SmallTensorsTakeLittleAndTheirMemoryIsReturned) {
  constexpr int64_t kCount = 900000, kDataBytes = 256, kMaxOverheadBytes = 300;
  ASSERT_TRUE(session_->Ones(kCount + 10, {64}).ok());  // the first call makes threads and caches
  const int64_t before = ResidentBytes();
  ASSERT_NO_FATAL_FAILURE(MakeSmallTensors(kCount));
  const int64_t grown = ResidentBytes() - before;
  RecordProperty("bytes_beside_data", std::to_string(grown / kCount - kDataBytes));
  EXPECT_LE(grown, kCount * (kDataBytes + kMaxOverheadBytes));
  EXPECT_GE(grown, kCount * kDataBytes);

  std::vector<uint64_t> handles(kCount);
  for (int64_t i = 0; i < kCount; ++i) handles[i] = i + 2;
  ASSERT_TRUE(session_->Delete(handles).ok());
  EXPECT_TRUE(Eventually([&] { return ResidentBytes() - before < 32 * kMiB; }))
      << "of " << grown << " bytes, " << ResidentBytes() - before << " are still resident";
  EXPECT_TRUE(session_->Ones(1000000, {64}).ok());
}

TEST_F(MemoryTest, MemoryOfLargerTensorsIsReturned) {
  ASSERT_TRUE(session_->Ones(1, {64}).ok());
  const int64_t before = ResidentBytes();
  std::vector<uint64_t> handles;
  // 128 tensors of 64 KiB, and 32 each of 1 MiB and 4 MiB.
  for (uint64_t handle = 2; handle < 2 + 192; ++handle) {
    const int64_t elements = handle < 130 ? 16 << 10 : handle < 162 ? 256 << 10 : 1 << 20;
    ASSERT_TRUE(session_->Ones(handle, {elements}).ok());
    handles.push_back(handle);
  }
  EXPECT_GE(ResidentBytes() - before, 160 * kMiB);
  ASSERT_TRUE(session_->Delete(handles).ok());
  EXPECT_TRUE(Eventually([&] { return ResidentBytes() - before < 32 * kMiB; }))
      << ResidentBytes() - before << " bytes are still resident";
}

// The system may have less memory than the limit of the device, as after `ulimit -v`.
TEST_F(MemoryTest, RefusesATensorThatTheSystemHasNoMemoryFor) {
  ASSERT_TRUE(session_->Ones(1, {64}).ok());
  const auto limit = static_cast<rlim_t>(daemon_->MemoryBytes("VmSize") + 256 * kMiB);
  const rlimit address_space = {limit, limit};
  ASSERT_EQ(prlimit(daemon_->pid(), RLIMIT_AS, &address_space, nullptr), 0);
  const int64_t elements = 768 * kMiB / static_cast<int64_t>(sizeof(float));
  ASSERT_TRUE(session_->Ones(2, {64}).ok());
  absl::Status made = session_->Ones(3, {elements}).status();
  if (made.ok()) made = session_->Get(3).status();
  EXPECT_EQ(made.code(), absl::StatusCode::kResourceExhausted) << made;
  EXPECT_TRUE(session_->Ones(4, {kMiB}).ok());
  EXPECT_EQ(session_->ReadFloats(4)->size(), static_cast<size_t>(kMiB));
}

}  // namespace
}  // namespace tensord::integration
