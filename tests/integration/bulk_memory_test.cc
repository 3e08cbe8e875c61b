// Transfers a tensor of gigabytes. The server needs little memory beyond the tensor itself.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/sanitized.h"

namespace tensord::integration {
namespace {

constexpr int64_t kChunkBytes = kMiB;
constexpr int64_t kMaxExtraBytes = 64 * kMiB;

int64_t AvailableBytes() {
  std::ifstream in("/proc/meminfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("MemAvailable:", 0) == 0) return std::atoll(line.c_str() + 13) << 10;
  }
  return 0;
}

// Returns TENSORD_BULK_BYTES if it is set. Otherwise returns 3 GiB if twice that is available, and
// 256 MiB if it isn't or in a sanitized build.
int64_t BulkBytes() {
  if (const char* given = std::getenv("TENSORD_BULK_BYTES")) return std::atoll(given);
  const int64_t whole = 3 * 1024 * kMiB;
  return !kSanitized && AvailableBytes() > 2 * whole ? whole : 256 * kMiB;
}

// Fills `chunk` with the tensor's bytes from `offset` on. Each byte depends only on its position.
void FillChunk(int64_t offset, std::string& chunk) {
  for (size_t i = 0; i < chunk.size(); i += 8) {
    const uint64_t word = (static_cast<uint64_t>(offset) + i) * 0x9E3779B97F4A7C15ull + 1;
    std::memcpy(chunk.data() + i, &word, 8);
  }
}

class BulkMemoryTest : public DaemonFixture {
 protected:
  BulkMemoryTest() : DaemonFixture({}) { flags_ = {"--devices=cpu"}; }

  void Upload(int64_t size) {
    auto call = client_->Write();
    v1::WriteRequest message = session_->FirstWrite(1, {DType::kUInt8, {size}});
    ASSERT_TRUE(call->Send(message));
    message.clear_spec();
    std::string& chunk = *message.mutable_data();
    for (int64_t at = 0; at < size; at += kChunkBytes) {
      chunk.resize(std::min(kChunkBytes, size - at));
      FillChunk(at, chunk);
      message.set_offset(at);
      ASSERT_TRUE(call->Send(message)) << "at " << at;
    }
    const auto written = call->Finish();
    ASSERT_TRUE(written.ok()) << written.status();
  }

  void Download(int64_t size) {
    auto call = client_->Read(session_->ReadRequest(1));
    int64_t at = 0;
    std::string expected;
    while (const auto message = call->Next()) {
      expected.resize(message->data().size());
      FillChunk(at, expected);
      ASSERT_EQ(message->offset(), at);
      ASSERT_TRUE(message->data() == expected) << "at " << at;
      at += static_cast<int64_t>(expected.size());
    }
    EXPECT_TRUE(call->Finish().ok());
    EXPECT_EQ(at, size);
  }
};

TEST_F(BulkMemoryTest, TransfersALargeTensorInBoundedMemory) {
  const int64_t size = BulkBytes() / kChunkBytes * kChunkBytes;
  const int64_t before = daemon_->MemoryBytes("VmRSS");
  client_->set_deadline_seconds(600);
  ASSERT_NO_FATAL_FAILURE(Upload(size));
  const int64_t up = daemon_->MemoryBytes("VmHWM") - before - size;
  ASSERT_NO_FATAL_FAILURE(Download(size));
  const int64_t down = daemon_->MemoryBytes("VmHWM") - before - size;
  std::printf(
      "bulk: %lld MiB; the server's memory above the tensor peaked at %.1f MiB going up, "
      "%.1f MiB in all\n",
      static_cast<long long>(size / kMiB), static_cast<double>(up) / kMiB,
      static_cast<double>(down) / kMiB);
  RecordProperty("extra_bytes", std::to_string(down));
  EXPECT_EQ(Used(0), size);
  ASSERT_TRUE(session_->Delete({1}).ok());
  ExpectEventuallyUsed(0, 0);
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow is counted as the server's memory";
  EXPECT_LE(down, kMaxExtraBytes);
}

}  // namespace
}  // namespace tensord::integration
