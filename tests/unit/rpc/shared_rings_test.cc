#include "tensord/server/rpc/bulk/shared_rings.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tensord/server/device/host_memory.h"
#include "tensord/tests/unit/engine/fake_device.h"

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
  std::unique_ptr<SharedRings::Ring> Open() {
    auto ring = rings_.OpenForFetch("session");
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

}  // namespace
}  // namespace tensord::server
