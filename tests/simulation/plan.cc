#include "tensord/tests/simulation/plan.h"

namespace tensord::simulation {
namespace {

// Returns 0 in most worlds. In one of `worlds` worlds, returns a rate from `often` to 8 · `often`.
int64_t Rate(Dice* dice, int64_t often, int64_t worlds) {
  return dice->OneIn(worlds) ? often * (1 + dice->Below(8)) : 0;
}

void LimitSomething(Dice* dice, Plan* plan) {
  server::Limits& limits = plan->host.limits;
  Troubles& troubles = plan->troubles;
  switch (dice->Below(8)) {
    case 0:
      troubles.session_bytes = true;
      limits.max_bytes_per_session = 64 + dice->Below(4096);
      return;
    case 1:
      troubles.principal_bytes = true;
      limits.max_bytes_per_principal = 64 + dice->Below(4096);
      return;
    case 2:
      troubles.session_handles = true;
      limits.max_handles_per_session = 1 + dice->Below(24);
      return;
    case 3:
      troubles.principal_handles = true;
      limits.max_handles_per_principal = 1 + dice->Below(24);
      return;
    case 4:
      troubles.ops_in_flight = true;
      limits.max_ops_in_flight = 1 + dice->Below(4);
      return;
    case 5:
      troubles.upload_bytes = true;
      limits.max_upload_bytes_per_principal = 1 + dice->Below(2048);
      return;
    case 6:
      troubles.small_devices = true;
      plan->host.device_bytes = 256 + dice->Below(4096);
      return;
    default:
      limits.max_sessions_per_principal = 1 + dice->Below(2);
      limits.max_sessions = 1 + dice->Below(3);
      return;
  }
}

}  // namespace

Plan MakePlan(Dice* dice) {
  Plan plan;
  plan.host.device_bytes = 16 << 20;
  plan.host.fusion = !dice->OneIn(4);
  plan.principals = 1 + static_cast<int>(dice->Below(2));
  plan.max_clients = 1 + static_cast<int>(dice->Below(4));
  plan.actions = 5 + dice->Below(60);
  plan.max_pending_commands = dice->OneIn(2) ? 1 + dice->Below(32) : 4096;
  plan.max_pending_bytes = dice->OneIn(4) ? 64 + dice->Below(1024) : 1 << 20;
  plan.eager = dice->OneIn(3);
  plan.lease_seconds = 1 + dice->Below(30);
  if (dice->OneIn(3)) LimitSomething(dice, &plan);
  if (dice->OneIn(8)) LimitSomething(dice, &plan);
  // Not with limits on handles: an upload whose promise found no room for its handle could find
  // room when its bytes arrive.
  plan.uploads = dice->OneIn(2) && !plan.troubles.session_handles &&
                 !plan.troubles.principal_handles &&
                 plan.host.limits.max_handles_per_principal == 0;
  plan.breaks = dice->OneIn(4) ? 0 : 10 * (1 + dice->Below(30));
  plan.upload_breaks = Rate(dice, 10, 2);
  plan.upload_drops = Rate(dice, 20, 4);
  plan.long_pauses = Rate(dice, 60, 3);
  plan.failing_allocations = Rate(dice, 20, 4);
  plan.troubles.allocations_fail = plan.failing_allocations > 0;
  plan.holds = Rate(dice, 4, 2);
  plan.slices = dice->OneIn(2) ? 1 + dice->Below(4) : 0;
  plan.restarts = Rate(dice, 100, 6);
  plan.drains = Rate(dice, 100, 8);
  plan.deaths = Rate(dice, 60, 5);
  plan.closings = Rate(dice, 60, 5);
  plan.thefts = Rate(dice, 60, 8);
  return plan;
}

}  // namespace tensord::simulation
