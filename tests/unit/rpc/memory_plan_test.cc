#include "tensord/server/memory_plan.h"

#include <gtest/gtest.h>

#include "tensord/tests/expect_error.h"
#include "tensord/tests/mib.h"

namespace tensord::server {
namespace {

constexpr int64_t kGiB = 1 << 30;

int64_t Sum(const MemoryPlan& plan) {
  return plan.devices + plan.host + plan.requests + plan.responses + plan.rings + plan.prepared +
         plan.process + plan.fragmentation;
}

TEST(MemoryPlanTest, TheSumFitsAndDevicesGetMostOfIt) {
  for (int64_t memory = kGiB; memory <= 1024 * kGiB; memory += memory / 3) {
    SCOPED_TRACE(memory / kMiB);
    Limits limits;
    const auto plan = PlanMemory(memory, &limits);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Sum(*plan) + plan->spare, memory);
    if (memory <= 20 * kGiB) EXPECT_LE(Sum(*plan), memory * 95 / 100 + 1);
    EXPECT_GE(plan->devices, memory * (memory >= 2 * kGiB ? 70 : 60) / 100);
    if (memory >= 16 * kGiB) EXPECT_GE(plan->devices, memory * 80 / 100);
    // Each caller gets at most half, and messages of the largest size fit.
    EXPECT_EQ(limits.max_host_bytes_per_principal, plan->host / 2);
    EXPECT_EQ(limits.max_response_bytes_per_principal, plan->responses / 2);
    EXPECT_GE(limits.max_request_bytes_per_principal, 2 * limits.max_message_bytes);
    EXPECT_GE(limits.max_response_bytes_per_principal, limits.max_message_bytes);
  }
}

TEST(MemoryPlanTest, FlagsReplaceDefaults) {
  Limits limits{.max_host_bytes = 100 * kMiB,
                .max_request_bytes_per_principal = 512 * kMiB,
                .max_response_bytes = 64 * kMiB};
  const MemoryPlan plan = *PlanMemory(4 * kGiB, &limits);
  EXPECT_EQ(plan.host, 100 * kMiB);
  EXPECT_EQ(plan.requests, 512 * kMiB) << "one caller's limit is part of all callers'";
  EXPECT_EQ(plan.responses, 64 * kMiB);
  EXPECT_EQ(limits.max_response_bytes_per_principal, 32 * kMiB);
  EXPECT_EQ(Sum(plan) + plan.spare, 4 * kGiB);
}

TEST(MemoryPlanTest, LargeMessagesGetRoom) {
  Limits limits{.max_message_bytes = 128 * kMiB};
  const MemoryPlan plan = *PlanMemory(4 * kGiB, &limits);
  EXPECT_EQ(limits.max_request_bytes_per_principal, 256 * kMiB);
  EXPECT_GE(limits.max_response_bytes_per_principal, 128 * kMiB);
  EXPECT_EQ(Sum(plan) + plan.spare, 4 * kGiB);
}

TEST(MemoryPlanTest, RefusesLimitsThatLeaveDevicesTooLittle) {
  Limits limits{.max_host_bytes = 3 * kGiB};
  ExpectError(PlanMemory(4 * kGiB, &limits), absl::StatusCode::kInvalidArgument,
              {"4096 MiB", "--max-host-bytes takes 3072 MiB"});
}

TEST(MemoryPlanTest, ASmallHostStillGetsADevice) {
  Limits limits;
  EXPECT_GE(PlanMemory(256 * kMiB, &limits)->devices, 64 * kMiB);
}

}  // namespace
}  // namespace tensord::server
