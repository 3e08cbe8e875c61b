// The device code of a fused elementwise kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/server/device/device.h"

namespace tensord::server::cuda {

// A kernel by the name kFusedName, with the parameters
//   (const I0* i0, …, Out* out, int64_t size, int64_t packs)
// of which the first `packs` times `pack_width` elements are read and written 16 bytes at a time.
// The same for all shapes but for which inputs are single elements.
struct FusedSource {
  std::string text;
  int pack_width = 1;
  std::vector<bool> single;  // by input: one element for all
};

inline constexpr char kFusedName[] = "tensord_fused";

// UNIMPLEMENTED where an op isn't elementwise, or an input is neither of the output's shape nor a
// single element. Each step's result is rounded to its dtype as it is where it is stored.
absl::StatusOr<FusedSource> MakeFusedSource(const FusedSpec& spec);

}  // namespace tensord::server::cuda
