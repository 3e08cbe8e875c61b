// The choice of the library that runs the operations of a group.
#include "tensord/server/collective/communicator_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/server/device/cpu/cpu_device.h"

namespace tensord::server {
namespace {

constexpr DeviceKind kToy("toy");

absl::StatusOr<std::unique_ptr<Communicator>> RefuseTestGroup(const CollectiveNetwork&,
                                                              Device& device, const GroupPlace&) {
  return absl::UnimplementedError(device.name().ToString() + " forms no groups");
}

class CommunicatorFactoryTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = CollectivesUnavailableReason();
    if (!missing.empty()) GTEST_SKIP() << missing;
    auto device = MakeCpuDevice({kToy, 3}, /*limit_bytes=*/1 << 20, /*threads=*/1);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Make(const CommunicatorMakers& makers) {
    const auto network = CollectiveNetwork::Find("127.0.0.1");
    if (!network.ok()) return network.status();
    return MakeCommunicator(*network, *device_,
                            {.timeout = std::chrono::seconds(10), .group_id = "group", .names = {}},
                            makers);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CommunicatorFactoryTest, UsesTheLibraryOfTheBackend) {
  const auto communicator = Make({{DeviceKind::kCpu, nullptr}, {kToy, &RefuseTestGroup}});
  EXPECT_EQ(communicator.status(), absl::UnimplementedError("toy:3 forms no groups"));
}

TEST_F(CommunicatorFactoryTest, UsesGlooIfTheBackendHasNoLibraryAndTheHostCanAccessTheMemory) {
  const auto communicator = Make({{kToy, nullptr}});
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  EXPECT_EQ((*communicator)->backend(), "gloo");
}

}  // namespace
}  // namespace tensord::server
