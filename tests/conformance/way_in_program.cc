// Programs, run by a daemon that fuses.
#include "tensord/tests/conformance/program_way_in.h"

namespace tensord::conformance {

const char* WayInName() { return "program"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() { return StartDaemonFor<ProgramWayIn>(); }

}  // namespace tensord::conformance
