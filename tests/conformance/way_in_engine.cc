// The way in that runs single ops on the engine in this process.
#include <utility>

#include "tensord/tests/conformance/engine_way_in.h"

namespace tensord::conformance {

const char* WayInName() { return "in_process"; }

absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn() {
  TENSORD_ASSIGN_OR_RETURN(auto devices, MakeTwoCpusAndAGpu());
  return std::make_unique<EngineWayIn>(std::move(devices));
}

}  // namespace tensord::conformance
