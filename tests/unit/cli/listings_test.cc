#include "tensord/client/cli/listings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<DeviceInfo> Devices() {
  return {{.name = {DeviceKind::kCuda, 1},
           .model = "NVIDIA H100 80GB HBM3",
           .uuid = "GPU-8c3a91f2-4e1d",
           .compute_capability = "9.0",
           .threads = 0,
           .memory = {.total_bytes = int64_t{80} << 30,
                      .limit_bytes = int64_t{40} << 30,
                      .used_bytes = int64_t{10} << 30,
                      .peak_bytes = int64_t{20} << 30}},
          {.name = {DeviceKind::kCpu, 0},
           .model = "AMD EPYC 9654 96-Core Processor\x1b[2J",
           .uuid = "4f1d22aa",
           .compute_capability = "",
           .threads = 96,
           .memory = {.total_bytes = int64_t{24} << 30,
                      .limit_bytes = int64_t{24} << 30,
                      .used_bytes = 0,
                      .peak_bytes = 0}}};
}

TEST(DeviceTable, ShowsEverythingAtAnyWidth) {
  for (int width : {80, 120, 160}) {
    const Terminal terminal = {.width = width};
    const std::string text = DeviceTable(Devices(), terminal);
    for (const char* part :
         {"cuda:1", "NVIDIA H100", "8c3a91f2", "compute 9.0", "10.0 GiB / 40.0 GiB", "20.0 GiB",
          "80.0 GiB", "25 %", "cpu:0", "96 threads", "0 B / 24.0 GiB"}) {
      EXPECT_THAT(text, HasSubstr(part)) << "at " << width << " columns:\n" << text;
    }
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

TEST(DeviceTable, ShowsWhatOtherProcessesDoWithAGpu) {
  std::vector<DeviceInfo> devices = Devices();
  EXPECT_THAT(DeviceTable(devices, {.width = 200}), Not(HasSubstr("other processes")));
  devices[0].utilization_percent = 37;
  devices[0].others_bytes = int64_t{3} << 30;
  for (int width : {80, 120, 200}) {
    const std::string text = DeviceTable(devices, {.width = width});
    for (const char* part : {"other processes", "3.00 GiB", "utilization", "37 %"}) {
      EXPECT_THAT(text, HasSubstr(part)) << "at " << width << " columns:\n" << text;
    }
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
  const auto json = nlohmann::json::parse(DevicesJson({{.address = "h:1", .devices = devices}}));
  EXPECT_EQ(json["devices"][0]["utilization_percent"], 37);
  EXPECT_EQ(json["devices"][0]["memory_used_by_others_bytes"], int64_t{3} << 30);
  EXPECT_TRUE(json["devices"][1]["utilization_percent"].is_null());
}

TEST(DeviceTable, OneRowPerDeviceInAWideTerminal) {
  const std::string wide = DeviceTable(Devices(), {.width = 200});
  EXPECT_EQ(std::count(wide.begin(), wide.end(), '\n'), 6);
}

TEST(DeviceTable, ReplacesControlCharactersOfTheServer) {
  EXPECT_THAT(DeviceTable(Devices(), {}), Not(HasSubstr("\x1b")));
}

TEST(DeviceTable, ShowsALimitOfZero) {
  std::vector<DeviceInfo> devices = Devices();
  devices[0].memory = {};
  EXPECT_THAT(DeviceTable(devices, {}), HasSubstr("0 B / 0 B"));
}

TEST(DeviceTable, SaysWhichDeviceIsLostAndWhy) {
  std::vector<DeviceInfo> devices = Devices();
  EXPECT_THAT(DeviceTable(devices, {}), Not(HasSubstr("lost")));
  devices[0].state = DeviceState::kLost;
  devices[0].state_reason = "an illegal address\x1b[2J";
  devices[1].state = DeviceState::kServing;
  devices[1].restarts = 2;
  const std::string text = DeviceTable(devices, {.width = 120});
  EXPECT_THAT(text, HasSubstr("cuda:1 is lost: an illegal address"));
  EXPECT_THAT(text, HasSubstr("cpu:0 was reset after 2 failures"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[2J")));
  const auto json = nlohmann::json::parse(DevicesJson({{.address = "h:1", .devices = devices}}));
  EXPECT_EQ(json["devices"][0]["state"], "lost");
  EXPECT_EQ(json["devices"][1]["state"], "serving");
  EXPECT_EQ(json["devices"][1]["restarts"], 2);
}

TEST(DevicesJson, IsJsonWithSizesInBytes) {
  std::vector<DeviceInfo> devices = Devices();
  devices[0].model = "not UTF-8: \xff";
  const auto json = nlohmann::json::parse(DevicesJson(
      {{.address = "h:1", .info = {.version = "0.1.0", .host_name = "box"}, .devices = devices}}));
  ASSERT_EQ(json["servers"].size(), 1u);
  EXPECT_EQ(json["servers"][0]["server"], "h:1");
  EXPECT_EQ(json["servers"][0]["version"], "0.1.0");
  EXPECT_EQ(json["devices"][0]["server"], "h:1");
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][0]["name"], "cuda:1");
  EXPECT_EQ(json["devices"][0]["kind"], "cuda");
  EXPECT_EQ(json["devices"][0]["memory_used_bytes"], int64_t{10} << 30);
  EXPECT_EQ(json["devices"][1]["threads"], 96);
}

std::vector<ServerListing> Servers() {
  std::vector<ServerListing> servers = {
      {.name = "gpu-a", .address = "gpu-a:50051", .devices = Devices()},
      {.name = "gpu-b", .address = "gpu-b:50051"}};
  servers[0].info.version = "0.1.0";
  servers[1].status = absl::UnavailableError("no route\x1b[2J");
  return servers;
}

TEST(ClusterDeviceTable, NamesDevicesInFullAtAnyWidth) {
  const std::string wide = ClusterDeviceTable(Servers(), {.width = 160});
  EXPECT_THAT(wide, HasSubstr("gpu-a/cuda:1"));
  EXPECT_THAT(wide, HasSubstr("gpu-a/cpu:0"));
  const std::string narrow = ClusterDeviceTable(Servers(), {.width = 80});
  EXPECT_THAT(narrow, HasSubstr("gpu-a/ "));
  EXPECT_THAT(narrow, HasSubstr("cuda:1 "));
  for (absl::string_view line : absl::StrSplit(narrow, '\n')) {
    EXPECT_LE(DisplayWidth(line), 80) << line;
  }
}

TEST(ClusterDeviceTable, ListsALostServerWithItsReason) {
  for (int width : {80, 160}) {
    const std::string text = ClusterDeviceTable(Servers(), {.width = width});
    EXPECT_THAT(text, ::testing::ContainsRegex("│ gpu-b +│ lost +│")) << text;
    EXPECT_THAT(text, HasSubstr("gpu-b is lost: no route?[2J"));
    EXPECT_THAT(text, Not(HasSubstr("gpu-a is lost")));
  }
}

// Returns the keys of a JSON object. Output for one server and for several has the same keys.
template <typename Json>
std::set<std::string> Keys(const Json& json) {
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  return keys;
}

TEST(DevicesJson, HasTheSameKeysForOneServerAndForSeveral) {
  const auto json = nlohmann::json::parse(DevicesJson(Servers()));
  const auto one = nlohmann::json::parse(DevicesJson({{.address = "h:1", .devices = Devices()}}));
  EXPECT_EQ(Keys(json), Keys(one));
  EXPECT_EQ(Keys(json["servers"][1]), Keys(one["servers"][0]));
  EXPECT_EQ(Keys(json["devices"][0]), Keys(one["devices"][0]));
  ASSERT_EQ(json["servers"].size(), 2u);
  EXPECT_EQ(json["servers"][0]["name"], "gpu-a");
  EXPECT_EQ(json["servers"][0]["server"], "gpu-a:50051");
  EXPECT_EQ(json["servers"][0]["lost"], false);
  EXPECT_EQ(json["servers"][0]["version"], "0.1.0");
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][0]["name"], "gpu-a/cuda:1");
  EXPECT_EQ(json["devices"][0]["server"], "gpu-a:50051");
  EXPECT_EQ(json["servers"][1]["lost"], true);
}

std::vector<TensorInfo> Tensors() {
  return {{.handle = 7,
           .spec = {DType::kFloat32, Shape({2, 3})},
           .device = "cpu:0",
           .size_bytes = 24,
           .session_number = 3},
          {.handle = 8,
           .spec = {DType::kInt64, Shape()},
           .device = "cpu:1",
           .size_bytes = 8,
           .session_number = 3},
          {.handle = 7,
           .spec = {DType::kUInt8, Shape({1 << 20})},
           .device = "cpu:0",
           .size_bytes = 1 << 20,
           .session_number = 4}};
}

TEST(TensorTable, ShowsRowsAndTotals) {
  EXPECT_EQ(TensorTable(Tensors(), {}),
            "session  handle  dtype    shape      device      size\n"
            "      3       7  float32  [2, 3]     cpu:0       24 B\n"
            "      3       8  int64    []         cpu:1        8 B\n"
            "      4       7  uint8    [1048576]  cpu:0   1.00 MiB\n"
            "\n"
            "device  tensors  total size\n"
            "cpu:0         2    1.00 MiB\n"
            "cpu:1         1         8 B\n");
}

TEST(TensorTable, ShowsWhyATensorHasFailed) {
  const std::vector<TensorInfo> tensors = {
      {.handle = 7, .spec = {DType::kInt8, Shape({2})}, .device = "cpu:0", .size_bytes = 2},
      {.handle = 8, .status = absl::NotFoundError("no op \"rleu\"\n")}};
  EXPECT_EQ(TensorTable(tensors, {}),
            "session  handle  dtype  shape  device  size  error\n"
            "      0       7  int8   [2]    cpu:0    2 B\n"
            "      0       8  -      -      -        0 B  no op \"rleu\"?\n"
            "\n"
            "device  tensors  total size\n"
            "-             1         0 B\n"
            "cpu:0         1         2 B\n");
  const auto json = nlohmann::json::parse(TensorsJson({{.address = "h:1"}}, {tensors}));
  EXPECT_EQ(json["tensors"][0]["error_code"], "");
  EXPECT_EQ(json["tensors"][0]["error"], "");
  EXPECT_EQ(json["tensors"][1]["error_code"], "NOT_FOUND");
  EXPECT_EQ(json["tensors"][1]["error"], "no op \"rleu\"\n");
}

TEST(TensorsJson, IsJson) {
  const auto json = nlohmann::json::parse(TensorsJson({{.address = "h:1"}}, {Tensors()}));
  ASSERT_EQ(json["tensors"].size(), 3u);
  EXPECT_EQ(json["tensors"][0]["shape"], nlohmann::json({2, 3}));
  EXPECT_EQ(json["tensors"][1]["dtype"], "int64");
  EXPECT_EQ(json["tensors"][2]["session_number"], 4);
  EXPECT_EQ(json["tensors"][2]["server"], "h:1");
  const auto none = nlohmann::json::parse(TensorsJson({{.address = "h:1"}}, {{}}));
  EXPECT_EQ(none["tensors"].size(), 0u);
  EXPECT_EQ(Keys(none), Keys(json));
}

TEST(TensorsJson, SaysWhichServersAreMissing) {
  const auto json = nlohmann::json::parse(TensorsJson(Servers(), {Tensors(), {}}));
  EXPECT_EQ(json["tensors"].size(), 3u);
  EXPECT_EQ(json["tensors"][0]["server"], "gpu-a:50051");
  EXPECT_EQ(json["servers"][0]["lost"], false);
  EXPECT_EQ(json["servers"][1]["lost"], true);
}

TEST(ServerLine, ShowsHostVersionAndUptime) {
  EXPECT_EQ(ServerLine({.version = "0.1.0", .host_name = "box", .uptime = absl::Seconds(30)}),
            "box, tensord 0.1.0, up 30 s");
}

std::vector<internal::SessionInfo> Sessions() {
  return {{.number = 3,
           .principal = "cn:carol",
           .client_name = "trainer\x1b[2J",
           .age = absl::Hours(2),
           .in_use = true,
           .lease = absl::Seconds(30),
           .handles = 1234,
           .ops_in_flight = 17,
           .memory = {{"cuda:0", int64_t{3} << 30}, {"cpu:0", 512}}},
          {.number = 4,
           .principal = "(anonymous)",
           .client_name = "",
           .age = absl::Seconds(50),
           .idle = absl::Seconds(20),
           .lease = absl::Seconds(45)}};
}

TEST(SessionTable, ShowsWhatASessionHolds) {
  const std::string text = SessionTable(Sessions(), {.width = 160});
  for (const char* part : {"cn:carol", "trainer", "2 h 0 min", "in use", "30 s", "1,234", "17",
                           "cuda:0 3.00 GiB, cpu:0 512 B", "(anonymous)", "50 s", "20 s", "45 s"}) {
    EXPECT_THAT(text, HasSubstr(part)) << text;
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(SessionTable, FitsANarrowTerminal) {
  for (absl::string_view line : absl::StrSplit(SessionTable(Sessions(), {.width = 100}), '\n')) {
    EXPECT_LE(DisplayWidth(line), 100) << line;
  }
}

TEST(SessionsJson, HasUnitsInItsKeys) {
  const auto json = nlohmann::json::parse(SessionsJson({.address = "h:1"}, Sessions()));
  EXPECT_EQ(json["servers"][0]["server"], "h:1");
  ASSERT_EQ(json["sessions"].size(), 2u);
  const auto& session = json["sessions"][0];
  EXPECT_EQ(session["server"], "h:1");
  EXPECT_EQ(session["session_number"], 3);
  EXPECT_EQ(session["principal"], "cn:carol");
  EXPECT_EQ(session["age_seconds"], 7200);
  EXPECT_EQ(session["in_use"], true);
  EXPECT_EQ(session["lease_seconds"], 30);
  EXPECT_EQ(session["handles"], 1234);
  EXPECT_EQ(session["ops_in_flight"], 17);
  EXPECT_EQ(session["memory"][0]["device"], "cuda:0");
  EXPECT_EQ(session["memory"][0]["used_bytes"], int64_t{3} << 30);
  EXPECT_EQ(json["sessions"][1]["idle_seconds"], 20);
}

}  // namespace
}  // namespace tensord::cli
