#include "tensord/tests/simulation/plan.h"

namespace tensord::simulation {
namespace {

// Returns 0 in most worlds. In one of `worlds` worlds, returns a rate from `often` to 8 · `often`.
int64_t Rate(RandomSource* random, int64_t often, int64_t worlds) {
  return random->OneIn(worlds) ? often * (1 + random->Below(8)) : 0;
}

void LimitSomething(RandomSource* random, Plan* plan) {
  server::Limits& limits = plan->host.limits;
  ExpectedErrors& expected_errors = plan->expected_errors;
  switch (random->Below(8)) {
    case 0:
      expected_errors.session_bytes = true;
      limits.max_bytes_per_session = 64 + random->Below(4096);
      return;
    case 1:
      expected_errors.principal_bytes = true;
      limits.max_bytes_per_principal = 64 + random->Below(4096);
      return;
    case 2:
      expected_errors.session_handles = true;
      limits.max_handles_per_session = 1 + random->Below(24);
      return;
    case 3:
      expected_errors.principal_handles = true;
      limits.max_handles_per_principal = 1 + random->Below(24);
      return;
    case 4:
      expected_errors.ops_in_flight = true;
      limits.max_ops_in_flight = 1 + random->Below(4);
      return;
    case 5:
      expected_errors.upload_bytes = true;
      limits.max_upload_bytes_per_principal = 1 + random->Below(2048);
      return;
    case 6:
      expected_errors.small_devices = true;
      plan->host.device_bytes = 256 + random->Below(4096);
      return;
    default:
      limits.max_sessions_per_principal = 1 + random->Below(2);
      limits.max_sessions = 1 + random->Below(3);
      return;
  }
}

}  // namespace

Plan MakePlan(RandomSource* random) {
  Plan plan;
  plan.host.device_bytes = 16 << 20;
  plan.host.fusion = !random->OneIn(4);
  plan.principals = 1 + static_cast<int>(random->Below(2));
  plan.max_clients = 1 + static_cast<int>(random->Below(4));
  plan.actions = 5 + random->Below(60);
  plan.max_pending_commands = random->OneIn(2) ? 1 + random->Below(32) : 4096;
  plan.max_pending_bytes = random->OneIn(4) ? 64 + random->Below(1024) : 1 << 20;
  plan.eager = random->OneIn(3);
  plan.lease_seconds = 1 + random->Below(30);
  if (random->OneIn(3)) LimitSomething(random, &plan);
  if (random->OneIn(8)) LimitSomething(random, &plan);
  // A world with limits on handles has no uploads: an upload whose promise found no room for its
  // handle could find room when its bytes arrive.
  plan.uploads = random->OneIn(2) && !plan.expected_errors.session_handles &&
                 !plan.expected_errors.principal_handles &&
                 plan.host.limits.max_handles_per_principal == 0;
  plan.breaks = random->OneIn(4) ? 0 : 10 * (1 + random->Below(30));
  plan.upload_breaks = Rate(random, 10, 2);
  plan.upload_drops = Rate(random, 20, 4);
  plan.long_pauses = Rate(random, 60, 3);
  plan.failing_allocations = Rate(random, 20, 4);
  plan.expected_errors.allocations_fail = plan.failing_allocations > 0;
  plan.device_blocks = Rate(random, 4, 2);
  plan.slices = random->OneIn(2) ? 1 + random->Below(4) : 0;
  plan.restarts = Rate(random, 100, 6);
  plan.drains = Rate(random, 100, 8);
  plan.crashes = Rate(random, 60, 5);
  plan.closings = Rate(random, 60, 5);
  plan.takeovers = Rate(random, 60, 8);
  return plan;
}

}  // namespace tensord::simulation
