// Finds a network and its data in safetensors files, and checks that they fit. Pure functions;
// mlp.h computes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::tour {

// A linear layer of a multilayer perceptron: the names of its tensors, and its sizes.
struct MlpLayer {
  std::string weight;  // (out, in)
  std::string bias;    // (out); empty if there is none
  int64_t in_features = 0;
  int64_t out_features = 0;
};

// The layers of a network saved from PyTorch's nn.Sequential, first to last: "0.weight", "0.bias",
// "2.weight" …, whatever numbers the layers have. INVALID_ARGUMENT naming the tensor that doesn't
// fit: not a layer's name, a bias without a weight, a shape or a dtype that a linear layer can't
// have, a layer that takes another number of features than the one before gives.
absl::StatusOr<std::vector<MlpLayer>> FindMlpLayers(
    const std::map<std::string, TensorSpec>& tensors);

// "64 → 128 → 64 → 10".
std::string DescribeLayers(absl::Span<const MlpLayer> layers);

struct RowRange {
  int64_t first = 0;
  int64_t last = 0;  // excluded

  int64_t size() const { return last - first; }
};

// "1200:", ":100", "5:10", ":" or "7" (one row), with Python's rules: a negative number counts from
// the end, and rows outside the range are cut off. A usage error if `text` is malformed or no row
// is left.
absl::StatusOr<RowRange> ParseRows(absl::string_view text, int64_t rows);

// The factor that a model's metadata asks for: "pixel/16" under "input" is 1/16.
std::optional<double> ScaleFromMetadata(const std::map<std::string, std::string>& metadata);

// Returns labels of an integer dtype as numbers. INVALID_ARGUMENT for other dtypes, and, with the
// row, for a label below 0 or not below `classes`.
absl::StatusOr<std::vector<int64_t>> DecodeLabels(const TensorSpec& spec,
                                                  absl::Span<const uint8_t> bytes, int64_t classes);

}  // namespace tensord::tour
