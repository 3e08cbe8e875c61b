#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tensord/common/status_details.h"
#include "tensord/server/device/buffer_pages.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/cpu/memory_pool.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/sanitized.h"

namespace tensord::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Device> MakeDevice(int64_t limit_bytes) {
  return *MakeCpuDevice({DeviceKind::kCpu, 1}, limit_bytes, 1);
}

TEST(CpuMemoryTest, CountsUsedAndPeakBytes) {
  const auto device = MakeDevice(1 << 20);
  {
    const BufferRef a = *device->Allocate(1000);
    const BufferRef b = *device->Allocate(500);
    EXPECT_EQ(device->memory().used_bytes, 1500);
    EXPECT_EQ(&a->device(), device.get());
    EXPECT_EQ(a->size_bytes(), 1000);
  }
  EXPECT_EQ(device->memory().used_bytes, 0);
  EXPECT_EQ(device->memory().peak_bytes, 1500);
}

TEST(CpuMemoryTest, RefusesAllocationsBeyondTheLimit) {
  const auto device = MakeDevice(1 << 20);
  const BufferRef held = *device->Allocate(1000000);
  const auto refused = device->Allocate(50000);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("cpu:1"), HasSubstr("50000"),
                                                HasSubstr("48576"), HasSubstr("1048576")));
  EXPECT_EQ(ErrorReason(refused.status()), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(ErrorMetadataValue(refused.status(), "device"), "cpu:1");
  EXPECT_EQ(ErrorMetadataValue(refused.status(), "requested_bytes"), "50000");
  EXPECT_EQ(ErrorMetadataValue(refused.status(), "free_bytes"), "48576");
  EXPECT_EQ(ErrorMetadataValue(refused.status(), "limit_bytes"), "1048576");
  EXPECT_TRUE(refused.status().GetPayload(kRetryInfoUrl).has_value());
  EXPECT_EQ(device->memory().used_bytes, 1000000);
  EXPECT_TRUE(device->Allocate(48576).ok());
  const absl::Status never = device->Allocate(1 << 21).status();
  EXPECT_EQ(ErrorReason(never), "DEVICE_OUT_OF_MEMORY");
  EXPECT_THAT(never.message(),
              AllOf(HasSubstr("asked for 2097152 bytes, its limit is 1048576 bytes in all"),
                    Not(HasSubstr("delete tensors"))));
  EXPECT_FALSE(never.GetPayload(kRetryInfoUrl).has_value()) << "a retry can't succeed";
}

TEST(CpuMemoryTest, RefusesMoreMemoryThanTheHostHas) {
  const auto device = MakeDevice(int64_t{1} << 60);
  const auto refused = device->Allocate(int64_t{1} << 58);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("physical"));
  EXPECT_EQ(ErrorReason(refused.status()), "DEVICE_OUT_OF_MEMORY");
  EXPECT_FALSE(refused.status().GetPayload(kRetryInfoUrl).has_value());
  EXPECT_EQ(device->memory().used_bytes, 0);
}

TEST(CpuMemoryTest, AlignsEverySizeAndGivesNoMemoryForZero) {
  const auto device = MakeDevice(int64_t{1} << 30);
  for (const int64_t size : {1, 63, 64, 65, 1000, 4097, 100000, 3000000, 20000000}) {
    const BufferRef buffer = *device->Allocate(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0) << size;
    std::memset(buffer->data(), 1, size);
  }
  EXPECT_EQ((*device->Allocate(0))->data(), nullptr);
}

TEST(CpuMemoryTest, WritesAndReadsParts) {
  const auto device = MakeDevice(1 << 20);
  const BufferRef buffer = *device->Allocate(6);
  ASSERT_TRUE(device->Write(*buffer, 0, "abc", 3).ok());
  ASSERT_TRUE(device->Write(*buffer, 3, "def", 3).ok());
  char read[4] = {};
  ASSERT_TRUE(device->Read(*buffer, 2, read, 3).ok());
  EXPECT_STREQ(read, "cde");
}

TEST(CpuMemoryTest, RefusesRangesOutsideTheBuffer) {
  const auto device = MakeDevice(1 << 20);
  const BufferRef buffer = *device->Allocate(6);
  char byte = 0;
  EXPECT_EQ(device->Write(*buffer, 6, &byte, 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device->Read(*buffer, -1, &byte, 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device->Read(*buffer, 1, &byte, INT64_MAX).code(), absl::StatusCode::kOutOfRange);
}

TEST(CpuMemoryTest, CopiesBetweenDevices) {
  const auto one = MakeDevice(1 << 24), other = MakeDevice(1 << 24);
  const int64_t size = 3 << 20;
  const BufferRef src = *one->Allocate(size), dst = *other->Allocate(size);
  std::memset(src->data(), 7, size);
  ASSERT_TRUE(other->CopyFrom(*dst, *src, size).ok());
  EXPECT_EQ(std::memcmp(src->data(), dst->data(), size), 0);
}

TEST(CpuMemoryTest, BuffersMayBeFreedOnOtherThreads) {
  const auto device = MakeDevice(64 << 20);
  for (int round = 0; round < 20; ++round) {
    std::vector<BufferRef> buffers;
    for (int64_t size = 1; size < 70000; size += 997) {
      buffers.push_back(*device->Allocate(size));
      std::memset(buffers.back()->data(), round, size);
    }
    std::thread([&buffers] { buffers.clear(); }).join();
    EXPECT_EQ(device->memory().used_bytes, 0);
  }
}

TEST(CpuMemoryTest, IsSafeFromManyThreads) {
  const auto device = MakeDevice(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&device, t] {
      for (int i = 0; i < 500; ++i) {
        const auto buffer = device->Allocate(1 + (i * 97 + t) % 5000);
        ASSERT_TRUE(buffer.ok());
        std::memset((*buffer)->data(), t, (*buffer)->size_bytes());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device->memory().used_bytes, 0);
}

TEST(CpuMemoryTest, ErrorNamesFragmentation) {
  if (kSanitized) GTEST_SKIP() << "slabs are off";
  const auto device = MakeDevice(64 << 20);
  Slabs::ReleaseIdle();
  BufferPages().SetLimit(BufferPages().used() + (8 << 20));
  std::vector<BufferRef> kept;
  absl::Status full;
  for (int i = 0; full.ok(); ++i) {
    absl::StatusOr<BufferRef> buffer = device->Allocate(1000);
    full = buffer.status();
    if (full.ok()) kept.push_back(*std::move(buffer));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i % 8 != 0) kept[i] = nullptr;
  }
  ExpectError(device->Allocate(1 << 20), absl::StatusCode::kResourceExhausted,
              {"cpu:1 is out of memory: asked for 1048576 bytes",
               "small and deleted tensors have left the memory fragmented"});
  kept.clear();
  EXPECT_TRUE(device->Allocate(1 << 20).ok());
  BufferPages().SetLimit(Budget::kUnlimited);
}

TEST(MemoryPoolTest, ReusesAFreedBlockForTheNextOfItsSize) {
  cpu::MemoryPool pool(64 << 20);
  void* block = pool.Allocate(10 << 20);
  pool.Free(block, 10 << 20);
  EXPECT_GE(pool.idle_bytes(), 10 << 20);
  void* again = pool.Allocate((10 << 20) - 1000);
  EXPECT_EQ(again, block);
  EXPECT_EQ(pool.idle_bytes(), 0);
  pool.Free(again, (10 << 20) - 1000);
}

TEST(MemoryPoolTest, SmallBlocksDoNotOverlap) {
  cpu::MemoryPool pool(64 << 20);
  std::vector<std::pair<char*, int64_t>> blocks;
  for (int round = 0; round < 3; ++round) {
    for (int64_t size = 1; size <= 70000; size += size / 5 + 1) {
      auto* block = static_cast<char*>(pool.Allocate(size));
      std::memset(block, static_cast<int>(blocks.size() % 251), size);
      blocks.emplace_back(block, size);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto [block, size] = blocks[i];
      EXPECT_EQ(block[0], static_cast<char>(i % 251));
      EXPECT_EQ(block[size - 1], static_cast<char>(i % 251));
      pool.Free(block, size);
    }
    blocks.clear();
  }
}

TEST(MemoryPoolTest, LimitsIdleBytes) {
  cpu::MemoryPool pool(8 << 20);
  void* small = pool.Allocate(4 << 20);
  void* large = pool.Allocate(9 << 20);
  pool.Free(large, 9 << 20);
  EXPECT_EQ(pool.idle_bytes(), 0);
  pool.Free(small, 4 << 20);
  EXPECT_EQ(pool.idle_bytes(), 4 << 20);
  pool.ReleaseIdle();
  EXPECT_EQ(pool.idle_bytes(), 0);
}

}  // namespace
}  // namespace tensord::server
