// The execution path that records programs, with a daemon that doesn't fuse ops.
#include "tensord/tests/conformance/program_path.h"

namespace tensord::conformance {

const char* ExecutionPathName() { return "program_unfused"; }

absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath() {
  return StartDaemonFor<ProgramPath>({"--no-fusion"});
}

}  // namespace tensord::conformance
