#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tensord/common/util/byte_size.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/device_factory.h"

namespace tensord::server {
namespace {

using ::testing::HasSubstr;

TEST(ParseDevicesTest, ReadsKindsIndicesAndLimits) {
  const auto requests = ParseDevices("cpu, cpu=1GiB,cuda,cuda:3=512MiB");
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_EQ(requests->size(), 4);
  EXPECT_EQ((*requests)[0].kind, DeviceKind::kCpu);
  EXPECT_EQ((*requests)[0].limit_bytes, 0);
  EXPECT_EQ((*requests)[1].limit_bytes, int64_t{1} << 30);
  EXPECT_EQ((*requests)[2].kind, DeviceKind::kCuda);
  EXPECT_EQ((*requests)[2].physical_index, 0);
  EXPECT_EQ((*requests)[3].physical_index, 3);
  EXPECT_EQ((*requests)[3].limit_bytes, int64_t{512} << 20);
}

TEST(ParseDevicesTest, EmptyTextIsAnEmptyList) {
  EXPECT_TRUE(ParseDevices("")->empty());
  EXPECT_TRUE(ParseDevices("  ")->empty());
}

TEST(ParseDevicesTest, ReadsSizesInEveryForm) {
  const std::pair<const char*, int64_t> kSizes[] = {{"1", 1},
                                                    {"4096", 4096},
                                                    {"1e9", 1000000000},
                                                    {"1.5KiB", 1536},
                                                    {"2 GiB", int64_t{2} << 30},
                                                    {"3mb", 3000000},
                                                    {"1TB", 1000000000000},
                                                    {"16b", 16},
                                                    {"0.5gib", 1 << 29},
                                                    {"9223372036854775807", INT64_MAX}};
  for (const auto& [text, bytes] : kSizes) {
    const auto requests = ParseDevices(std::string("cpu=") + text);
    ASSERT_TRUE(requests.ok()) << text << ": " << requests.status();
    EXPECT_EQ((*requests)[0].limit_bytes, bytes) << text;
    EXPECT_EQ(*ParseByteSize(text), bytes) << text;
  }
  EXPECT_EQ(*ParseByteSize("0"), 0);
}

TEST(ParseByteSizeTest, ErrorsShowTheForm) {
  for (const char* text : {"", "-1", "8 bananas", "GiB", "1e30", "nan", "-inf",
                           "9223372036854775808", "1GiB\nroot", "0x10GiB!"}) {
    const auto bytes = ParseByteSize(text);
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(bytes.status().message(), HasSubstr("1.5GiB")) << text;
    EXPECT_THAT(bytes.status().message(), testing::Not(HasSubstr("\n"))) << text;
  }
}

TEST(ParseDevicesTest, RefusesInvalidDevicesAndShowsTheForm) {
  for (const char* text :
       {"cpu0", "cpu:", "cpu:1", "cuda:-1", "cuda:x", "cpu=", "cpu=0", "cpu=-1", "cpu=1XB",
        "cpu=1e30", "cpu=nan", "cpu=GiB", "cpu,,cpu", "cpu=1=2", "cpu=9223372036854775808"}) {
    const auto requests = ParseDevices(text);
    EXPECT_EQ(requests.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(requests.status().message(), HasSubstr("cpu=2GiB")) << text;
  }
}

TEST(MakeDevicesTest, NumbersDevicesPerKindAndSharesMemoryAndThreads) {
  const auto devices = MakeDevices(*ParseDevices("cpu,cpu=64MiB,cpu"), 5);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*devices)[i]->name(), (DeviceName{DeviceKind::kCpu, i}));
    EXPECT_EQ((*devices)[i]->info().uuid, (*devices)[0]->info().uuid);
  }
  const int64_t total = CpuTotalMemory();
  EXPECT_EQ((*devices)[0]->memory().limit_bytes, (total - (64 << 20)) / 2);
  EXPECT_EQ((*devices)[1]->memory().limit_bytes, 64 << 20);
  EXPECT_EQ((*devices)[2]->memory().limit_bytes, (total - (64 << 20)) / 2);
  EXPECT_EQ((*devices)[0]->memory().total_bytes, total);
  EXPECT_EQ((*devices)[0]->info().threads, 2);
  EXPECT_EQ((*devices)[1]->info().threads, 2);
  EXPECT_EQ((*devices)[2]->info().threads, 1);
}

TEST(MakeDevicesTest, RefusesLimitsAboveTheHostsMemory) {
  const std::string total = std::to_string(CpuTotalMemory());
  EXPECT_TRUE(MakeDevices(*ParseDevices("cpu=" + total), 1).ok());
  for (const char* too_much : {"cpu=999TiB", "cpu,cpu=999TiB"}) {
    const absl::Status refused = MakeDevices(*ParseDevices(too_much), 1).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << too_much;
    EXPECT_THAT(refused.message(), HasSubstr(total));
    EXPECT_THAT(refused.message(), HasSubstr("1098412116148224"));
  }
}

TEST(MakeDevicesTest, EveryDeviceHasAtLeastOneThread) {
  const auto devices = MakeDevices(*ParseDevices("cpu,cpu,cpu"), 1);
  ASSERT_TRUE(devices.ok());
  for (const auto& device : *devices) EXPECT_EQ(device->info().threads, 1);
}

TEST(MakeDevicesTest, DescribesTheHostWithoutItsId) {
  const auto devices = MakeDevices(*ParseDevices("cpu"), 0);
  ASSERT_TRUE(devices.ok());
  const DeviceInfo& info = devices->front()->info();
  EXPECT_FALSE(info.model.empty());
  EXPECT_GE(info.threads, 1);
  EXPECT_THAT(info.uuid, ::testing::MatchesRegex("CPU-[-0-9a-f]+"));
  EXPECT_EQ((*MakeDevices(*ParseDevices("cpu"), 0))[0]->info().uuid, info.uuid);
}

TEST(MakeDevicesTest, UnknownKindErrorListsTheKinds) {
  const auto devices = MakeDevices(*ParseDevices("tpu"), 1);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(devices.status().message(), HasSubstr("\"tpu\"; the kinds are cpu, cuda"));
}

TEST(MakeDevicesTest, MissingGpuIsUnavailable) {
  const auto devices = MakeDevices(*ParseDevices("cpu,cuda:4096"), 1);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(devices.status().message(), HasSubstr("cuda:4096"));
}

TEST(MakeDevicesTest, AnEmptyListServesTheCpuAtLeast) {
  const auto devices = MakeDevices({}, 1);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->front()->name(), (DeviceName{DeviceKind::kCpu, 0}));
}

}  // namespace
}  // namespace tensord::server
