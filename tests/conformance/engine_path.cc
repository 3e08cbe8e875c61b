// The execution path that runs single ops on the engine in this process.
#include <utility>

#include "tensord/tests/conformance/engine_path.h"

namespace tensord::conformance {

const char* ExecutionPathName() { return "in_process"; }

absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath() {
  TENSORD_ASSIGN_OR_RETURN(auto devices, MakeTwoCpusAndAGpu());
  return std::make_unique<EnginePath>(std::move(devices));
}

}  // namespace tensord::conformance
