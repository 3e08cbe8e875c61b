// Random configurations of the functions that compute gradients.
#pragma once

#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tensord/client/tensord.h"

namespace tensord::integration {

using Ints = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

// Draws a configuration: shapes, options and values. The sequence depends only on the seed.
class Draw {
 public:
  Draw(Device device, uint32_t seed) : device_(std::move(device)), random_(seed) {}

  const Device& device() const { return device_; }
  // Returns an integer from low to high. std::uniform_int_distribution differs among libraries.
  int64_t Number(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Flag() { return Number(0, 1) == 1; }
  Ints Numbers(int count, int64_t low, int64_t high) {
    Ints numbers(count);
    for (int64_t& number : numbers) number = Number(low, high);
    return numbers;
  }
  Shape RandomShape(int min_rank, int max_rank, int64_t max_dim) {
    const Ints dims = Numbers(static_cast<int>(Number(min_rank, max_rank)), 1, max_dim);
    return Shape(absl::MakeConstSpan(dims));
  }

  // Returns odd multiples of 1/32 between -4 and 4. So none is near a multiple of 1/16, at which a
  // function may have no derivative.
  Tensor Values(const Shape& shape) { return Grid(shape, -4, 4, 1); }
  // Returns even multiples of 1/32.
  Tensor EvenValues(const Shape& shape) { return Grid(shape, -4, 4, 0); }
  Tensor Positive(const Shape& shape) { return Grid(shape, 0, 2, 1); }
  Tensor Probabilities(const Shape& shape) { return Grid(shape, 0, 1, 1); }
  // Returns values as Values does, all of which are different.
  Tensor DistinctValues(const Shape& shape) {
    std::vector<double> values(shape.num_elements());
    for (size_t i = 0; i < values.size(); ++i) values[i] = (2.0 * static_cast<double>(i) + 1) / 32;
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[Number(0, static_cast<int64_t>(i) - 1)]);
    }
    return FromVector<double>(device_, shape, values);
  }
  Tensor Integers(const Shape& shape, int64_t low, int64_t high) {
    return FromVector<int64_t>(device_, shape,
                               Numbers(static_cast<int>(shape.num_elements()), low, high));
  }
  Tensor Bools(const Shape& shape) { return Integers(shape, 0, 3).To(DType::kBool); }

 private:
  Tensor Grid(const Shape& shape, int64_t low, int64_t high, int64_t odd) {
    std::vector<double> values(shape.num_elements());
    for (double& value : values) {
      value = static_cast<double>(2 * Number(16 * low, 16 * high - 1) + odd) / 32;
    }
    return FromVector<double>(device_, shape, values);
  }

  Device device_;
  std::mt19937 random_;
};

struct Configuration {
  Tensors operands;  // float64: the gradients of these are compared
  std::function<Tensor(const Tensors&)> forward;
  // Returns the gradients of the operands for the gradient of the result.
  std::function<Tensors(const Tensors&, const Tensor&)> backward;
};

struct Case {
  std::vector<const char*> functions;  // the ops
  int configurations;
  Configuration (*make)(Draw&);
};

// Together these return all functions that compute gradients.
absl::Span<const Case> ActivationCases();
absl::Span<const Case> LossCases();
absl::Span<const Case> LayerCases();

}  // namespace tensord::integration
