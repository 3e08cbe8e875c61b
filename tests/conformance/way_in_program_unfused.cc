// The way in that records programs, with a daemon that doesn't fuse ops.
#include "tensord/tests/conformance/program_way_in.h"

namespace tensord::conformance {

const char* WayInName() { return "program_unfused"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() {
  return StartDaemonFor<ProgramWayIn>({"--no-fusion"});
}

}  // namespace tensord::conformance
