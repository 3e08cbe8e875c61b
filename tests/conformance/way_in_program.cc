// The way in that records programs, with a daemon that fuses ops.
#include "tensord/tests/conformance/program_way_in.h"

namespace tensord::conformance {

const char* WayInName() { return "program"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() { return StartDaemonFor<ProgramWayIn>(); }

}  // namespace tensord::conformance
