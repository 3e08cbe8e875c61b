// The reference implementation of all ops. It computes element by element, in double, and for
// integers exactly. It shares no code with the server's kernels or with shape inference, except the
// 16-bit types of common/float16.h.
//
// If the dtype is floating, the caller must round the result to it. The row's error bound covers
// the errors of computing in that dtype.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

// Returns the results of the op. The op must exist and accept the arguments.
std::vector<Values> Reference(absl::string_view op, const Attributes& attrs,
                              absl::Span<const Values> inputs);

struct Words {
  uint32_t word[4];
};
// Returns the four words of Philox4x32-10 for a counter and a key.
Words ReferencePhilox(const uint32_t (&counter)[4], const uint32_t (&key)[2]);

}  // namespace tensord::conformance
