// The standard health service, by its generated stub.
#include <memory>
#include <string>

#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/health_watch.h"

namespace tensord::integration {
namespace {

using Response = health_v1::HealthCheckResponse;

TEST(HealthTest, WatchReportsTheServersShutdown) {
  auto daemon = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const std::string& address = (*daemon)->address();
  auto whole = std::make_unique<Watch>(address, "");
  auto device = std::make_unique<Watch>(address, "cpu:0");
  auto unknown = std::make_unique<Watch>(address, "cuda:9");
  EXPECT_EQ(whole->Next(), Response::SERVING);
  EXPECT_EQ(device->Next(), Response::SERVING);
  EXPECT_EQ(unknown->Next(), Response::SERVICE_UNKNOWN);
  // The server ends the Watch calls itself.
  (*daemon)->Signal(SIGTERM);
  EXPECT_EQ(whole->Next(), Response::NOT_SERVING);
  EXPECT_EQ(device->Next(), Response::NOT_SERVING);
  for (auto* watch : {&whole, &device, &unknown}) {
    EXPECT_EQ((*watch)->Next(), Response::UNKNOWN);
    EXPECT_EQ((*watch)->End().error_code(), grpc::StatusCode::UNAVAILABLE);
    watch->reset();  // closes its connection
  }
  (*daemon)->ExpectEndsCleanly();
}

TEST(HealthTest, ExitsAfterCancelledWatches) {
  auto daemon = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  for (int i = 0; i < 50; ++i) {
    Watch watch((*daemon)->address(), "cpu:0");
    ASSERT_EQ(watch.Next(), Response::SERVING);
  }
  (*daemon)->ExpectTerminatesCleanly();
}

}  // namespace
}  // namespace tensord::integration
