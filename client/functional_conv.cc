// Convolution and transposed convolution (functional.h).
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/functional.h"
#include "tensord/client/internal/activation.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/ops.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

using Numbers = std::vector<int64_t>;
using OptionalBias = std::optional<Tensor>;

// The maximum of a number. Sums of a few products of such numbers don't overflow.
constexpr int64_t kMaxNumber = (int64_t{1} << 31) - 1;

Numbers ToNumbers(const Shape& shape) { return Numbers(shape.dims().begin(), shape.dims().end()); }

absl::Status Invalid(absl::string_view function, absl::string_view what, const Tensor& x,
                     const Tensor& weight) {
  return absl::InvalidArgumentError(absl::StrCat(function, ": ", what, "; inputs are ",
                                                 x.spec().ToString(), " and ",
                                                 weight.spec().ToString()));
}

// Returns the numbers for `axes` axes, or an error.
absl::StatusOr<Numbers> PerAxis(absl::string_view name, Numbers numbers, int64_t otherwise,
                                int axes) {
  if (numbers.empty()) numbers = {otherwise};
  if (numbers.size() == 1) numbers.resize(axes, numbers[0]);
  if (static_cast<int>(numbers.size()) != axes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", Shape(absl::MakeConstSpan(numbers)).ToString(),
                     ": name one number for each of the ", axes, " spatial axes, or one for all"));
  }
  for (const int64_t number : numbers) {
    if (number >= 0 && number <= kMaxNumber) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", number, ": each number must be from 0 to ", kMaxNumber));
  }
  return numbers;
}

// Returns the attributes for a weight of this shape.
absl::StatusOr<Attributes> ConvAttrs(const ConvOptions& options, const Shape& weight) {
  Attributes attrs;
  if (!options.stride.empty()) attrs.Set("stride", options.stride);
  if (!options.padding.empty()) attrs.Set("padding", options.padding);
  if (!options.dilation.empty()) attrs.Set("dilation", options.dilation);
  if (options.groups != 1) attrs.Set("groups", options.groups);
  if (options.allow_tf32) attrs.Set("allow_tf32", true);
  if (!options.same_padding || weight.rank() < 3) return attrs;
  const int axes = weight.rank() - 2;
  TENSORD_ASSIGN_OR_RETURN(const Numbers stride, PerAxis("stride", options.stride, 1, axes));
  TENSORD_ASSIGN_OR_RETURN(const Numbers dilation, PerAxis("dilation", options.dilation, 1, axes));
  if (!options.padding.empty()) {
    return absl::InvalidArgumentError("same_padding and padding exclude each other");
  }
  Numbers padding;
  for (int a = 0; a < axes; ++a) {
    if (stride[a] != 1) {
      return absl::InvalidArgumentError("same_padding needs a stride of 1");
    }
    if (weight.dim(2 + a) > kMaxNumber) break;  // inference refuses the weight
    const int64_t total = dilation[a] * (weight.dim(2 + a) - 1);
    padding.insert(padding.end(), {total / 2, total - total / 2});
  }
  attrs.Set("padding", padding);
  return attrs;
}

// An x with a batch. If the given x has none, it becomes a batch of one element.
struct Batched {
  Tensor x;
  bool was_batched;

  Batched(const Tensor& given, int axes) : x(given), was_batched(given.rank() != axes + 1) {
    if (was_batched) return;
    Numbers shape = ToNumbers(given.shape());
    shape.insert(shape.begin(), 1);
    x = Reshape(given, Shape(absl::MakeConstSpan(shape)));
  }

  Tensor Result(const Tensor& y) const {
    if (was_batched || !y.ok()) return y;
    Numbers shape = ToNumbers(y.shape());
    shape.erase(shape.begin());
    return Reshape(y, Shape(absl::MakeConstSpan(shape)));
  }
};

// Returns OK if the weight has this number of spatial axes.
absl::Status CheckAxes(absl::string_view function, const Tensor& x, const Tensor& weight,
                       int axes) {
  if (weight.rank() == axes + 2) return absl::OkStatus();
  return Invalid(function,
                 absl::StrCat("the weight must have ", axes + 2,
                              " dimensions, two for channels and ", axes, " for the kernel"),
                 x, weight);
}

Tensor Conv(absl::string_view function, int axes, const Tensor& x, const Tensor& weight,
            const OptionalBias& bias, const ConvOptions& options) {
  absl::InlinedVector<const Tensor*, 3> inputs = {&x, &weight};
  if (bias.has_value()) inputs.push_back(&*bias);
  if (!x.ok() || !weight.ok()) return internal::Enqueue("conv", inputs, {});
  if (const absl::Status fits = CheckAxes(function, x, weight, axes); !fits.ok()) {
    return Tensor::Failed(fits);
  }
  absl::StatusOr<Attributes> attrs = ConvAttrs(options, weight.shape());
  if (!attrs.ok()) return Tensor::Failed(Invalid(function, attrs.status().message(), x, weight));
  if (options.activation != Activation::kNone) {
    attrs->Set("activation", std::string(internal::ActivationName(options.activation)));
  }
  const Batched batched(x, axes);
  inputs[0] = &batched.x;
  return batched.Result(internal::Enqueue("conv", inputs, *attrs));
}

Tensor Gradient(absl::string_view op, const Tensor& gradient, const Tensor& other,
                const Shape& shape, const Shape& weight, const ConvOptions& options) {
  const Tensor* const inputs[] = {&gradient, &other};
  absl::StatusOr<Attributes> attrs = ConvAttrs(options, weight);
  if (!attrs.ok()) return Tensor::Failed(Invalid(op, attrs.status().message(), gradient, other));
  attrs->Set("shape", ToNumbers(shape));
  return internal::Enqueue(op, inputs, *attrs);
}

// Returns the attributes of conv_backward_input, which computes transposed convolutions.
absl::StatusOr<Attributes> TransposeAttrs(const Tensor& x, const Tensor& weight, int axes,
                                          const ConvTransposeOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(const Numbers stride, PerAxis("stride", options.stride, 1, axes));
  TENSORD_ASSIGN_OR_RETURN(const Numbers padding, PerAxis("padding", options.padding, 0, axes));
  TENSORD_ASSIGN_OR_RETURN(const Numbers dilation, PerAxis("dilation", options.dilation, 1, axes));
  TENSORD_ASSIGN_OR_RETURN(const Numbers added,
                           PerAxis("output_padding", options.output_padding, 0, axes));
  if (x.rank() != weight.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("x must be (batch,in,", axes, " spatial axes), or have no batch"));
  }
  if (options.groups < 1 || options.groups > kMaxNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups is ", options.groups, " and must be from 1 to ", kMaxNumber));
  }
  if (weight.shape().dim(1) > kMaxNumber) {
    return absl::InvalidArgumentError(absl::StrCat("axis 1 of the weight has ",
                                                   weight.shape().dim(1),
                                                   " elements; the limit is ", kMaxNumber));
  }
  Numbers shape = {x.shape().dim(0), weight.shape().dim(1) * options.groups};
  for (int a = 0; a < axes; ++a) {
    const int64_t size = x.shape().dim(2 + a), kernel = weight.shape().dim(2 + a);
    if (added[a] > 0 && added[a] >= stride[a]) {
      return absl::InvalidArgumentError(
          absl::StrCat("output_padding ", added[a], " must be less than the stride, ", stride[a]));
    }
    if (size > kMaxNumber || kernel > kMaxNumber) {
      return absl::InvalidArgumentError("a spatial axis or the kernel is too large");
    }
    const int64_t result =
        (size - 1) * stride[a] - 2 * padding[a] + dilation[a] * (kernel - 1) + added[a] + 1;
    if (size < 1 || kernel < 1 || result < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("spatial axis ", a, " of the result would have ", result, " elements"));
    }
    shape.push_back(result);
  }
  return Attributes{{"stride", stride},
                    {"padding", padding},
                    {"dilation", dilation},
                    {"groups", options.groups},
                    {"allow_tf32", options.allow_tf32},
                    {"shape", shape}};
}

Tensor TransposeAndAdd(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
                       const Attributes& attrs) {
  const Tensor* const inputs[] = {&x, &weight};
  const Tensor y = internal::Enqueue("conv_backward_input", inputs, attrs);
  if (!bias.has_value()) return y;
  if (!y.ok() || !bias->ok()) return Add(y, *bias);
  const Shape channels({y.shape().dim(1)});
  if (bias->shape() != channels) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat("conv_transpose: the bias has the shape ", bias->shape().ToString(),
                     " and must have that of the output channels, ", channels.ToString())));
  }
  Shape column = channels;
  while (column.rank() < y.rank() - 1) column.AppendDim(1);
  return Add(y, Reshape(*bias, column));
}

Tensor ConvTranspose(absl::string_view function, int axes, const Tensor& x, const Tensor& weight,
                     const OptionalBias& bias, const ConvTransposeOptions& options) {
  const Tensor* const inputs[] = {&x, &weight};
  if (!x.ok() || !weight.ok()) return internal::Enqueue("conv_backward_input", inputs, {});
  if (const absl::Status fits = CheckAxes(function, x, weight, axes); !fits.ok()) {
    return Tensor::Failed(fits);
  }
  const Batched batched(x, axes);
  const absl::StatusOr<Attributes> attrs = TransposeAttrs(batched.x, weight, axes, options);
  if (!attrs.ok()) return Tensor::Failed(Invalid(function, attrs.status().message(), x, weight));
  // With a bias, 16-bit elements would be rounded twice.
  const DType dtype = x.dtype();
  const bool widens = bias.has_value() && SizeOf(dtype) == 2 && IsFloating(dtype) &&
                      weight.dtype() == dtype && bias->ok() && bias->dtype() == dtype;
  if (!widens) return batched.Result(TransposeAndAdd(batched.x, weight, bias, *attrs));
  const Tensor y = TransposeAndAdd(Cast(batched.x, DType::kFloat32), Cast(weight, DType::kFloat32),
                                   Cast(*bias, DType::kFloat32), *attrs);
  return batched.Result(Cast(y, dtype));
}

}  // namespace

Tensor Conv1d(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
              const ConvOptions& options) {
  return Conv("conv1d", 1, x, weight, bias, options);
}
Tensor Conv2d(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
              const ConvOptions& options) {
  return Conv("conv2d", 2, x, weight, bias, options);
}
Tensor Conv3d(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
              const ConvOptions& options) {
  return Conv("conv3d", 3, x, weight, bias, options);
}

Tensor ConvBackwardInput(const Tensor& gradient, const Tensor& weight, const Shape& shape,
                         const ConvOptions& options) {
  return Gradient("conv_backward_input", gradient, weight, shape,
                  weight.ok() ? weight.shape() : Shape(), options);
}
Tensor ConvBackwardWeight(const Tensor& gradient, const Tensor& x, const Shape& shape,
                          const ConvOptions& options) {
  return Gradient("conv_backward_weight", gradient, x, shape, shape, options);
}

Tensor ConvTranspose1d(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
                       const ConvTransposeOptions& options) {
  return ConvTranspose("conv_transpose1d", 1, x, weight, bias, options);
}
Tensor ConvTranspose2d(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
                       const ConvTransposeOptions& options) {
  return ConvTranspose("conv_transpose2d", 2, x, weight, bias, options);
}
Tensor ConvTranspose3d(const Tensor& x, const Tensor& weight, const OptionalBias& bias,
                       const ConvTransposeOptions& options) {
  return ConvTranspose("conv_transpose3d", 3, x, weight, bias, options);
}

}  // namespace tensord
