// Random functions that are composed of the ops of random.h and ops.h. README.md of this folder
// lists their definitions.
//
// No function waits, errors are in the result's status, and all functions are thread-safe. A
// function that computes more than it draws computes float16 and bfloat16 in float32, and converts
// the result. Each function uses one stream.
#pragma once

#include <cstdint>

#include "tensord/client/creation.h"
#include "tensord/client/device.h"
#include "tensord/client/random.h"
#include "tensord/client/tensor.h"

namespace tensord {

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

// Returns the gradient of x for the result of DropoutWithMask(x, p, …), whose mask is `mask`.
Tensor DropoutBackward(const Tensor& gradient, const Tensor& mask, double p);

}  // namespace tensord
