// Random numbers, and dropout.
//
// Numbers depend only on a seed, a stream of that seed, and the position of the element: they are
// the same on every device and server, but not PyTorch's. No function waits; errors are in the
// result's status (tensor.h). All functions are thread-safe.
//
//   Generator generator(/*seed=*/7);
//   Tensor x = Normal(device, {64, 64}, generator);  // stream 0 of seed 7
//   Tensor y = Dropout(x, 0.1, generator);           // stream 1
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tensord/client/creation.h"
#include "tensord/client/device.h"
#include "tensord/client/status_or_vector.h"
#include "tensord/client/tensor.h"

namespace tensord {

// A sequence of numbers. Different streams of a seed are independent.
struct RandomStream {
  int64_t seed = 0;
  int64_t stream = 0;
};

// Each call of Next() returns the next stream of a seed. So the numbers of a program depend only on
// the seed and on the order of its calls. Thread-safe: no two calls return the same stream. If
// several threads use a generator, the order of their calls decides which thread gets which stream.
class Generator {
 public:
  // Begins with `next_stream`. To continue a program, store seed() and next_stream().
  explicit Generator(int64_t seed, int64_t next_stream = 0)
      : seed_(seed), next_stream_(next_stream) {}
  // Draws the seed from the system's random numbers.
  Generator();

  RandomStream Next() { return {seed_, next_stream_.fetch_add(1, std::memory_order_relaxed)}; }
  // Returns Next() as a tensor of int64[2], for the `state` of RandomSource.
  Tensor NextState(const Device& device);

  int64_t seed() const { return seed_; }
  int64_t next_stream() const { return next_stream_.load(std::memory_order_relaxed); }

 private:
  const int64_t seed_;
  std::atomic<int64_t> next_stream_;
};

// The source of a function's numbers. It holds a pointer to the tensor, so use it only as a
// function's parameter.
//
// A recorded program (program.h) calls a generator only once, so each of its runs would draw the
// same numbers. Give it a `state` as an input instead: int64[2] with seed and stream, a new one for
// each run.
class RandomSource {
 public:
  RandomSource(int64_t seed) : stream_{seed, 0} {}         // NOLINT(google-explicit-constructor)
  RandomSource(RandomStream stream) : stream_(stream) {}   // NOLINT(google-explicit-constructor)
  RandomSource(Generator& next) : stream_(next.Next()) {}  // NOLINT(google-explicit-constructor)
  RandomSource(const Tensor& state) : state_(&state) {}    // NOLINT(google-explicit-constructor)

  // Returns null if the numbers come from stream().
  const Tensor* state() const { return state_; }
  const RandomStream& stream() const { return stream_; }

 private:
  RandomStream stream_;
  const Tensor* state_ = nullptr;
};

// Returns the state of the stream that comes `count` streams later. A recorded program with several
// random functions needs a different state for each of them.
Tensor AdvanceState(const Tensor& state, int64_t count);

// These do the same as the functions of creation.h, with any source. A state must be on `device`.
Tensor Uniform(const Device& device, const Shape& shape, RandomSource source,
               const UniformOptions& options = {});
Tensor Normal(const Device& device, const Shape& shape, RandomSource source,
              const NormalOptions& options = {});

struct RandIntOptions {
  DType dtype = DType::kInt64;  // must be an integer dtype that holds low and high - 1
};
// Returns integers, uniform in [low, high).
Tensor RandInt(const Device& device, const Shape& shape, int64_t low, int64_t high,
               RandomSource source, const RandIntOptions& options = {});

// Returns x / (1 - p) for a random part of the elements and 0 for the others. The probability of a
// 0 is p, from 0 to 1. x must be floating. A NaN or infinity that isn't kept becomes 0, too. The
// gradient is Dropout of the result's gradient with the same p and stream.
Tensor Dropout(const Tensor& x, double p, RandomSource source);
// The mask is true for the elements that are kept.
struct DropoutResult {
  Tensor output;
  Tensor mask;
};
DropoutResult DropoutWithMask(const Tensor& x, double p, RandomSource source);
// Returns the gradient of x for the result of DropoutWithMask(x, p, …), whose mask is `mask`.
Tensor DropoutBackward(const Tensor& gradient, const Tensor& mask, double p);

// ---------------------------------------------------------------- functions of these ops
//
// Each uses one stream. float16 and bfloat16 are computed in float32, and the result is converted.

// These do the same as Uniform, Normal and RandInt, with the shape, dtype and device of x. The
// dtype must be floating for the first two, and an integer dtype for RandIntLike. `options.dtype`
// isn't used.
Tensor UniformLike(const Tensor& x, RandomSource source, UniformOptions options = {});
Tensor NormalLike(const Tensor& x, RandomSource source, NormalOptions options = {});
Tensor RandIntLike(const Tensor& x, int64_t low, int64_t high, RandomSource source);

// Returns a random permutation of 0, 1, …, n - 1 as int64, as torch.randperm does.
Tensor RandPerm(const Device& device, int64_t n, RandomSource source);

// Returns a tensor of the spec of p. An element is 1 with the probability that p has at its
// position, otherwise 0. p must be floating. A probability of NaN or below 0 gives 0, and one above
// 1 gives 1.
Tensor Bernoulli(const Tensor& p, RandomSource source);
// Returns bools. Each is true with probability p.
Tensor Bernoulli(const Device& device, const Shape& shape, double p, RandomSource source);

struct ExponentialOptions {
  double rate = 1;  // 1 / mean; must be above 0
  DType dtype = DType::kFloat32;
};
// Returns exponentially distributed numbers. A number is 0 only if the dtype can't represent it.
Tensor Exponential(const Device& device, const Shape& shape, RandomSource source,
                   const ExponentialOptions& options = {});

struct TruncNormalOptions {
  double mean = 0;
  double stddev = 1;  // must be above 0
  double low = -2;    // both bounds are included
  double high = 2;
  DType dtype = DType::kFloat32;
};
// Returns normally distributed numbers within [low, high], as torch.nn.init.trunc_normal_ does. In
// float32, the bounds must not both be more than five standard deviations on one side of the mean.
Tensor TruncNormal(const Device& device, const Shape& shape, RandomSource source,
                   const TruncNormalOptions& options = {});

// Draws `count` categories for each row of `weights` (…,n), as torch.multinomial does: (…,n) ->
// (…,count), int64. The probability of a category is its weight divided by the sum of the row.
// Weights must be floating, finite and at least 0. With `replacement`, draws are independent, and
// the server computes count · n numbers per row. Without `replacement`, the categories of a row
// differ. `count` is then at most n, and the server runs a few ops for each draw. If fewer than
// `count` weights are above 0, categories of weight 0 follow. torch.multinomial then reports an
// error.
Tensor Multinomial(const Tensor& weights, int64_t count, bool replacement, RandomSource source);

}  // namespace tensord
