// Random numbers: functions of the generator's seed and stream. They differ from PyTorch's numbers
// of the CPU and of CUDA.
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>

#include <limits>

#include "generator.h"
#include "graph.h"
#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using MaybeGenerator = std::optional<at::Generator>;

at::ScalarType RandomDType(at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? dtype : at::kFloat;
}

Value Uniform(c10::DeviceIndex device, at::IntArrayRef sizes, double low, double high,
              at::ScalarType dtype, const MaybeGenerator& generator) {
  return MakeForEachRun([=, sizes = c10::DimVector(sizes)] {
    const auto [seed, stream] = NextStream(generator, device);
    return Create("uniform", device,
                  {{"shape", at::IntArrayRef(sizes)},
                   {"seed", seed},
                   {"stream", stream},
                   {"low", low},
                   {"high", high},
                   {"dtype", RandomDType(dtype)}});
  });
}
Value RandInt(c10::DeviceIndex device, at::IntArrayRef sizes, int64_t low, int64_t high,
              const MaybeGenerator& generator) {
  return MakeForEachRun([=, sizes = c10::DimVector(sizes)] {
    const auto [seed, stream] = NextStream(generator, device);
    return Create("randint", device,
                  {{"shape", at::IntArrayRef(sizes)},
                   {"seed", seed},
                   {"stream", stream},
                   {"low", low},
                   {"high", high},
                   {"dtype", at::kLong}});
  });
}

at::Tensor& UniformInPlace(at::Tensor& self, double from, double to, MaybeGenerator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "uniform_ is not implemented for ", self.scalar_type(),
                              ": it needs a floating dtype");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "uniform_", [&] {
    TORCH_CHECK(to - from <= static_cast<double>(std::numeric_limits<scalar_t>::max()),
                "uniform_ expects to-from <= std::numeric_limits<", self.scalar_type(),
                ">::max(), but found to=", to, " and from=", from,
                " which result in to-from to exceed the limit");
  });
  if (self.numel() == 0) return self;
  if (from == to) {
    Write(self, Full(DeviceOf(self), {}, from, self.scalar_type()));
    return self;
  }
  Write(self, Uniform(DeviceOf(self), self.sizes(), from, to, self.scalar_type(), generator));
  return self;
}
at::Tensor& NormalInPlace(at::Tensor& self, double mean, double stddev, MaybeGenerator generator) {
  TORCH_CHECK(stddev >= 0, "normal expects std >= 0.0, but found std ", stddev);
  if (self.numel() == 0) return self;
  const c10::DeviceIndex device = DeviceOf(self);
  const at::ScalarType dtype = RandomDType(self.scalar_type());
  Write(self, MakeForEachRun([=, sizes = c10::DimVector(self.sizes())] {
          const auto [seed, stream] = NextStream(generator, device);
          return Create("normal", device,
                        {{"shape", at::IntArrayRef(sizes)},
                         {"seed", seed},
                         {"stream", stream},
                         {"mean", mean},
                         {"stddev", stddev},
                         {"dtype", dtype}});
        }));
  return self;
}

// The greatest number of random_() without bounds: all integers up to it can be represented.
int64_t LastOf(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return 1;
    case at::kByte:
      return 255;
    case at::kChar:
      return 127;
    case at::kShort:
      return 32767;
    case at::kInt:
      return std::numeric_limits<int32_t>::max();
    case at::kUInt16:
      return std::numeric_limits<uint16_t>::max();
    case at::kUInt32:
      return std::numeric_limits<uint32_t>::max();
    case at::kHalf:
      return 1 << 11;
    case at::kBFloat16:
      return 1 << 8;
    case at::kFloat:
      return 1 << 24;
    case at::kDouble:
      return int64_t{1} << 53;
    default:
      return std::numeric_limits<int64_t>::max() - 1;
  }
}
// Moves the bounds to the next numbers of a floating dtype that lie inside.
void FitRange(at::ScalarType dtype, int64_t* from, int64_t* to) {
  if (!at::isFloatingType(dtype)) return;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "random_", [&] {
    *from = at::native::templates::update_from<scalar_t>(*from);
    *to = at::native::templates::update_to<scalar_t>(*to);
  });
  TORCH_CHECK(*from < *to,
              "random_ expects 'from' casted to dtype to be less than 'to' casted to "
              "dtype, but got from=",
              *from, " >= to=", *to);
}
at::Tensor& RandomFrom(at::Tensor& self, int64_t from, std::optional<int64_t> to,
                       MaybeGenerator generator) {
  int64_t high = to.has_value() ? *to : LastOf(self.scalar_type()) + 1;
  TORCH_CHECK(from < high, "random_ expects 'from' to be less than 'to', but got from=", from,
              " >= to=", high);
  if (to.has_value()) FitRange(self.scalar_type(), &from, &high);
  at::native::templates::check_from_to_in_range(from, high - 1, self.dtype());
  if (self.numel() > 0) Write(self, RandInt(DeviceOf(self), self.sizes(), from, high, generator));
  return self;
}
at::Tensor& RandomTo(at::Tensor& self, int64_t to, MaybeGenerator generator) {
  return RandomFrom(self, 0, to, generator);
}
at::Tensor& Random(at::Tensor& self, MaybeGenerator generator) {
  return RandomFrom(self, 0, std::nullopt, generator);
}

at::Tensor& BernoulliFloat(at::Tensor& self, double p, MaybeGenerator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  if (self.numel() == 0) return self;
  const Value u = Uniform(DeviceOf(self), self.sizes(), 0, 1, at::kFloat, generator);
  Write(self, Push(server_op<"lt">, {u, Number(p, u)}));
  return self;
}
at::Tensor& BernoulliTensor(at::Tensor& self, const at::Tensor& p, MaybeGenerator generator) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(p.scalar_type()),
                              "\"bernoulli_\" not implemented for '", p.scalar_type(),
                              "' as the dtype of probabilities");
  if (self.numel() == 0) return self;
  const c10::DeviceIndex device = DeviceOf(self);
  const Value u = Uniform(device, self.sizes(), 0, 1, p.scalar_type(), generator);
  const Value probability = ReadAs(p, u->dtype(), device);
  Write(self, Require(Push(server_op<"lt">, {u, probability}),
                      {{AllAtLeast(probability, 0), Rule::kBernoulliProbability},
                       {AllAtMost(probability, 1), Rule::kBernoulliProbability}}));
  return self;
}
at::Tensor& BernoulliOut(const at::Tensor& self, MaybeGenerator generator, at::Tensor& out) {
  Resize(out, self.sizes());
  return BernoulliTensor(out, self, generator);
}
// Returns samples of the exponential distribution with the rate 1, none of which is 0. If a uniform
// number is 0, its sample is half of the dtype's epsilon, as for the next uniform number.
Value StandardExponential(c10::DeviceIndex device, at::IntArrayRef sizes, at::ScalarType dtype,
                          const MaybeGenerator& generator) {
  const Value u = Uniform(device, sizes, 0, 1, dtype, generator);
  const double least = dtype == at::kDouble ? std::numeric_limits<double>::epsilon() / 2
                                            : std::numeric_limits<float>::epsilon() / 2;
  const Value samples =
      Push(server_op<"neg">, {Push(server_op<"log1p">, {Push(server_op<"neg">, {u})})});
  return Push(server_op<"maximum">, {samples, Number(least, samples)});
}

at::Tensor& Exponential(at::Tensor& self, double lambda, MaybeGenerator generator) {
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  if (self.numel() == 0) return self;
  const Value samples = StandardExponential(DeviceOf(self), self.sizes(),
                                            ComputeDType(self.scalar_type()), generator);
  Write(self, Mul(samples, at::Scalar(1 / lambda)));
  return self;
}
at::Tensor& RandpermOut(int64_t n, MaybeGenerator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got ", n);
  at::native::check_supported_max_int_with_precision(n, out);
  const int64_t sizes[] = {n};
  if (out.numel() != n) Resize(out, sizes);
  if (n == 0) return out;
  const Value keys = RandInt(DeviceOf(out), sizes, 0, int64_t{1} << 62, generator);
  return WriteOut(out, PushAll("sort", In(keys), {{"axis", 0}})[1]);
}

// Returns `samples` of the probabilities `p`, whose rows have the sums `sums`. If `p` isn't valid,
// the samples have an error.
Value RequireProbabilities(const Value& samples, const Value& p, const Value& sums) {
  const Value ratio = Div(sums, sums);  // if a sum is 0 or infinite, its ratio is NaN, otherwise 1
  // If `p` breaks both rules, the samples have the error of the first one.
  return Require(samples, {{AllAtLeast(p, 0), Rule::kMultinomialNegative},
                           {AllAtLeast(ratio, 1), Rule::kMultinomialSum}});
}

at::Tensor Multinomial(const at::Tensor& self, int64_t samples, bool replacement,
                       MaybeGenerator generator) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  const c10::DeviceIndex device = DeviceOf(self);
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const Value p = Cast(Read(self), dtype);
  if (!replacement) {
    const Value waits = StandardExponential(device, self.sizes(), dtype, generator);
    const Value found = PushAll("topk", In(Div(p, waits)), {{"k", samples}, {"axis", -1}})[1];
    if (p->numel() == 0) return MakeTensor(found, device);
    return MakeTensor(RequireProbabilities(found, p, Reduce("sum", p, {-1}, false)), device);
  }
  c10::DimVector sizes(self.sizes());
  sizes.back() = samples;
  const Value sums = Push("cumsum", {p}, {{"axis", -1}});
  const Value total = Narrow(sums, self.dim() - 1, self.size(-1) - 1, self.size(-1));
  const Value u = Uniform(device, sizes, 0, 1, dtype, generator);
  const Value found = Push("searchsorted", {sums, Mul(u, total)}, {{"right", true}});
  const Value made = Push(server_op<"minimum">, {found, In(self.size(-1) - 1, at::kLong)});
  if (p->numel() == 0) return MakeTensor(made, device);
  return MakeTensor(RequireProbabilities(made, p, total), device);
}

// Returns the result of dropout and its mask.
std::pair<Value, Value> Dropout(const Value& x, double p, c10::DeviceIndex device) {
  if (C10_UNLIKELY(IsRecording())) {
    // The mask is the same as that of the op outside of a graph.
    const Value mask = MakeForEachRun([=, sizes = c10::DimVector(x->sizes()), dtype = x->dtype()] {
      const auto [seed, stream] = NextStream(std::nullopt, device);
      const Value zeros = Zeros(device, sizes, dtype);
      return PushAll("dropout", In(zeros),
                     {{"p", p}, {"seed", seed}, {"stream", stream}, {"mask", true}})[1];
    });
    const double scale = p == 1 ? 0 : 1 / (1 - p);
    return {Mul(Mul(x, Cast(mask, x->dtype())), at::Scalar(scale)), mask};
  }
  const auto [seed, stream] = NextStream(std::nullopt, device);
  const std::vector<Value> both =
      PushAll("dropout", In(x), {{"p", p}, {"seed", seed}, {"stream", stream}, {"mask", true}});
  return {both[0], both[1]};
}
std::tuple<at::Tensor, at::Tensor> NativeDropout(const at::Tensor& self, double p,
                                                 std::optional<bool> train) {
  const c10::DeviceIndex device = DeviceOf(self);
  const bool is_plain = IsRowMajor(self);
  const at::Tensor out = is_plain ? self : MakeLike(self);
  const bool moves = !is_plain && SharesMemoryOrder(out, {&self});
  const c10::DimVector order = moves ? MemoryOrder(out) : c10::DimVector();
  const Value x = Read(moves ? InMemoryOrder(self, order) : self);
  const bool drops = train.value_or(true) && self.numel() > 0;
  const auto [kept, mask] =
      drops ? Dropout(x, p, device)
            : std::pair<Value, Value>(x, Full(device, x->sizes(), true, at::kBool));
  if (C10_LIKELY(is_plain)) return {MakeTensor(kept, device), MakeTensor(mask, device)};
  const at::Tensor flags = MakeLike(out, at::kBool);
  Write(moves ? InMemoryOrder(out, order) : out, kept);
  Write(moves ? InMemoryOrder(flags, order) : flags, mask);
  return {out, flags};
}
at::Tensor NativeDropoutBackward(const at::Tensor& gradient, const at::Tensor& mask, double scale) {
  const at::Tensor out =
      MakeElementwise({&gradient, &mask}, gradient.scalar_type(), DeviceOf(gradient));
  Elementwise("native_dropout_backward", out, {&gradient, &mask}, gradient.scalar_type(),
              [&](const Inputs& in) {
                return Mul(Push(server_op<"mul">, {in[0], in[1]}), at::Scalar(scale));
              });
  return out;
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("uniform_", UniformInPlace);
  m.impl("normal_", NormalInPlace);
  m.impl("random_", Random);
  m.impl("random_.from", RandomFrom);
  m.impl("random_.to", RandomTo);
  m.impl("bernoulli_.float", BernoulliFloat);
  m.impl("bernoulli_.Tensor", BernoulliTensor);
  m.impl("bernoulli.out", BernoulliOut);
  m.impl("exponential_", Exponential);
  m.impl("randperm.generator_out", RandpermOut);
  m.impl("multinomial", Multinomial);
  m.impl("native_dropout", NativeDropout);
  m.impl("native_dropout_backward", NativeDropoutBackward);
}

}  // namespace torch_tensord
