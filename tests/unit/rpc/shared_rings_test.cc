#include "tensord/server/rpc/bulk/shared_rings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/shared_mapping.h"
#include "tensord/server/device/host_memory.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

// Replaces the registration with a GPU: its destructor waits for `may_end`.
class SlowPreparation final : public HostMemory::Preparation {
 public:
  explicit SlowPreparation(Event may_end) : may_end_(std::move(may_end)) {}
  ~SlowPreparation() override { EXPECT_TRUE(may_end_.Wait()); }

 private:
  const Event may_end_;
};

class SharedRingsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(rings_.available()); }

  // Opens a ring of the session and returns it; null if there are too many.
  std::unique_ptr<SharedRings::Ring> Open(const std::string& session = "session",
                                          const PrincipalRef& principal = TestPrincipal()) {
    auto ring = rings_.OpenForFetch(session, principal);
    if (ring.ok()) return *std::move(ring);
    EXPECT_EQ(ring.status().code(), absl::StatusCode::kResourceExhausted) << ring.status();
    return nullptr;
  }

  SharedRings rings_;
};

// Otherwise a client could make the server map more memory than the limit permits.
TEST_F(SharedRingsTest, ClosedRingCountsUntilItsMemoryIsUnmapped) {
  std::unique_ptr<SharedRings::Ring> first = Open(), second = Open();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(Open(), nullptr);
  const Event may_end;
  first->region()->memory().Prepare([&] { return std::make_unique<SlowPreparation>(may_end); });
  rings_.Close(std::move(first));  // doesn't wait for may_end
  EXPECT_EQ(Open(), nullptr);
  rings_.Close(std::move(second));  // nothing to wait for
  second = Open();
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(Open(), nullptr);
  may_end.Set();
  EXPECT_TRUE(Eventually([&] { return (first = Open()) != nullptr; }));
}

TEST_F(SharedRingsTest, OnePrincipalGetsHalfOfTheRings) {
  std::vector<std::unique_ptr<SharedRings::Ring>> rings;
  const PrincipalRef alice = TestPrincipal("alice"), bob = TestPrincipal("bob");
  for (const PrincipalRef& principal : {alice, bob}) {
    for (int i = 0; i < 16; ++i) {
      rings.push_back(Open(absl::StrCat(principal->name(), i), principal));
      ASSERT_NE(rings.back(), nullptr) << principal->name() << " " << i;
    }
    EXPECT_EQ(Open("another", principal), nullptr);
  }
  EXPECT_EQ(Open("third", TestPrincipal("carol")), nullptr) << "there are 32 rings";
  rings.erase(rings.begin());
  EXPECT_EQ(Open("another", bob), nullptr);
  EXPECT_NE(Open("third", TestPrincipal("carol")), nullptr);
}

TEST_F(SharedRingsTest, AnonymousCallersMayUseAllRings) {
  PrincipalTable table;
  const PrincipalRef anonymous = table.Get(Principal::Kind::kAnonymous, "anonymous");
  std::vector<std::unique_ptr<SharedRings::Ring>> rings;
  for (int i = 0; i < 32; ++i) {
    rings.push_back(Open(absl::StrCat("session ", i), anonymous));
    ASSERT_NE(rings.back(), nullptr) << i;
  }
  EXPECT_EQ(Open("another", anonymous), nullptr);
}

// A client may keep the descriptor and the mapping of a ring after the server has ended the ring.
TEST(SharedRegionTest, KeptDescriptorHoldsNoMemoryOfAWithdrawnRegion) {
  constexpr int64_t kBytes = 1 << 20;
  constexpr blkcnt_t kBlocks = kBytes / 512;
  auto region = SharedRegion::Make(kBytes);
  ASSERT_TRUE(region.ok()) << region.status();
  std::memset((*region)->data(), 'x', kBytes);
  const int kept = dup((*region)->fd());
  auto* const data = static_cast<char*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, kept, 0));
  ASSERT_NE(data, MAP_FAILED);
  struct stat info = {};
  ASSERT_EQ(fstat(kept, &info), 0);
  EXPECT_EQ(info.st_blocks, kBlocks);
  EXPECT_NE(info.st_mode & 0777, kWithdrawnMode);
  region->reset();
  ASSERT_EQ(fstat(kept, &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_EQ(info.st_size, kBytes) << "an access to the mapping must not raise SIGBUS";
  EXPECT_EQ(info.st_mode & 0777, kWithdrawnMode);
  EXPECT_EQ(data[0], 0);
  EXPECT_EQ(data[kBytes - 1], 0);
  munmap(data, kBytes);
  close(kept);
}

}  // namespace
}  // namespace tensord::server
