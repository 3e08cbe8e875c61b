// Memory for small objects, and the return of unused memory to the system.
#include "tensord/server/device/slabs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/server/device/buffer_pages.h"
#include "tensord/server/device/cpu/memory_pool.h"
#include "tensord/tests/sanitized.h"

namespace tensord::server {
namespace {

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size_pages = 0, resident_pages = 0;
  in >> size_pages >> resident_pages;
  return resident_pages * 4096;
}

TEST(SlabsTest, BlocksOfAllSizesAreAlignedAndDoNotOverlap) {
  std::vector<std::pair<unsigned char*, int64_t>> blocks;
  for (int round = 0; round < 3; ++round) {
    for (int64_t size = 1; size <= Slabs::kMaxBlockBytes; size += size / 50 + 1) {
      auto* const block = static_cast<unsigned char*>(Slabs::Allocate(size));
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (size % 64 == 0 ? 64 : 32), 0u) << size;
      std::memset(block, static_cast<int>(blocks.size() % 251), size);
      blocks.emplace_back(block, size);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto [block, size] = blocks[i];
      EXPECT_EQ(block[0], i % 251);
      EXPECT_EQ(block[size - 1], i % 251);
      Slabs::Free(block);
    }
    blocks.clear();
  }
}

// One thread allocates and others free, so free blocks return from each thread.
TEST(SlabsTest, BlocksFreedByOtherThreadsAreUsedAgain) {
  constexpr int kBlocks = 1000;
  const int64_t before = ResidentBytes();
  for (int round = 0; round < 200; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(Slabs::Allocate(1000));
      std::memset(blocks.back(), 1, 1000);
    }
    std::thread([&blocks] {
      for (void* block : blocks) Slabs::Free(block);
    }).join();
  }
  if (kSanitized) return;
  EXPECT_LT(ResidentBytes() - before, 16 << 20);
}

TEST(SlabsTest, ThreadsAllocateAndFreeAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<std::pair<unsigned char*, int>> blocks;
      for (int i = 0; i < 20000; ++i) {
        const int64_t size = 1 + (i * 97 + t * 13) % 3000;
        auto* const block = static_cast<unsigned char*>(Slabs::Allocate(size));
        block[0] = block[size - 1] = static_cast<unsigned char>(i);
        blocks.emplace_back(block, i);
        if (i % 3 != 0) continue;
        const auto [freed, number] = blocks[blocks.size() / 2];
        EXPECT_EQ(freed[0], static_cast<unsigned char>(number));
        Slabs::Free(freed);
        blocks[blocks.size() / 2] = blocks.back();
        blocks.pop_back();
      }
      for (const auto& [block, number] : blocks) Slabs::Free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SlabsTest, UnusedMemoryReturnsToTheSystem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  constexpr int64_t kBytes = 128 << 20;
  Slabs::ReleaseUnused();
  Slabs::ReleaseUnused();
  const int64_t before = ResidentBytes();
  std::vector<void*> blocks;
  for (int64_t bytes = 0; bytes < kBytes; bytes += 512) {
    blocks.push_back(Slabs::Allocate(512));
    std::memset(blocks.back(), 1, 512);
  }
  EXPECT_GE(ResidentBytes() - before, kBytes);
  for (void* block : blocks) Slabs::Free(block);
  Slabs::ReleaseUnused();  // may still be needed: it was used since the last call
  Slabs::ReleaseUnused();
  EXPECT_LT(ResidentBytes() - before, kBytes / 8);
  void* const again = Slabs::Allocate(512);
  std::memset(again, 1, 512);
  Slabs::Free(again);
}

TEST(MemoryPoolTest, ReleasesWhatIsNotUsedBetweenTwoCalls) {
  constexpr int64_t kBlockBytes = 1 << 20;
  cpu::MemoryPool pool(64 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.Allocate(kBlockBytes));
  for (void* block : blocks) pool.Free(block, kBlockBytes);
  pool.ReleaseUnused();
  EXPECT_EQ(pool.idle_bytes(), 4 * kBlockBytes) << "all were used since the start";
  void* const first = pool.Allocate(kBlockBytes);
  void* const second = pool.Allocate(kBlockBytes);
  pool.Free(first, kBlockBytes);
  pool.Free(second, kBlockBytes);
  pool.ReleaseUnused();
  EXPECT_EQ(pool.idle_bytes(), 2 * kBlockBytes) << "two at a time were used";
  pool.ReleaseUnused();
  EXPECT_EQ(pool.idle_bytes(), 0);
}

// A limit of BufferPages() that ends with the test.
class PagesLimit {
 public:
  explicit PagesLimit(int64_t more_bytes) {
    Slabs::ReleaseIdle();
    BufferPages().SetLimit(BufferPages().used() + more_bytes);
  }
  ~PagesLimit() { BufferPages().SetLimit(Budget::kUnlimited); }
};

std::vector<void*> AllocateAll(cpu::MemoryPool* pool, int64_t block_bytes) {
  std::vector<void*> blocks;
  while (void* const block = pool->Allocate(block_bytes)) {
    std::memset(block, 1, block_bytes);
    blocks.push_back(block);
  }
  return blocks;
}

// Frees all but each `n`th block, and returns the rest.
std::vector<void*> FreeMost(cpu::MemoryPool* pool, int64_t block_bytes,
                            const std::vector<void*>& blocks, size_t n) {
  std::vector<void*> kept;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % n == 0) {
      kept.push_back(blocks[i]);
    } else {
      pool->Free(blocks[i], block_bytes);
    }
  }
  return kept;
}

// The process may not use more memory than BufferPages() allows, whatever blocks are freed.
TEST(BufferPagesTest, CountsFragmentedPages) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  constexpr int64_t kBytes = 64 << 20;
  cpu::MemoryPool pool(kBytes / 4);
  const PagesLimit limit(kBytes);
  const int64_t before = ResidentBytes();
  std::vector<std::pair<int64_t, std::vector<void*>>> kept;
  for (const int64_t block_bytes : {500, 900, 5000, 16000, 20000, 30000, 100000, 700000, 2200000}) {
    SCOPED_TRACE(block_bytes);
    const std::vector<void*> blocks = AllocateAll(&pool, block_bytes);
    EXPECT_LT(ResidentBytes() - before, kBytes * 9 / 8);
    kept.emplace_back(block_bytes, FreeMost(&pool, block_bytes, blocks, 5));
  }
  // All of it is usable again.
  for (const auto& [block_bytes, blocks] : kept) {
    for (void* block : blocks) pool.Free(block, block_bytes);
  }
  const std::vector<void*> blocks = AllocateAll(&pool, 1 << 20);
  EXPECT_GT(blocks.size() << 20, kBytes * 9 / 10);
  for (void* block : blocks) pool.Free(block, 1 << 20);
}

TEST(BufferPagesTest, FreedPagesBetweenBlocksAreReused) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  constexpr int64_t kBytes = 64 << 20;
  cpu::MemoryPool pool(0);
  const PagesLimit limit(kBytes);
  const std::vector<void*> kept = FreeMost(&pool, 20000, AllocateAll(&pool, 20000), 2);
  const std::vector<void*> others = AllocateAll(&pool, 30000);
  EXPECT_GT(others.size() * 30000, kBytes * 2 / 5);
  for (void* block : kept) pool.Free(block, 20000);
  for (void* block : others) pool.Free(block, 30000);
  EXPECT_EQ(BufferPages().room(), kBytes);
}

TEST(BufferPagesTest, ReusingABlockForASmallerSizeReturnsPages) {
  cpu::MemoryPool pool(64 << 20);
  Slabs::ReleaseIdle();
  const int64_t before = BufferPages().used();
  void* const whole = pool.Allocate(36 << 20);
  EXPECT_EQ(BufferPages().used() - before, 36 << 20);
  pool.Free(whole, 36 << 20);
  EXPECT_EQ(BufferPages().used() - before, 36 << 20) << "it is kept for reuse";
  void* const part = pool.Allocate(33 << 20);
  EXPECT_EQ(part, whole);
  EXPECT_EQ(BufferPages().used() - before, 34 << 20);
  pool.Free(part, 33 << 20);
  pool.ReleaseIdle();
  EXPECT_EQ(BufferPages().used() - before, 0);
}

}  // namespace
}  // namespace tensord::server
