// The execution path that records programs, with a daemon that fuses ops.
#include "tensord/tests/conformance/program_path.h"

namespace tensord::conformance {

const char* ExecutionPathName() { return "program"; }

absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath() {
  return StartDaemonFor<ProgramPath>();
}

}  // namespace tensord::conformance
