// The functions of client/functional.h: normalization, losses, attention, convolution and pooling.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/functional.h"
#include "tensord/client/internal/activation.h"
#include "tensord/client/losses.h"
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
  CrossEntropyOptions options = {.weight = OptionalTensor(call, 2),
                                 .reduction = ReadLossReduction(call, 3)};
  if (call.has(4)) options.axis = call.integer(4);
  options.ignore_index = call.integer(5, -100);
  options.label_smoothing = call.number(6, 0);
  return CrossEntropy(call.tensor(0), call.tensor(1), options);
}

Tensor AttentionOf(const Call& call) {
  const Tensor &q = call.tensor(0), &k = call.tensor(1);
  const bool shares_heads = call.flag(7);
  if (!shares_heads && q.ok() && k.ok() && q.rank() >= 3 && k.rank() == q.rank()) {
    const int axis = q.rank() - 3;
    if (k.shape().dim(axis) != q.shape().dim(axis) && k.shape().dim(axis) != 1) {
      RaiseValueError(absl::StrCat("scaled_dot_product_attention(): query has ",
                                   q.shape().dim(axis), " heads and key ", k.shape().dim(axis),
                                   ": to share the heads of key, pass enable_gqa=True"));
    }
  }
  AttentionOptions options = {.mask = OptionalTensor(call, 3),
                              .causal = call.flag(5),
                              .scale = call.number(6, 0),
                              .dropout_p = call.number(4, 0)};
  if (options.dropout_p != 0) {
    const RandomSource source = ReadSource(call, 8);
    if (source.state() != nullptr) {
      options.state = *source.state();
    } else {
      options.stream = source.stream();
    }
  }
  return ScaledDotProductAttention(q, k, call.tensor(2), options);
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

// Reads the padding: numbers, "valid" (0) or "same".
void ReadPadding(const Call& call, int i, ConvOptions* options) {
  if (!call.has(i) || !PyUnicode_Check(call.at(i))) {
    options->padding = call.ints(i);
    return;
  }
  const std::string text = call.text(i);
  options->same_padding = text == "same";
  if (text == "same" || text == "valid") return;
  RaiseValueError(
      absl::StrCat("padding is \"", text, "\", and must be numbers, \"valid\" or \"same\""));
}

using ConvFunction = Tensor (*)(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                const ConvOptions&);

Tensor RunConv(ConvFunction run, const Call& call) {
  ConvOptions options = {.stride = call.ints(3),
                         .dilation = call.ints(5),
                         .groups = call.integer(6, 1),
                         .allow_tf32 = call.flag(8)};
  ReadPadding(call, 4, &options);
  if (call.has(7)) {
    const std::string name = call.text(7);
    const std::optional<Activation> activation = internal::ActivationOfName(name);
    if (!activation.has_value()) {
      RaiseValueError(absl::StrCat("activation \"", name, "\" is not one that ops apply"));
    }
    options.activation = *activation;
  }
  return run(call.tensor(0), call.tensor(1), OptionalTensor(call, 2), options);
}

using ConvTransposeFunction = Tensor (*)(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                         const ConvTransposeOptions&);

Tensor RunConvTranspose(ConvTransposeFunction run, const Call& call) {
  return run(call.tensor(0), call.tensor(1), OptionalTensor(call, 2),
             {.stride = call.ints(3),
              .padding = call.ints(4),
              .output_padding = call.ints(5),
              .groups = call.integer(6, 1),
              .dilation = call.ints(7),
              .allow_tf32 = call.flag(8)});
}

#define TENSORD_NUMBERS "int | Sequence[int] = "
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
  add("group_norm", "x: Tensor, /, groups: int, " TENSORD_NORM_PARAMETERS ", eps: float = 1e-5",
      "(x - mean) / sqrt(variance + eps) * weight + bias over each group of channels of x "
      "(N,C,...). weight and bias have the shape (C). The variance isn't corrected.",
      [](const Call& call) {
        return GroupNorm(call.tensor(0), {.groups = call.integer(1), .eps = call.number(4, 1e-5)},
                         ReadNormParameters(call, 2));
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
  const std::pair<const char*, ConvFunction> convs[] = {
      {"conv1d", Conv1d}, {"conv2d", Conv2d}, {"conv3d", Conv3d}};
  for (const auto& [name, run] : convs) {
    add(name,
        "x: Tensor, weight: Tensor, /, bias: Tensor | None = None, stride: " TENSORD_NUMBERS
        "1, padding: int | Sequence[int] | str = 0, dilation: " TENSORD_NUMBERS
        "1, groups: int = 1, activation: str = \"none\", allow_tf32: bool = False",
        "activation(the convolution of x with the weight + bias): x (N,C,...), or (C,...), weight "
        "(O,C/groups,...) and bias (O). padding has a number for each axis, or two: at its "
        "beginning and at its end; \"same\" keeps the size of x.",
        [run = run](const Call& call) { return RunConv(run, call); });
  }
  const std::pair<const char*, ConvTransposeFunction> transposed[] = {
      {"conv_transpose1d", ConvTranspose1d},
      {"conv_transpose2d", ConvTranspose2d},
      {"conv_transpose3d", ConvTranspose3d}};
  for (const auto& [name, run] : transposed) {
    add(name,
        "x: Tensor, weight: Tensor, /, bias: Tensor | None = None, stride: " TENSORD_NUMBERS
        "1, padding: " TENSORD_NUMBERS "0, output_padding: " TENSORD_NUMBERS
        "0, groups: int = 1, dilation: " TENSORD_NUMBERS "1, allow_tf32: bool = False",
        "The transposed convolution of x with the weight, plus the bias: x (N,C,...), or (C,...), "
        "weight (C,O/groups,...) and bias (O). output_padding must be less than the stride.",
        [run = run](const Call& call) { return RunConvTranspose(run, call); });
  }
  add("scaled_dot_product_attention",
      "query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, "
      "dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, "
      "enable_gqa: bool = False, generator: Generator | Tensor | int | None = None",
      "softmax(scale * query @ key.T + attn_mask) @ value, with query (...,H,L,E), key "
      "(...,Hkv,S,E) and value (...,Hkv,S,Ev). A bool mask is true where a row attends to a "
      "key. By default, or if it is 0, scale is 1 / sqrt(E). With enable_gqa, H may be a multiple "
      "of Hkv. A row without keys is 0. The dropped weights come from the generator: a Generator, "
      "a seed, or a state; default: the generator of manual_seed.",
      AttentionOf);
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
