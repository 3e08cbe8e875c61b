#include "tensord/client/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/function_name.h"
#include "tensord/client/internal/new_seed.h"
#include "tensord/client/ops.h"
#include "tensord/client/sorting.h"
#include "tensord/common/dtype.h"

namespace tensord {
namespace {

using internal::NameFunction;

// Adds the stream to the attributes, unless the numbers come from a state.
void AddStream(const RandomSource& source, Attributes* attrs) {
  if (source.state() != nullptr) return;
  attrs->Set("seed", source.stream().seed);
  attrs->Set("stream", source.stream().stream);
}

Tensor Draw(absl::string_view op, const Device& device, const Shape& shape,
            const RandomSource& source, Attributes attrs) {
  attrs.Set("shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  AddStream(source, &attrs);
  const Tensor* const state = source.state();
  if (state == nullptr) return internal::EnqueueCreation(op, device, attrs);
  if (state->ok() && !(state->device() == device)) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat(op, ": the state is on ", state->device().name(), " and not on ",
                     device.name(), "; copy it first (Tensor::To)")));
  }
  return internal::Enqueue(op, absl::MakeConstSpan(&state, 1), attrs);
}

absl::InlinedVector<const Tensor*, 2> DropoutInputs(const Tensor& x, const RandomSource& source) {
  absl::InlinedVector<const Tensor*, 2> inputs = {&x};
  if (source.state() != nullptr) inputs.push_back(source.state());
  return inputs;
}

}  // namespace

Generator::Generator() : Generator(internal::NewSeed()) {}

Tensor Generator::NextState(const Device& device) {
  const RandomStream next = Next();
  return FromVector<int64_t>(device, {next.seed, next.stream});
}

Tensor AdvanceState(const Tensor& state, int64_t count) {
  if (!state.ok()) return state;
  return Add(state, FromVector<int64_t>(state.device(), {0, count}));
}

Tensor Uniform(const Device& device, const Shape& shape, RandomSource source,
               const UniformOptions& options) {
  return Draw("uniform", device, shape, source,
              {{"low", options.low}, {"high", options.high}, {"dtype", options.dtype}});
}

Tensor Normal(const Device& device, const Shape& shape, RandomSource source,
              const NormalOptions& options) {
  return Draw("normal", device, shape, source,
              {{"mean", options.mean}, {"stddev", options.stddev}, {"dtype", options.dtype}});
}

Tensor RandInt(const Device& device, const Shape& shape, int64_t low, int64_t high,
               RandomSource source, const RandIntOptions& options) {
  return Draw("randint", device, shape, source,
              {{"low", low}, {"high", high}, {"dtype", options.dtype}});
}

Tensor Dropout(const Tensor& x, double p, RandomSource source) {
  Attributes attrs = {{"p", p}};
  AddStream(source, &attrs);
  return internal::Enqueue("dropout", DropoutInputs(x, source), attrs);
}

DropoutResult DropoutWithMask(const Tensor& x, double p, RandomSource source) {
  Attributes attrs = {{"p", p}, {"mask", true}};
  AddStream(source, &attrs);
  absl::StatusOr<internal::Tensors> outputs =
      internal::EnqueueAll("dropout", DropoutInputs(x, source), attrs, {});
  if (!outputs.ok()) return {Tensor::Failed(outputs.status()), Tensor::Failed(outputs.status())};
  return {(*outputs)[0], (*outputs)[1]};
}

namespace {

// Returns the dtype in which numbers are drawn and computed.
DType DrawnDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// Returns half of the distance between two neighbouring draws. Only the draw 0 is smaller.
double SmallestDraw(DType dtype) { return dtype == DType::kFloat64 ? 0x1p-54 : 0x1p-25; }

Tensor Invalid(absl::string_view function, absl::string_view what) {
  return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(function, ": ", what)));
}

Tensor To(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : x.To(dtype); }

// Returns weight / e for exponentially distributed e. The category with the largest value is a
// draw, and those with the `count` largest are a draw without replacement (Efraimidis and Spirakis,
// "Weighted random sampling with a reservoir", 2006).
Tensor SamplingKeys(const Tensor& weights, const Shape& shape, const RandomSource& source) {
  return Div(weights, Exponential(weights.device(), shape, source, {.dtype = weights.dtype()}));
}

Tensor DrawWithReplacement(const Tensor& weights, int64_t count, const RandomSource& source) {
  const Shape& shape = weights.shape();
  const int last = shape.rank() - 1;
  Shape one_draw, all_draws;
  for (int axis = 0; axis < last; ++axis) {
    one_draw.AppendDim(shape.dim(axis));
    all_draws.AppendDim(shape.dim(axis));
  }
  one_draw.AppendDim(1);
  all_draws.AppendDim(count);
  one_draw.AppendDim(shape.dim(last));
  all_draws.AppendDim(shape.dim(last));
  return Argmax(SamplingKeys(Reshape(weights, one_draw), all_draws, source), {.axes = {-1}});
}

Tensor DrawWithoutReplacement(const Tensor& weights, int64_t count, const RandomSource& source) {
  Tensor left = SamplingKeys(weights, weights.shape(), source);
  const Tensor categories = Arange(weights.device(), weights.shape().dim(weights.rank() - 1));
  std::vector<Tensor> drawn;
  for (int64_t i = 0; i < count; ++i) {
    drawn.push_back(Argmax(left, {.axes = {-1}, .keepdims = true}));
    if (i + 1 < count) left = Where(Eq(categories, drawn.back()), -1.0, left);
  }
  return Concat(drawn, -1);
}

}  // namespace

Tensor UniformLike(const Tensor& x, RandomSource source, UniformOptions options) {
  if (!x.ok()) return x;
  options.dtype = x.dtype();
  return NameFunction("uniform_like", {x}, Uniform(x.device(), x.shape(), source, options));
}

Tensor NormalLike(const Tensor& x, RandomSource source, NormalOptions options) {
  if (!x.ok()) return x;
  options.dtype = x.dtype();
  return NameFunction("normal_like", {x}, Normal(x.device(), x.shape(), source, options));
}

Tensor RandIntLike(const Tensor& x, int64_t low, int64_t high, RandomSource source) {
  if (!x.ok()) return x;
  return NameFunction("rand_int_like", {x},
                      RandInt(x.device(), x.shape(), low, high, source, {.dtype = x.dtype()}));
}

Tensor RandPerm(const Device& device, int64_t n, RandomSource source) {
  if (n < 0) return Invalid("rand_perm", absl::StrCat("n is ", n, " and must not be negative"));
  const Tensor draws = RandInt(device, {n}, 0, std::numeric_limits<int64_t>::max(), source);
  return NameFunction("rand_perm", {}, ArgSort(draws));
}

Tensor Bernoulli(const Tensor& p, RandomSource source) {
  if (!p.ok()) return p;
  if (!IsFloating(p.dtype())) {
    return Invalid("bernoulli",
                   absl::StrCat("the probabilities must be floating, not ", DTypeName(p.dtype())));
  }
  const DType drawn = DrawnDType(p.dtype());
  const Tensor u = Uniform(p.device(), p.shape(), source, {.dtype = drawn});
  return NameFunction("bernoulli", {p}, Lt(u, To(p, drawn)).To(p.dtype()));
}

Tensor Bernoulli(const Device& device, const Shape& shape, double p, RandomSource source) {
  if (!(p >= 0 && p <= 1)) {
    return Invalid("bernoulli", absl::StrCat("the probability is ", p, " and must be from 0 to 1"));
  }
  return NameFunction("bernoulli", {}, Lt(Uniform(device, shape, source), p));
}

Tensor Exponential(const Device& device, const Shape& shape, RandomSource source,
                   const ExponentialOptions& options) {
  if (!(options.rate > 0) || std::isinf(options.rate)) {
    return Invalid("exponential",
                   absl::StrCat("rate is ", options.rate, " and must be finite and above 0"));
  }
  const DType drawn = DrawnDType(options.dtype);
  const Tensor u =
      Uniform(device, shape, source, {.low = SmallestDraw(drawn), .high = 1, .dtype = drawn});
  const Tensor x = Log(u) * (-1 / options.rate);
  return NameFunction("exponential", {}, To(x, options.dtype));
}

Tensor TruncNormal(const Device& device, const Shape& shape, RandomSource source,
                   const TruncNormalOptions& options) {
  const auto& [mean, stddev, low, high, dtype] = options;
  if (!(low < high) || !(stddev > 0) || !std::isfinite(mean) || !std::isfinite(stddev)) {
    return Invalid("trunc_normal",
                   absl::StrCat("low ", low, " must be below high ", high, ", stddev ", stddev,
                                " above 0, and mean ", mean, " finite"));
  }
  // erfinv(u) √2 is normally distributed if u is uniform in (-1, 1).
  const auto cumulative = [&options](double bound) {
    return std::erf((bound - options.mean) / options.stddev * std::sqrt(0.5));
  };
  const DType drawn = DrawnDType(dtype);
  double first = cumulative(low);
  const double end = cumulative(high);
  // A draw of -1 would give -infinity. The next number of the dtype above -1 takes its place.
  const double above = drawn == DType::kFloat64 ? -1 + 0x1p-53 : -1 + 0x1p-24;
  if (above < end) first = std::max(first, above);
  const Tensor u = Uniform(device, shape, source, {.low = first, .high = end, .dtype = drawn});
  const Tensor x = Erfinv(u) * (stddev * std::sqrt(2.0)) + mean;
  return NameFunction("trunc_normal", {}, To(Minimum(Maximum(x, low), high), dtype));
}

Tensor Multinomial(const Tensor& weights, int64_t count, bool replacement, RandomSource source) {
  if (!weights.ok()) return weights;
  if (!IsFloating(weights.dtype()) || weights.rank() == 0) {
    return Invalid("multinomial", absl::StrCat("the weights must be floating and have an axis, and "
                                               "are ",
                                               weights.spec().ToString()));
  }
  const int64_t categories = weights.shape().dim(weights.rank() - 1);
  if (count < 1 || categories < 1 || (!replacement && count > categories)) {
    return Invalid("multinomial",
                   absl::StrCat("can't draw ", count, " of ", categories, " categories",
                                replacement ? "" : " without replacement"));
  }
  const Tensor wide = To(weights, DrawnDType(weights.dtype()));
  return NameFunction("multinomial", {weights},
                      replacement ? DrawWithReplacement(wide, count, source)
                                  : DrawWithoutReplacement(wide, count, source));
}

Tensor DropoutBackward(const Tensor& gradient, const Tensor& mask, double p) {
  const Tensor* inputs[] = {&gradient, &mask};
  return internal::Enqueue("dropout_backward", inputs, {{"p", p}});
}

}  // namespace tensord
