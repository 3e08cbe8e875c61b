// A way into tensord through which the conformance table is run. Each is one file that implements
// MakeWayIn(), linked with the table to a test program of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

class WayIn {
 public:
  virtual ~WayIn() = default;

  // Brings the inputs to `device`, runs the op there, reads the result, and lets go of everything.
  // The error is the one that a user would see.
  virtual absl::StatusOr<HostTensor> Run(absl::string_view op, const Attributes& attrs,
                                         absl::Span<const HostTensor> inputs,
                                         const std::string& device) = 0;

  // The devices there are.
  virtual std::vector<std::string> devices() const = 0;

  // Why there is no GPU among them; empty where there is.
  virtual std::string cuda_unavailable_reason() const = 0;
};

// "in_process", "unary" …: the name of the way in that is linked in.
const char* WayInName();

// With two logical CPU devices, and cuda:0 where there is a GPU.
absl::StatusOr<std::unique_ptr<WayIn>> MakeWayIn();

}  // namespace tensord::conformance
