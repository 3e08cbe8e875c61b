#include "registration.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels.h"

namespace torch_tensord {
namespace {

enum class Rule {
  kPromoted,  // elementwise: the promoted dtype of the operands can be cast to the output's
  kFloat,     // as kPromoted, and integers are computed in the default dtype
  kSame,      // elementwise: the output has the dtype of the operand
  kTruth,     // elementwise: the output may have any dtype
  kIsBool,    // elementwise: the output has bools
  kSelf,      // the outputs have the dtype of the first operand
  kIndexed,   // as kSelf, and the last output has indices
  kIndex,     // the output has indices
  kBool,      // the output has bools, or uint8
  kFloating,  // the output has a floating dtype
  kCastable,  // the dtype of the operands can be cast to that of the output
  kAny,       // the output may have any dtype
};

// The names of the ops of each rule. If an overload and its op have different rules, the rule of
// the overload applies. An op that isn't here has kCastable. If a call that isn't elementwise has
// the argument "dtype", the output must have this dtype, whatever the rule.
constexpr std::pair<Rule, std::string_view> kRules[] = {
    {Rule::kPromoted,
     "add addcdiv addcmul bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift "
     "bitwise_xor clamp clamp_max clamp_min elu_backward floor_divide fmax fmin fmod gcd "
     "gelu_backward hardshrink_backward hardsigmoid_backward hardtanh_backward "
     "huber_loss_backward hypot igamma igammac lcm leaky_relu_backward lerp log_sigmoid_backward "
     "logaddexp logaddexp2 logit_backward maximum minimum mse_loss_backward mul nextafter pow "
     "remainder sigmoid_backward silu_backward smooth_l1_loss_backward softplus_backward "
     "softshrink_backward sub tanh_backward threshold_backward div.out_mode"},
    {Rule::kSame,
     "abs bitwise_not ceil elu floor frac gelu hardshrink hardsigmoid hardswish hardtanh "
     "leaky_relu mish nan_to_num neg round sgn sign silu softplus softshrink threshold trunc"},
    {Rule::kIsBool, "isneginf isposinf signbit"},
    {Rule::kFloat,
     "acos acosh angle asin asinh atan atan2 atanh copysign cos cosh digamma div erf erfc erfinv "
     "exp exp2 expm1 i0 lgamma log log10 log1p log2 logit polygamma reciprocal rsqrt sigmoid sin "
     "sinc sinh special_entr special_i0e special_i1 special_i1e special_modified_bessel_i0 "
     "special_modified_bessel_i1 special_spherical_bessel_j0 special_xlog1py special_zeta sqrt "
     "tan tanh xlogy"},
    {Rule::kTruth, "eq ge gt le logical_and logical_not logical_or logical_xor lt ne where"},
    {Rule::kSelf,
     "_log_softmax _log_softmax_backward_data _logcumsumexp _softmax _softmax_backward_data "
     "adaptive_avg_pool2d adaptive_avg_pool3d addbmm addmm addmv amax amin aminmax avg_pool2d "
     "avg_pool3d baddbmm binary_cross_entropy bmm col2im gather glu heaviside histc huber_loss "
     "im2col index index_add index_copy index_reduce index_select linalg_cross linalg_vector_norm "
     "masked_select max_unpool2d max_unpool3d mm mse_loss msort multi_margin_loss "
     "nll_loss2d_forward nll_loss_forward norm reflection_pad1d reflection_pad2d "
     "reflection_pad3d renorm "
     "replication_pad1d replication_pad2d replication_pad3d scatter scatter_add scatter_reduce "
     "smooth_l1_loss take tril triu upsample_bicubic2d upsample_bilinear2d upsample_linear1d "
     "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d"},
    {Rule::kIndexed,
     "adaptive_max_pool2d adaptive_max_pool3d kthvalue max max_pool2d_with_indices "
     "max_pool3d_with_indices median min mode nanmedian sort topk"},
    {Rule::kIndex, "argmax argmin multinomial nonzero nonzero_static"},
    {Rule::kBool, "all any isin"},
    {Rule::kAny,
     "_native_batch_norm_legit arange bernoulli bucketize cumprod cumsum eye frexp histogram "
     "linspace log_sigmoid_forward logspace nansum native_batch_norm normal prod randperm range "
     "searchsorted sum"},
    {Rule::kFloating, "mean std var"},
    {Rule::kCastable, "max.unary_out min.unary_out"},
};

// The integer dtypes that PyTorch's kernels refuse on the CPU and on CUDA, although the server
// computes them.
enum Refused { kRefusesNone = 0, kRefusesBool = 1, kRefusesIntegers = 2, kRefusesBoth = 3 };
constexpr std::pair<Refused, std::string_view> kRefused[] = {
    {kRefusesBool,
     "arange argmax argmin ceil floor geometric_ histc kthvalue linspace logspace max_unpool2d "
     "max_unpool3d median nanmedian randperm range reflection_pad1d reflection_pad2d "
     "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d round trace trunc"},
    {kRefusesIntegers, "im2col"},
    {kRefusesBoth,
     "_adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _ctc_loss _embedding_bag "
     "_embedding_bag_forward_only _logcumsumexp _prelu_kernel adaptive_avg_pool2d "
     "adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d exponential_ frac glu "
     "grid_sampler_2d grid_sampler_3d huber_loss log_normal_ mse_loss multi_margin_loss "
     "multilabel_margin_loss_forward nll_loss2d_forward nll_loss_forward normal_ poisson "
     "round.decimals_out smooth_l1_loss"},
};

// The ops whose operands have one dtype in PyTorch, although the server promotes them.
constexpr std::pair<bool, std::string_view> kOneDType[] = {
    {true,
     "_cdist_forward addbmm addbmm_ convolution grid_sampler_2d grid_sampler_3d linalg_cross"},
};

// Returns the value of the row that names the overload, or else of the row that names its op. If
// there is none, returns `otherwise`.
template <const auto& kTable, typename Row>
Row Find(std::string_view overload, Row otherwise) {
  static const auto values = [] {
    std::unordered_map<std::string_view, Row> made;
    for (auto [value, names] : kTable) {
      while (!names.empty()) {
        const size_t end = std::min(names.find(' '), names.size());
        made.emplace(names.substr(0, end), value);
        names.remove_prefix(std::min(end + 1, names.size()));
      }
    }
    return made;
  }();
  auto found = values.find(overload);
  if (found == values.end()) found = values.find(overload.substr(0, overload.find('.')));
  return found == values.end() ? otherwise : found->second;
}

// Calls function(tensor) for each tensor of an argument.
template <typename Function>
void ForEachTensor(const c10::IValue& argument, Function function) {
  if (argument.isTensor()) return function(argument.toTensor());
  if (!argument.isTensorList()) return;
  for (const at::Tensor& each : argument.toTensorVector()) function(each);
}

struct Call {
  std::string_view name;
  const c10::FunctionSchema& schema;
  const torch::jit::Stack& stack;
  std::vector<at::Tensor> inputs, outputs;
};

void RequireDType(const at::Tensor& out, at::ScalarType dtype) {
  TORCH_CHECK(out.scalar_type() == dtype, "Expected out tensor to have dtype ", dtype, ", but got ",
              out.scalar_type(), " instead");
}

at::ScalarType Promoted(c10::ArrayRef<at::Tensor> inputs) {
  at::native::ResultTypeState state = {};
  for (const at::Tensor& each : inputs) state = at::native::update_result_type_state(each, state);
  return at::native::result_type(state);
}

// PyTorch's iterator checks the dtype, the sizes and the overlaps of the output, and resizes it.
void CheckElementwise(const Call& call, Rule rule) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(call.name != "threshold").check_all_same_dtype(false);
  config.allow_cpu_scalars(true).add_output(call.outputs[0]);
  for (const at::Tensor& each : call.inputs) config.add_const_input(each);
  if (call.name == "where") {
    RequireDType(call.outputs[0], Promoted(c10::ArrayRef<at::Tensor>(call.inputs).slice(1)));
  } else if (call.name == "clamp" || call.name == "clamp_min" || call.name == "clamp_max" ||
             call.name == "pow") {
    for (const c10::IValue& each : call.stack) {
      if (!each.isScalar()) continue;
      // PyTorch's iterator takes one number of the CPU at most.
      const at::Tensor number =
          MakeContiguous({}, each.toScalar().type(), DeviceOf(call.outputs[0]));
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      config.add_owned_const_input(number);
    }
  }
  if (rule == Rule::kSame) {
    RequireDType(call.outputs[0], call.inputs[0].scalar_type());
  } else if (rule == Rule::kIsBool) {
    TORCH_CHECK(call.outputs[0].scalar_type() == at::kBool, call.name,
                " does not support non-boolean outputs.");
  } else if (rule != Rule::kTruth) {
    config.promote_inputs_to_common_dtype(true)
        .cast_common_dtype_to_outputs(true)
        .enforce_safe_casting_to_output(true)
        .promote_integer_inputs_to_float(rule == Rule::kFloat);
  }
  config.build();
}

// Returns the argument "dtype" of a call.
std::optional<at::ScalarType> GivenDType(const Call& call) {
  for (size_t i = 0; i < call.stack.size(); ++i) {
    if (call.schema.arguments()[i].name() == "dtype" && call.stack[i].isInt())
      return static_cast<at::ScalarType>(call.stack[i].toInt());
  }
  return std::nullopt;
}

void CheckDTypes(const Call& call, Rule rule) {
  const at::Tensor& out = call.outputs[0];
  if (const auto given = GivenDType(call); given.has_value()) return RequireDType(out, *given);
  TORCH_CHECK(call.name != "nonzero" || out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
              out.scalar_type());
  if (rule == Rule::kIndex) return RequireDType(out, at::kLong);
  if (rule == Rule::kFloating) {
    TORCH_CHECK(at::isFloatingType(out.scalar_type()), call.name,
                ": Expected out tensor to have a floating dtype, but got ", out.scalar_type());
    return;
  }
  if (rule == Rule::kAny || call.inputs.empty()) return;
  if (rule == Rule::kBool) {
    if (call.name == "isin") return RequireDType(out, at::kBool);
    TORCH_CHECK(out.scalar_type() == at::kByte || out.scalar_type() == at::kBool, call.name,
                " only supports bool tensor for result, got: ", out.scalar_type());
    return;
  }
  if (rule == Rule::kCastable) {
    const at::ScalarType dtype = Promoted(call.inputs);
    TORCH_CHECK_TYPE(call.name != "cat" || at::canCast(dtype, out.scalar_type()),
                     "torch.cat(): input types can't be cast to the desired output type ",
                     out.scalar_type());
    return CheckResultCast(dtype, out);
  }
  const at::ScalarType dtype = call.inputs[0].scalar_type();
  const size_t values = call.outputs.size() - (rule == Rule::kIndexed && call.outputs.size() > 1);
  for (size_t i = 0; i < call.outputs.size(); ++i)
    RequireDType(call.outputs[i], i < values ? dtype : at::kLong);
}

// Ops whose outputs may not be operands either.
constexpr std::string_view kNotInPlace[] = {"cat", "gather", "kthvalue", "masked_select", "take"};

void CheckOverlaps(const Call& call) {
  const bool may_be_operand = std::ranges::count(kNotInPlace, call.name) == 0;
  for (const at::Tensor& out : call.outputs) {
    at::assert_no_internal_overlap(out);
    for (const at::Tensor& each : call.inputs) {
      if (!IsOurs(each)) continue;
      if (!may_be_operand) {
        at::assert_no_overlap(out, each);
      } else if (!each.is_same(out)) {
        at::assert_no_partial_overlap(out, each);
      }
    }
  }
}

// Resizes the outputs as PyTorch's shape function does, whose strides depend on those of the
// operands. If all operands are contiguous, the kernel resizes to the same strides. The kernel of
// cat chooses the memory format itself.
void ResizeByShapeFunction(const c10::OperatorHandle& op, const Call& call) {
  if (call.name == "cat" ||
      std::ranges::all_of(call.inputs, [](const at::Tensor& x) { return x.is_contiguous(); }))
    return;
  const auto meta = [](const at::Tensor& x) {
    return x.defined() ? at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta))
                       : x;
  };
  torch::jit::Stack stack;
  const size_t inputs = call.stack.size() - call.outputs.size();
  for (size_t i = 0; i < call.stack.size(); ++i) {
    const c10::IValue& argument = call.stack[i];
    if (i >= inputs) {
      stack.emplace_back(at::empty({0}, argument.toTensor().options().device(at::kMeta)));
    } else if (argument.isTensor()) {
      stack.emplace_back(meta(argument.toTensor()));
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> moved;
      for (const at::Tensor& each : argument.toTensorVector()) moved.push_back(meta(each));
      stack.emplace_back(std::move(moved));
    } else {
      stack.push_back(argument);
    }
  }
  const torch::jit::Stack made(stack.begin() + static_cast<int64_t>(inputs), stack.end());
  try {
    op.callBoxed(stack);
  } catch (const c10::Error&) {
    return;  // the op has no shape function, or the kernel refuses the operands, too
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const at::Tensor& out = call.outputs[i];
    const at::Tensor shape = made[i].toTensor();
    if (out.sizes().equals(shape.sizes())) continue;
    Resize(out, shape.sizes());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes(), shape.strides());
  }
}

}  // namespace

void CheckResultCast(at::ScalarType dtype, const at::Tensor& out) {
  TORCH_CHECK(at::canCast(dtype, out.scalar_type()), "result type ", dtype,
              " can't be cast to the desired output type ", out.scalar_type());
}

DTypeCheck::DTypeCheck(const char* name)
    : name_(name),
      refused_(Find<kRefused>(name, kRefusesNone)),
      needs_one_(Find<kOneDType>(name, false)) {}

void DTypeCheck::Check(c10::ArrayRef<const at::Tensor*> tensors) const {
  const at::ScalarType dtype = tensors[0]->scalar_type();
  const bool refuses = dtype == at::kBool
                           ? (refused_ & kRefusesBool) != 0
                           : (refused_ & kRefusesIntegers) != 0 && at::isIntegralType(dtype, false);
  TORCH_CHECK_NOT_IMPLEMENTED(!refuses, '"', name_.substr(0, name_.find('.')),
                              "\" not implemented for '", dtype, "'");
  if (!needs_one_) return;
  for (const at::Tensor* each : tensors) {
    TORCH_CHECK(each->scalar_type() == dtype, name_.substr(0, name_.find('.')),
                ": expected scalar type ", dtype, " but found ", each->scalar_type(),
                ". Convert one of the operands with x.to(dtype)");
  }
}

void OutputCheck::operator()(torch::jit::Stack stack, size_t count) const {
  const size_t dot = name_.find('.');
  const std::string name = name_.substr(0, dot);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name).c_str(), dot == std::string::npos ? "" : name_.substr(dot + 1).c_str());
  Call call = {name, op.schema(), stack, {}, {}};
  for (size_t i = 0; i < stack.size(); ++i) {
    ForEachTensor(stack[i], [&](const at::Tensor& tensor) {
      if (tensor.defined())
        (i < stack.size() - count ? call.inputs : call.outputs).push_back(tensor);
    });
  }
  if (call.outputs.size() != count) return;
  const at::Tensor& first = call.outputs[0];
  bool has_host = false;
  for (const std::vector<at::Tensor>& tensors : {call.inputs, call.outputs}) {
    for (const at::Tensor& each : tensors) {
      if (IsOurs(each) && each.device() != first.device())
        ThrowOtherDevice(name.c_str(), each.device(), first.device());
      has_host = has_host || (!IsOurs(each) && !IsNumber(each));
    }
  }
  if (has_host && !call.inputs.empty() && std::ranges::none_of(call.inputs, IsOurs))
    ThrowOtherDevice(name.c_str(), call.inputs[0].device(), first.device());
  if (has_host) return;  // the kernel throws
  const Rule rule = Find<kRules>(name_, Rule::kCastable);
  if (rule <= Rule::kIsBool) return CheckElementwise(call, rule);
  CheckDTypes(call, rule);
  // PyTorch checks the overlaps of an op in place.
  const auto is_output = [&first](const at::Tensor& input) { return input.is_same(first); };
  const bool is_in_place = std::ranges::any_of(call.inputs, is_output);
  if (!is_in_place || std::ranges::count(kNotInPlace, call.name) > 0) CheckOverlaps(call);
  if (!is_in_place) ResizeByShapeFunction(op, call);
}

}  // namespace torch_tensord
