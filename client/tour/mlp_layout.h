// Finds a network and its data in safetensors files, and checks that they fit together. Pure
// functions. mlp.h runs the network.
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

// Returns the layers of a network saved from PyTorch's nn.Sequential, in the order of their
// numbers: "0.weight", "0.bias", "2.weight" …. Returns INVALID_ARGUMENT with the name of a tensor
// if its name isn't of this form, a bias has no weight, its shape or dtype isn't that of a linear
// layer, or its layer doesn't take as many features as the previous layer returns.
absl::StatusOr<std::vector<MlpLayer>> FindMlpLayers(
    const std::map<std::string, TensorSpec>& tensors);

// "64 → 128 → 64 → 10".
std::string DescribeLayers(absl::Span<const MlpLayer> layers);

struct RowRange {
  int64_t first = 0;
  int64_t last = 0;  // excluded

  int64_t size() const { return last - first; }
};

// Parses "1200:", ":100", "5:10", ":" or "7" (one row), with Python's rules: a negative number
// counts from the end, and numbers outside the range are clamped. If `text` is malformed or no row
// is left, returns a usage error.
absl::StatusOr<RowRange> ParseRows(absl::string_view text, int64_t rows);

// Returns the factor that a model's metadata gives for inputs: 1/16 if "input" is "pixel/16".
std::optional<double> ScaleFromMetadata(const std::map<std::string, std::string>& metadata);

// Returns labels of an integer dtype as numbers. If the dtype isn't an integer, or a label isn't
// from 0 to `classes` - 1, returns INVALID_ARGUMENT with the row.
absl::StatusOr<std::vector<int64_t>> DecodeLabels(const TensorSpec& spec,
                                                  absl::Span<const uint8_t> bytes, int64_t classes);

}  // namespace tensord::tour
