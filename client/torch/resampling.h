// Linear maps of axes: each element of the result is a weighted sum of a few elements of its line.
#pragma once

#include <vector>

#include "kernels.h"

namespace torch_tensord {

// Element i of the result is the sum over t of weight[i, t]·x[index[i, t]]. Without weights, all
// weights are 1. If index[i, t] is -1, the term is 0.
struct LinearMap {
  int64_t in = 0, out = 0, terms = 1;
  std::vector<int64_t> index = {};
  std::vector<double> weight = {};

  bool IsIdentity() const;
};

// Send numbers to a device, and don't wait.
Value UploadIntegers(const std::vector<int64_t>& numbers, at::IntArrayRef sizes,
                     c10::DeviceIndex device);
Value UploadNumbers(const std::vector<double>& numbers, at::IntArrayRef sizes, at::ScalarType dtype,
                    c10::DeviceIndex device);

// Maps the axis of a value. The dtype is floating, or the map has no weights.
Value Apply(const LinearMap& map, const Value& x, int64_t axis, c10::DeviceIndex device);
// Returns the gradient of the input of Apply from `g`, the gradient of its result.
Value ApplyTransposed(const LinearMap& map, const Value& g, int64_t axis, c10::DeviceIndex device);

// Apply map i to axis i of the last maps.size() axes. If a sum has several terms, 16-bit dtypes are
// computed in float32, and rounded once.
Value ApplyAll(c10::ArrayRef<LinearMap> maps, const at::Tensor& self);
Value ApplyAllTransposed(c10::ArrayRef<LinearMap> maps, const at::Tensor& gradient);

// Returns the map of an adaptive average pool, whose windows may differ in size.
LinearMap AdaptiveAverage(int64_t in, int64_t out);

}  // namespace torch_tensord
