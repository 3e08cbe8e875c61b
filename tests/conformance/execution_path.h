// An execution path by which the conformance table runs ops. Each execution path is a file that
// implements MakeExecutionPath() and ExecutionPathName(). It is linked with the table into a test
// program of its own.
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

class ExecutionPath {
 public:
  virtual ~ExecutionPath() = default;

  // Uploads the inputs to `device`, runs the op there, reads its `num_outputs` outputs, and
  // releases all tensors. Returns the errors that a user would get.
  virtual absl::StatusOr<std::vector<HostTensor>> Run(absl::string_view op, const Attributes& attrs,
                                                      absl::Span<const HostTensor> inputs,
                                                      const std::string& device,
                                                      int num_outputs) = 0;

  // Returns the names of the devices.
  virtual std::vector<std::string> devices() const = 0;

  // Returns the reason why there is no GPU among them; empty if there is one.
  virtual std::string cuda_unavailable_reason() const = 0;
};

// Returns the name of the execution path that the program links with, such as "unary".
const char* ExecutionPathName();

// Makes the execution path, with two logical CPU devices and, if there is a GPU, cuda:0.
absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath();

}  // namespace tensord::conformance
