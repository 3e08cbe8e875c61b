#include "tensord/server/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/bulk/shared_rings.h"

namespace tensord::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Sets a limit of all callers together and one caller's part of it, if no flag has set them.
void SetDefaults(int64_t* all, int64_t* of_principal, int64_t default_bytes) {
  if (*all == 0) *all = std::max(default_bytes, *of_principal);
  if (*of_principal == 0) *of_principal = *all / 2;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(int64_t memory, Limits* limits) {
  // A caller can always send and receive a message of the largest size.
  const int64_t min_messages = 4 * limits->max_message_bytes;
  const int64_t messages = std::clamp(memory / 32, 32 * kMiB, 384 * kMiB);
  SetDefaults(&limits->max_host_bytes, &limits->max_host_bytes_per_principal,
              std::clamp(memory / 20, 64 * kMiB, 8192 * kMiB));
  SetDefaults(&limits->max_request_bytes, &limits->max_request_bytes_per_principal,
              std::max(messages, min_messages));
  SetDefaults(&limits->max_response_bytes, &limits->max_response_bytes_per_principal,
              std::max(messages, min_messages / 2));
  limits->max_rings = std::clamp<int64_t>(memory / 32 / SharedRings::kMaxRingBytes, 2, 32);

  limits->max_prepared_bytes = std::clamp(memory / 64, 16 * kMiB, 128 * kMiB);

  MemoryPlan plan = {.memory = memory,
                     .host = limits->max_host_bytes,
                     .requests = limits->max_request_bytes,
                     .responses = limits->max_response_bytes,
                     .rings = limits->max_rings * SharedRings::kMaxRingBytes,
                     .prepared = limits->max_prepared_bytes,
                     .process = std::clamp(memory / 16, 80 * kMiB, 256 * kMiB),
                     .fragmentation = std::clamp(memory / 64, 16 * kMiB, 96 * kMiB),
                     .spare = std::min(memory / 20, 1024 * kMiB),
                     .devices = 0};
  plan.devices = memory - plan.host - plan.requests - plan.responses - plan.rings - plan.prepared -
                 plan.process - plan.fragmentation - plan.spare;
  // With 512 MiB or less, devices always get a quarter, so the sum may exceed the memory.
  plan.devices = std::max(plan.devices, std::min(memory / 4, 128 * kMiB));
  if (plan.devices >= memory / 4) return plan;
  return absl::InvalidArgumentError(absl::StrCat(
      "of the memory of ", memory >> 20,
      " MiB, less than a quarter is left for CPU devices: --max-host-bytes takes ", plan.host >> 20,
      " MiB, --max-request-bytes ", plan.requests >> 20, " MiB, --max-response-bytes ",
      plan.responses >> 20, " MiB, and other uses ",
      (plan.rings + plan.prepared + plan.process + plan.fragmentation + plan.spare) >> 20,
      " MiB (server/LIMITS.md, \"Where the memory goes\"); lower these limits, or give the daemon "
      "more memory"));
}

}  // namespace tensord::server
