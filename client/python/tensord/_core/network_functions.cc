// The functions of client/functional.h: normalization, losses and pooling.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/functional.h"
#include "tensord/client/python/tensord/_core/function.h"

namespace tensord::python {
namespace {

std::optional<Tensor> OptionalTensor(const Call& call, int i) {
  if (!call.has(i)) return std::nullopt;
  return call.tensor(i);
}

NormParameters ReadNormParameters(const Call& call, int weight) {
  return {OptionalTensor(call, weight), OptionalTensor(call, weight + 1)};
}

LayerNormOptions ReadLayerNormOptions(const Call& call) {
  return {call.integer(3, 1), call.number(4, 1e-5)};
}

Tensor CrossEntropyOf(const Call& call) {
  CrossEntropyOptions options = {.weight = OptionalTensor(call, 2)};
  const std::string reduction = call.has(3) ? call.text(3) : "mean";
  if (reduction == "none") {
    options.reduction = LossReduction::kNone;
  } else if (reduction == "sum") {
    options.reduction = LossReduction::kSum;
  } else if (reduction != "mean") {
    RaiseValueError(absl::StrCat("cross_entropy(): reduction is \"", reduction,
                                 "\", and must be \"none\", \"mean\" or \"sum\""));
  }
  if (call.has(4)) options.axis = call.integer(4);
  options.ignore_index = call.integer(5, -100);
  options.label_smoothing = call.number(6, 0);
  return CrossEntropy(call.tensor(0), call.tensor(1), options);
}

Tensor AvgPoolOf(const Call& call) {
  return AvgPool(call.tensor(0), {.kernel = call.ints(1),
                                  .stride = call.ints(2),
                                  .padding = call.ints(3),
                                  .ceil_mode = call.flag(4),
                                  .count_include_pad = call.flag(5, true),
                                  .divisor = call.integer(6, 0)});
}

PoolOptions ReadPoolOptions(const Call& call) {
  return {call.ints(1), call.ints(2), call.ints(3), call.ints(4), call.flag(5)};
}

nb::object MaxPoolWithIndicesOf(const Call& call) {
  PoolResult result = MaxPoolWithIndices(call.tensor(0), ReadPoolOptions(call));
  return nb::make_tuple(Wrap(std::move(result.y)), Wrap(std::move(result.indices)));
}

#define TENSORD_NORM_PARAMETERS "weight: Tensor | None = None, bias: Tensor | None = None"
#define TENSORD_WINDOWS                                                                    \
  "x: Tensor, /, kernel: int | Sequence[int], stride: int | Sequence[int] | None = None, " \
  "padding: int | Sequence[int] | None = None, "

}  // namespace

void AddNetworkFunctions(nb::module_& m, nb::class_<Box>& tensor) {
  const auto add = [&](const char* name, const char* parameters, const char* doc,
                       std::function<Tensor(const Call&)> run) {
    AddFunction(m, tensor,
                {.name = name,
                 .parameters = parameters,
                 .returns = "Tensor",
                 .doc = doc,
                 .body = [run = std::move(run)](const Call& call) { return Wrap(run(call)); },
                 .is_method = false});
  };
  add("layer_norm",
      "x: Tensor, /, " TENSORD_NORM_PARAMETERS ", normalized_rank: int = 1, eps: float = 1e-5",
      "(x - mean) / sqrt(variance + eps) * weight + bias over the last normalized_rank axes, which "
      "are the shape of weight and bias. The variance isn't corrected.",
      [](const Call& call) {
        return LayerNorm(call.tensor(0), ReadNormParameters(call, 1), ReadLayerNormOptions(call));
      });
  add("rms_norm",
      "x: Tensor, /, " TENSORD_NORM_PARAMETERS ", normalized_rank: int = 1, eps: float = 1e-5",
      "x / sqrt(mean of x squared + eps) * weight + bias over the last normalized_rank axes.",
      [](const Call& call) {
        return RmsNorm(call.tensor(0), ReadNormParameters(call, 1), ReadLayerNormOptions(call));
      });
  add("batch_norm",
      "x: Tensor, running_mean: Tensor, running_var: Tensor, /, " TENSORD_NORM_PARAMETERS
      ", eps: float = 1e-5",
      "(x - running_mean) / sqrt(running_var + eps) * weight + bias for each channel of x "
      "(N,C,...). "
      "The other tensors have the shape (C).",
      [](const Call& call) {
        return BatchNorm(call.tensor(0), call.tensor(1), call.tensor(2),
                         ReadNormParameters(call, 3), {.eps = call.number(5, 1e-5)});
      });
  add("cross_entropy",
      "x: Tensor, target: Tensor, /, weight: Tensor | None = None, reduction: str = \"mean\", "
      "axis: int | None = None, ignore_index: int = -100, label_smoothing: float = 0.0",
      "weight[target] * -log(softmax(x)[target]), with x (...,C,...) and target (...) of int32 or "
      "int64. By default, the classes are axis 1, or axis 0 if x has one axis, and the result is "
      "the mean. A target outside [0, C) that isn't ignore_index is an error.",
      CrossEntropyOf);
  add("avg_pool",
      TENSORD_WINDOWS "ceil_mode: bool = False, count_include_pad: bool = True, divisor: int = 0",
      "The mean of each window of the last axes; kernel has a size for each of one to three axes. "
      "By default, stride is the kernel.",
      AvgPoolOf);
  add("max_pool",
      TENSORD_WINDOWS "dilation: int | Sequence[int] | None = None, ceil_mode: bool = False",
      "The largest element of each window of the last axes; kernel has a size for each of one to "
      "three axes. By default, stride is the kernel. NaN is larger than all numbers.",
      [](const Call& call) { return MaxPool(call.tensor(0), ReadPoolOptions(call)); });
  AddFunction(
      m, tensor,
      {.name = "max_pool_with_indices",
       .parameters =
           TENSORD_WINDOWS "dilation: int | Sequence[int] | None = None, ceil_mode: bool = False",
       .returns = "tuple[Tensor, Tensor]",
       .doc = "max_pool, and the positions (int64) of the elements in the flattened last axes.",
       .body = MaxPoolWithIndicesOf,
       .is_method = false});
}

}  // namespace tensord::python
