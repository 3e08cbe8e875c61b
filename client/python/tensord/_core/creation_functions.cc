// The functions that make tensors: constants, ranges, random numbers.
#include "tensord/client/creation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/function.h"
#include "tensord/client/random.h"

namespace tensord::python {
namespace {

// The generator that functions use if the call names none. manual_seed() replaces it. Never
// destroyed.
Generator*& DefaultGenerator() {
  static auto* generator = new Generator;
  return generator;
}

}  // namespace

RandomSource ReadSource(const Call& call, int i) {
  if (!call.has(i)) return *DefaultGenerator();
  if (const Tensor* state = TensorOrNull(call.at(i))) return *state;
  Generator* generator = nullptr;
  if (nb::try_cast(nb::handle(call.at(i)), generator, false)) return *generator;
  return call.integer(i);
}

namespace {

Tensor ArangeOf(const Call& call) {
  const ArangeOptions options{.dtype = call.dtype(3)};
  const Device device = call.device(4);
  if (!call.has(1)) return Arange(device, 0, call.scalar(0), call.scalar(2, 1), options);
  return Arange(device, call.scalar(0), call.scalar(1), call.scalar(2, 1), options);
}

Tensor EyeOf(const Call& call) {
  return Eye(call.device(4), call.integer(0),
             {.cols = call.integer(1, -1),
              .k = call.integer(2, 0),
              .dtype = call.dtype(3, DType::kFloat32)});
}

// Returns x, on the device and with the dtype of the arguments.
Tensor AsArray(const Call& call) {
  const DType dtype = call.dtype(1, DType::kUnspecified);
  const bool may_copy = !call.has(3) || call.flag(3);
  const Tensor* const tensor = TensorOrNull(call.object(0));
  if (tensor == nullptr) {
    if (!may_copy)
      RaiseValueError(
          "asarray(): host data must be copied to the device; copy=False isn't possible");
    return FromPython(call.at(0), dtype, call.device(2),
                      ReadProgress(call.has(4) ? call.at(4) : Py_None));
  }
  Tensor result = call.has(2) ? tensor->To(call.device(2)) : *tensor;
  if (dtype != DType::kUnspecified) result = result.To(dtype);
  if (!may_copy && !result.IsSameAs(*tensor))
    RaiseValueError("asarray(): another device or dtype needs a copy");
  return result;
}

Device DeviceLike(const Call& call, int i, const Tensor& x) {
  return call.has(i) ? call.device(i) : x.device();
}

Tensor DropoutOf(const Call& call) {
  const double p = call.number(1, 0.5);
  return call.flag(2, true) ? Dropout(call.tensor(0), p, ReadSource(call, 3)) : call.tensor(0);
}

#define TENSORD_PLACE ", *, dtype: DTypeLike | None = None, device: DeviceLike | None = None"
#define TENSORD_RANDOM ", generator: Generator | Tensor | int | None = None"

const Row kRows[] = {
    {"asarray",
     "x: ArrayLike, /" TENSORD_PLACE ", copy: bool | None = None, progress: Progress = None",
     "Makes a tensor of a number, nested sequences, a NumPy array, or an object with the buffer "
     "protocol, DLPack\n"
     "or __array__. Returns a Tensor as it is, if the dtype and the device are those that it "
     "has.\n\n"
     "dtype: default: the object's own; float32 for floats and int64 for ints of Python.\n"
     "device: default: the default device; for a Tensor its own.\n"
     "copy: False: raise a ValueError instead of a copy. Tensors can't be changed by other "
     "tensors, so True copies\n"
     "only what isn't a Tensor yet.\n"
     "progress: True for a progress bar (tqdm), or a function that gets the bytes that are done "
     "and the total.",
     AsArray},
    {"tensor", "x: ArrayLike, /" TENSORD_PLACE, "The same as asarray.", AsArray},
    {"zeros",
     "*shape: int | Sequence[int], dtype: DTypeLike | None = None, device: DeviceLike | None = "
     "None",
     "A tensor of zeros, float32 by default.",
     TENSORD_RUN(Zeros(c.device(2), c.shape(0), {c.dtype(1, DType::kFloat32)}))},
    {"ones",
     "*shape: int | Sequence[int], dtype: DTypeLike | None = None, device: DeviceLike | None = "
     "None",
     "A tensor of ones, float32 by default.",
     TENSORD_RUN(Ones(c.device(2), c.shape(0), {c.dtype(1, DType::kFloat32)}))},
    {"empty",
     "*shape: int | Sequence[int], dtype: DTypeLike | None = None, device: DeviceLike | None = "
     "None",
     "A tensor of zeros: tensord doesn't have uninitialized tensors.",
     TENSORD_RUN(Zeros(c.device(2), c.shape(0), {c.dtype(1, DType::kFloat32)}))},
    {"full", "shape: int | Sequence[int], fill_value: Scalar" TENSORD_PLACE,
     "A tensor of one value. The dtype is float32, int64 or bool by default, by the value's type.",
     TENSORD_RUN(Full(c.device(3), c.shape(0), c.scalar(1), {c.dtype(2)}))},
    {"arange", "start: Scalar, /, stop: Scalar | None = None, step: Scalar = 1" TENSORD_PLACE,
     "start, start + step, … below stop. With one number, from 0 up to it.\n\n"
     "dtype: default: int64 if all three are ints, otherwise float32.",
     ArangeOf},
    {"linspace",
     "start: float, stop: float, /, num: int, *, endpoint: bool = True, dtype: DTypeLike | None = "
     "None, "
     "device: DeviceLike | None = None",
     "num values from start to stop in equal steps, float32 by default. endpoint: stop is the last "
     "value.",
     TENSORD_RUN(Linspace(c.device(5), c.number(0), c.number(1), c.integer(2),
                          {.endpoint = c.flag(3, true), .dtype = c.dtype(4, DType::kFloat32)}))},
    {"eye",
     "rows: int, cols: int | None = None, /, *, k: int = 0, dtype: DTypeLike | None = None, "
     "device: DeviceLike | None = None",
     "Ones at [i, i + k] and zeros elsewhere, float32 by default.", EyeOf},
    {"zeros_like", "x: Tensor, /" TENSORD_PLACE, "Zeros with the shape, dtype and device of x.",
     TENSORD_RUN(Zeros(DeviceLike(c, 2, c.tensor(0)), c.tensor(0).shape(),
                       {c.dtype(1, c.tensor(0).dtype())}))},
    {"ones_like", "x: Tensor, /" TENSORD_PLACE, "Ones with the shape, dtype and device of x.",
     TENSORD_RUN(Ones(DeviceLike(c, 2, c.tensor(0)), c.tensor(0).shape(),
                      {c.dtype(1, c.tensor(0).dtype())}))},
    {"empty_like", "x: Tensor, /" TENSORD_PLACE, "The same as zeros_like.",
     TENSORD_RUN(Zeros(DeviceLike(c, 2, c.tensor(0)), c.tensor(0).shape(),
                       {c.dtype(1, c.tensor(0).dtype())}))},
    {"full_like", "x: Tensor, /, fill_value: Scalar" TENSORD_PLACE,
     "A tensor of one value with the shape, dtype and device of x.",
     TENSORD_RUN(Full(DeviceLike(c, 3, c.tensor(0)), c.tensor(0).shape(), c.scalar(1),
                      {c.dtype(2, c.tensor(0).dtype())}))},

    // Random numbers.
    {"uniform",
     "*shape: int | Sequence[int], low: float = 0.0, high: float = 1.0" TENSORD_RANDOM
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Random numbers, uniform in [low, high).\n\n"
     "generator: a Generator, a seed, or a state; default: the generator of manual_seed.",
     TENSORD_RUN(Uniform(c.device(5), c.shape(0), ReadSource(c, 3),
                         {c.number(1, 0), c.number(2, 1), c.dtype(4, DType::kFloat32)}))},
    {"rand",
     "*shape: int | Sequence[int]" TENSORD_RANDOM
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Random numbers, uniform in [0, 1).",
     TENSORD_RUN(
         Uniform(c.device(3), c.shape(0), ReadSource(c, 1), {0, 1, c.dtype(2, DType::kFloat32)}))},
    {"normal",
     "*shape: int | Sequence[int], mean: float = 0.0, stddev: float = 1.0" TENSORD_RANDOM
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Normally distributed random numbers.",
     TENSORD_RUN(Normal(c.device(5), c.shape(0), ReadSource(c, 3),
                        {c.number(1, 0), c.number(2, 1), c.dtype(4, DType::kFloat32)}))},
    {"randn",
     "*shape: int | Sequence[int]" TENSORD_RANDOM
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Normally distributed random numbers of mean 0 and variance 1.",
     TENSORD_RUN(
         Normal(c.device(3), c.shape(0), ReadSource(c, 1), {0, 1, c.dtype(2, DType::kFloat32)}))},
    {"randint",
     "low: int, high: int, shape: int | Sequence[int], *, generator: Generator | Tensor | int | "
     "None = None"
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Random integers, uniform in [low, high), int64 by default.",
     TENSORD_RUN(RandInt(c.device(5), c.shape(2), c.integer(0), c.integer(1), ReadSource(c, 3),
                         {c.dtype(4, DType::kInt64)}))},
    {"randperm",
     "n: int, /, *, generator: Generator | Tensor | int | None = None, "
     "device: DeviceLike | None = None",
     "The integers from 0 to n - 1 in random order, int64.",
     TENSORD_RUN(RandPerm(c.device(2), c.integer(0), ReadSource(c, 1)))},
    {"exponential",
     "*shape: int | Sequence[int], rate: float = 1.0" TENSORD_RANDOM
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Exponentially distributed random numbers of mean 1 / rate.",
     TENSORD_RUN(Exponential(c.device(4), c.shape(0), ReadSource(c, 2),
                             {c.number(1, 1), c.dtype(3, DType::kFloat32)}))},
    {"trunc_normal",
     "*shape: int | Sequence[int], mean: float = 0.0, stddev: float = 1.0, low: float = -2.0, "
     "high: float = 2.0" TENSORD_RANDOM
     ", dtype: DTypeLike | None = None, device: DeviceLike | None = None",
     "Normally distributed random numbers within [low, high].",
     TENSORD_RUN(TruncNormal(c.device(7), c.shape(0), ReadSource(c, 5),
                             {c.number(1, 0), c.number(2, 1), c.number(3, -2), c.number(4, 2),
                              c.dtype(6, DType::kFloat32)}))},
    {"uniform_like", "x: Tensor, /, *, low: float = 0.0, high: float = 1.0" TENSORD_RANDOM,
     "Random numbers, uniform in [low, high), with the shape, dtype and device of x.",
     TENSORD_RUN(UniformLike(c.tensor(0), ReadSource(c, 3), {c.number(1, 0), c.number(2, 1)}))},
    {"normal_like", "x: Tensor, /, *, mean: float = 0.0, stddev: float = 1.0" TENSORD_RANDOM,
     "Normally distributed random numbers with the shape, dtype and device of x.",
     TENSORD_RUN(NormalLike(c.tensor(0), ReadSource(c, 3), {c.number(1, 0), c.number(2, 1)}))},
    {"randint_like",
     "x: Tensor, low: int, high: int, /, *, generator: Generator | Tensor | int | None = None",
     "Random integers, uniform in [low, high), with the shape, dtype and device of x.",
     TENSORD_RUN(RandIntLike(c.tensor(0), c.integer(1), c.integer(2), ReadSource(c, 3)))},
    {"bernoulli", "p: Tensor, /, *, generator: Generator | Tensor | int | None = None",
     "1 with the probability that p has at this position, otherwise 0.",
     TENSORD_RUN(Bernoulli(c.tensor(0), ReadSource(c, 1)))},
    {"multinomial",
     "weights: Tensor, /, count: int, *, replacement: bool = False, "
     "generator: Generator | Tensor | int | None = None",
     "Draws count categories for each row of weights: (…,n) -> (…,count), int64.",
     TENSORD_RUN(Multinomial(c.tensor(0), c.integer(1), c.flag(2), ReadSource(c, 3)))},
    {"dropout",
     "x: Tensor, /, p: float = 0.5, *, training: bool = True, "
     "generator: Generator | Tensor | int | None = None",
     "x / (1 - p) for a random part of the elements, and 0 for the others. The probability of a 0 "
     "is p.",
     DropoutOf, true},
};

}  // namespace

void AddCreationFunctions(nb::module_& m, nb::class_<Box>& tensor) {
  nb::class_<Generator>(
      m, "Generator",
      "Gives each random function the next stream of a seed: the numbers depend only on the seed\n"
      "and the order of the calls. Without a seed, draws one from the system.")
      .def(
          "__init__",
          [](Generator* self, std::optional<int64_t> seed, int64_t next_stream) {
            if (seed.has_value()) {
              new (self) Generator(*seed, next_stream);
            } else {
              new (self) Generator();
            }
          },
          nb::arg("seed") = nb::none(), nb::arg("next_stream") = 0)
      .def_prop_ro("seed", &Generator::seed)
      .def_prop_ro("next_stream", &Generator::next_stream,
                   "The number of the stream that the next call gets.");
  m.def(
      "manual_seed",
      [](int64_t seed) {
        DefaultGenerator() = new Generator(seed);
      },  // a thread may use the old one
      nb::arg("seed"), "Gives the default generator of random functions this seed.");
  AddRows(m, tensor, kRows, /*are_methods=*/false);
}

}  // namespace tensord::python
