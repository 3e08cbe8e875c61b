#include "tensord/common/device_name.h"
#include "tensord/common/gpu_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord {
namespace {

TEST(DeviceName, ParsesWhatItPrints) {
  for (const char* text :
       {"cpu:0", "cuda:1", "cuda:15", "cpu:9999", "tpu:3", "abcdefghijklmno:0"}) {
    EXPECT_EQ(ParseDeviceName(text).value().ToString(), text);
  }
}

TEST(DeviceName, KindWithoutNumberIsItsFirstDevice) {
  EXPECT_EQ(ParseDeviceName("cuda").value(), (DeviceName{DeviceKind::kCuda, 0}));
  EXPECT_EQ(ParseDeviceName("cpu").value(), (DeviceName{DeviceKind::kCpu, 0}));
}

TEST(DeviceName, RefusesOtherNamesAndShowsTheForm) {
  for (const char* text :
       {"", ":", ":0", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "CPU", "cpu:0:0",
        "cuda:1x", "cuda:99999999999999999999", "cuda0", "abcdefghijklmnop"}) {
    const absl::Status status = ParseDeviceName(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("<kind>:<number>"));
  }
  EXPECT_LT(ParseDeviceName(std::string(100000, '\xff')).status().message().size(), 500u);
}

TEST(DeviceName, MalformedNameGivesTheNameThatWasMeant) {
  const std::pair<const char*, const char*> kCases[] = {
      {"CPU", "cpu"},  {"CUDA:1", "cuda:1"}, {"cuda0", "cuda:0"}, {" cuda ", "cuda"},
      {"GPU", "cuda"}, {"gpu1", "cuda:1"},   {"Cuda1", "cuda:1"}};
  for (const auto& [text, meant] : kCases) {
    EXPECT_THAT(std::string(ParseDeviceName(text).status().message()),
                testing::HasSubstr(absl::StrCat("did you mean \"", meant, "\"?")));
  }
  for (const char* text : {"", "cuda:", "quantum computer", "x y", "CPU 0"}) {
    EXPECT_THAT(std::string(ParseDeviceName(text).status().message()),
                testing::Not(testing::HasSubstr("did you mean")));
  }
}

TEST(DeviceName, OtherNamesForGpusHaveAHint) {
  for (const char* kind : {"gpu", "mps", "rocm"}) {
    EXPECT_THAT(std::string(GpuNameHint(DeviceKind(kind))), testing::HasSubstr("cuda:0"));
  }
  for (const char* kind : {"cpu", "cuda", "tpu"}) EXPECT_EQ(GpuNameHint(DeviceKind(kind)), "");
}

}  // namespace
}  // namespace tensord
