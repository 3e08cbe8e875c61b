// All kernels of the CPU backend check the stop token of their thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>

#include "tensord/server/device/stop_token.h"
#include "tensord/tests/unit/device/large_calls.h"

namespace tensord::server {
namespace {

class StopTest : public LargeCallTest {
 protected:
  // Runs the kernel with this token.
  absl::Status LaunchWith(const StopToken& token) {
    const StopScope scope(&token);
    return Launch();
  }
};

TEST_P(StopTest, StopsAfterOnePiece) {
  ASSERT_TRUE(Launch().ok());
  const std::string expected = Result();
  constexpr int64_t kEnough = int64_t{1} << 40;
  std::atomic<int64_t> checks_left = kEnough;
  const std::atomic<bool> flag = false;
  const StopToken token = {.flags = {&flag}, .checks_left = &checks_left};
  ASSERT_TRUE(LaunchWith(token).ok());
  const int64_t checks = kEnough - checks_left;
  ASSERT_GE(checks, 3) << "the kernel does not check its token often enough";
  ASSERT_TRUE(Result() == expected) << "the token changes the result, although it stops nothing";

  // Threads share the number. With one piece, no thread can finish its range.
  checks_left = 1;
  const absl::Status status = LaunchWith(token);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  } else {
    EXPECT_TRUE(Result() != expected) << "the kernel computed everything";
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, StopTest, testing::ValuesIn(LargeCalls()),
                         [](const testing::TestParamInfo<LargeCall>& param) {
                           return param.param.name;
                         });

TEST(StopCasesTest, EveryKernelHasACase) {
  std::set<std::string> covered;
  for (const LargeCall& row : LargeCalls()) covered.insert(row.op);
  for (const OpSchema* schema : AllOps()) {
    // All elementwise ops have the same kernels. The engine writes the bytes of constants, and runs
    // other ops for compositions.
    const bool has_kernel = schema->name != "constant" && schema->formula == nullptr;
    if (schema->elementwise.has_value() || !has_kernel) continue;
    EXPECT_EQ(covered.count(schema->name), 1u) << schema->name;
  }
}

}  // namespace
}  // namespace tensord::server
