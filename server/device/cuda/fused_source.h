// The device code of a fused elementwise kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/server/device/device.h"

namespace tensord::server::cuda {

// The source of a kernel with the name kFusedName and the parameters
//   (const I0* i0, …, Out* out, int64_t size, int64_t packs)
// The kernel computes the first `packs` * `pack_width` elements in packs of at most 16 bytes, and
// the remaining elements one by one. The source depends on the shapes only by which inputs are
// single elements.
struct FusedSource {
  std::string text;
  int pack_width = 1;        // elements of a pack
  std::vector<bool> single;  // for each input: whether it is one element for all
};

inline constexpr char kFusedName[] = "tensord_fused";

// Returns the source of a kernel for `spec`. If an op isn't elementwise or its dtype is complex, or
// an input has neither as many elements as the output nor one element, returns UNIMPLEMENTED. The
// kernel rounds each step's result to its dtype, as the op does.
absl::StatusOr<FusedSource> MakeFusedSource(const FusedSpec& spec);

}  // namespace tensord::server::cuda
