// Makes a test fail if the emulation reports a misuse during the test. A test that provokes a
// misuse calls ExpectReports() afterwards. The build adds this file to each GoogleTest program that
// is linked with the emulation.
#include <gtest/gtest.h>

#include "tensord/tests/cuda_emulation/control.h"

namespace tensord::cuda_emulation {
namespace {

class ReportListener final : public testing::EmptyTestEventListener {
 private:
  void OnTestEnd(const testing::TestInfo& /*test*/) override {
    const int64_t reports = UnexpectedReports();
    ExpectReports();  // so that the next test doesn't fail because of them
    EXPECT_EQ(reports, 0) << "CUDA was misused; the last report: " << LastReport();
  }
};

const bool appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ReportListener);
  return true;
}();

}  // namespace
}  // namespace tensord::cuda_emulation
