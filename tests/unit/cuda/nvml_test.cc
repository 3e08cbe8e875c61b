#include "tensord/server/device/cuda/nvml.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tensord::server::cuda {
namespace {

constexpr char kUuid[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr int64_t kGiB = int64_t{1} << 30;

class NvmlTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("FAKE_NVML_INIT");
    unsetenv("FAKE_NVML_LISTS");
  }
};

TEST_F(NvmlTest, ReportsUtilizationAndMemoryOfAllProcesses) {
  setenv("FAKE_NVML_LISTS", "SELF", 1);
  const HardwareUse use = Nvml(FAKE_NVML_PATH).Query(kUuid);
  EXPECT_EQ(use.utilization_percent, 37);
  EXPECT_EQ(use.used_bytes, 10 * kGiB);
  EXPECT_EQ(use.own_bytes, 2 * kGiB);
}

TEST_F(NvmlTest, OwnMemoryIsUnknownIfTheProcessIsNotListed) {
  const HardwareUse use = Nvml(FAKE_NVML_PATH).Query(kUuid);
  EXPECT_EQ(use.used_bytes, 10 * kGiB);
  EXPECT_EQ(use.own_bytes, std::nullopt);
}

void ExpectNoFigures(const HardwareUse& use) {
  EXPECT_EQ(use.utilization_percent, std::nullopt);
  EXPECT_EQ(use.used_bytes, std::nullopt);
  EXPECT_EQ(use.own_bytes, std::nullopt);
}

TEST_F(NvmlTest, HasNoFiguresForAnUnknownGpu) {
  ExpectNoFigures(Nvml(FAKE_NVML_PATH).Query("GPU-00000000-0000-0000-0000-000000000002"));
}

TEST_F(NvmlTest, HasNoFiguresWithoutTheLibrary) {
  ExpectNoFigures(Nvml("libtensord-missing.so.1").Query(kUuid));
}

TEST_F(NvmlTest, HasNoFiguresIfTheLibraryCannotBeInitialized) {
  setenv("FAKE_NVML_INIT", "FAIL", 1);
  ExpectNoFigures(Nvml(FAKE_NVML_PATH).Query(kUuid));
}

}  // namespace
}  // namespace tensord::server::cuda
