#include "tensord/server/device/cpu/onednn_support.h"

#include <new>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/cpu/onednn_api.h"

namespace tensord::server::cpu {
namespace {

struct OneDnnFunction {
  dnnl::algorithm algorithm;
  float alpha = 0;
};

std::optional<OneDnnFunction> FindOneDnnFunction(UnaryFunction function) {
  switch (function) {
    case UnaryFunction::kRelu:
      return OneDnnFunction{dnnl::algorithm::eltwise_relu};
    case UnaryFunction::kGelu:
      return OneDnnFunction{dnnl::algorithm::eltwise_gelu_erf};
    case UnaryFunction::kGeluTanh:
      return OneDnnFunction{dnnl::algorithm::eltwise_gelu_tanh};
    case UnaryFunction::kSilu:
      return OneDnnFunction{dnnl::algorithm::eltwise_swish, 1.0f};
    case UnaryFunction::kSigmoid:
      return OneDnnFunction{dnnl::algorithm::eltwise_logistic};
    case UnaryFunction::kTanh:
      return OneDnnFunction{dnnl::algorithm::eltwise_tanh};
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::Status GuardOneDnn(absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    const std::string text =
        absl::StrCat("oneDNN: ", error.message, " (status ", error.status, ")");
    switch (error.status) {
      case dnnl_out_of_memory:
        return absl::ResourceExhaustedError(text);
      case dnnl_unimplemented:
        return absl::UnimplementedError(text);
      default:
        return absl::InternalError(text);
    }
  } catch (const std::bad_alloc&) {
    return OneDnnOutOfMemory();
  }
}

absl::Status OneDnnOutOfMemory() {
  return absl::ResourceExhaustedError("oneDNN: out of host memory");
}

bool OneDnnHas(std::optional<UnaryFunction> activation) {
  return !activation.has_value() || FindOneDnnFunction(*activation).has_value();
}

bool SetActivation(std::optional<UnaryFunction> activation, dnnl::primitive_attr& attr) {
  dnnl::post_ops ops;
  if (activation.has_value()) {
    const std::optional<OneDnnFunction> function = FindOneDnnFunction(*activation);
    if (!function.has_value()) return false;
    AppendElementwise(function->algorithm, function->alpha, ops);
  }
  attr.set_post_ops(ops);
  return true;
}

bool IsReference(absl::string_view implementation) {
  return absl::StartsWith(implementation, "ref");
}

}  // namespace tensord::server::cpu
