// What every op must give, computed a second time: plainly, element by element, in double (exactly
// for integers), sharing no code with the server or with shape inference.
//
// Results are unrounded where the dtype is floating: the caller rounds them to it. What a dtype of
// less than double loses on the way is the business of the row's error bound.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

// The op must be one that exists and the arguments ones that it accepts.
Values Reference(absl::string_view op, const Attributes& attrs, absl::Span<const Values> inputs);

// The four words of Philox4x32-10 for a counter and a key.
struct Words {
  uint32_t word[4];
};
Words ReferencePhilox(const uint32_t (&counter)[4], const uint32_t (&key)[2]);

}  // namespace tensord::conformance
