// A third backend. It consists of a Backend, and no other part of the server names it.
#include "tensord/server/device/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

constexpr DeviceKind kToy("toy");

// Two physical devices of 1 MiB that compute on the host.
Backend TestBackend(int* resets) {
  Backend backend;
  backend.kind = kToy;
  backend.count = [](std::string*) { return 2; };
  backend.physical_name = [](int index) { return absl::StrCat("toy ", index); };
  backend.total_memory = [](int) { return int64_t{1} << 20; };
  backend.reserved_memory = [](int64_t total) { return total / 4; };
  backend.make = [](const DeviceOptions& options) {
    return MakeCpuDevice(options.name, options.limit_bytes, /*threads=*/1);
  };
  backend.reset = [resets](int) {
    ++*resets;
    return absl::OkStatus();
  };
  return backend;
}

class BackendTest : public testing::Test {
 protected:
  std::vector<std::unique_ptr<Device>> Make(absl::string_view devices) {
    auto made = MakeDevices(backends_, *ParseDevices(devices), /*host_threads=*/2);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : std::vector<std::unique_ptr<Device>>();
  }

  int resets_ = 0;
  const std::vector<Backend> backends_ = {CpuBackend(), TestBackend(&resets_)};
};

TEST_F(BackendTest, AllPhysicalDevicesAreMadeByDefault) {
  std::vector<std::string> names;
  for (const auto& device : Make("")) names.push_back(device->name().ToString());
  EXPECT_THAT(names, testing::ElementsAre("cpu:0", "toy:0", "toy:1"));
}

TEST_F(BackendTest, DefaultLimitsShareWhatTheBackendDoesNotReserve) {
  const auto devices = Make("toy:1,toy:1,toy=64KiB");
  ASSERT_EQ(devices.size(), 3);
  EXPECT_EQ(devices[0]->memory().limit_bytes, 384 << 10);
  EXPECT_EQ(devices[1]->memory().limit_bytes, 384 << 10);
  EXPECT_EQ(devices[2]->memory().limit_bytes, 64 << 10);
}

TEST_F(BackendTest, MissingPhysicalDeviceIsUnavailable) {
  const auto made = MakeDevices(backends_, *ParseDevices("toy:2"), 1);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(made.status().message(), testing::HasSubstr("toy:0 to toy:1"));
}

TEST_F(BackendTest, EngineComputesOnItAndCopiesFromIt) {
  Engine engine(Make("cpu,toy:1"));
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const Attributes attrs{{"shape", std::vector<int64_t>{4}}};
  ASSERT_TRUE(engine.Run(session, {"ones", {}, 1, attrs, "toy"}).ok());
  ASSERT_TRUE(engine.Run(session, {"add", std::vector<Handle>{1, 1}, 2, {}, ""}).ok());
  ASSERT_TRUE(engine.Copy(session, 2, 3, "cpu:0", /*share=*/false).ok());
  const TensorRef copy = *session->Find(3);
  for (const DeviceSlot* slot : engine.slots()) slot->executor->Drain();
  ASSERT_TRUE(copy->done());
  ASSERT_TRUE(copy->status().ok()) << copy->status();
  EXPECT_EQ(static_cast<const float*>(copy->buffer()->data())[3], 2.0f);
}

TEST_F(BackendTest, ResettableDeviceRestartsAfterAFault) {
  Engine engine(Make("toy"));
  Device& device = *engine.slots()[0]->device;
  ASSERT_NE(device.restartable(), nullptr);
  device.restartable()->MarkLostByDomain(absl::DataLossError("it broke"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (device.health().restarts == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(device.health().restarts, 1);
  EXPECT_EQ(resets_, 1);
}

TEST_F(BackendTest, ListsUnavailableKinds) {
  const std::vector<Backend> backends = {CpuBackend(),
                                         UnavailableBackend(kToy, "built without toys")};
  const auto unavailable = UnavailableKinds(backends);
  ASSERT_EQ(unavailable.size(), 1);
  EXPECT_EQ(unavailable[0].kind, kToy);
  EXPECT_EQ(unavailable[0].reason, "built without toys");
}

TEST_F(BackendTest, ErrorOfAMissingDeviceSaysWhyThereIsNone) {
  Engine engine(Make("cpu"));
  engine.SetUnavailableKinds({{kToy, "built without toys"}});
  EXPECT_EQ(engine.FindDevice("toy").status().message(),
            "this server has no device toy:0; it has cpu:0, and no toy device: built without toys");
  EXPECT_EQ(engine.FindDevice("cpu:1").status().message(),
            "this server has no device cpu:1; it has cpu:0");
}

}  // namespace
}  // namespace tensord::server
