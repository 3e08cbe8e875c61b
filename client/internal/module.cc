#include "tensord/client/internal/module.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/new_seed.h"
#include "tensord/client/ops.h"

namespace tensord::nn::internal {

std::string KindOf(const Module& module) {
  const std::string text = module.ToString();  // "ReLU()"; that of a container has several lines
  return text.substr(0, text.find('('));
}

std::string PythonTuple(absl::Span<const int64_t> values) {
  return absl::StrCat("(", absl::StrJoin(values, ", "), values.size() == 1 ? ",)" : ")");
}

absl::Status RequireValues(const Module& module,
                           std::initializer_list<const Parameter*> parameters) {
  for (const Parameter* parameter : parameters) {
    if (parameter == nullptr || parameter->has_value()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "nn::", module.ToString(), " has no values yet: call To(device) or LoadStateDict"));
  }
  return absl::OkStatus();
}

Tensor Project(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  return bias.has_value() ? tensord::Linear(x, weight, *bias) : tensord::Linear(x, weight);
}

Initializer::Initializer(const Device& device, std::optional<int64_t> seed)
    : device_(device), seed_(seed.has_value() ? *seed : tensord::internal::NewSeed()) {}

void Initializer::Uniform(Parameter* parameter, double bound) {
  const RandomStream stream = Next();
  if (parameter->has_value()) return;
  if (bound == 0) return Fill(parameter, 0);
  parameter->value =
      tensord::Uniform(device_, parameter->spec.shape, stream,
                       {.low = -bound, .high = bound, .dtype = parameter->spec.dtype});
}

void Initializer::Normal(Parameter* parameter) {
  const RandomStream stream = Next();
  if (parameter->has_value()) return;
  parameter->value =
      tensord::Normal(device_, parameter->spec.shape, stream, {.dtype = parameter->spec.dtype});
}

void Initializer::Fill(Parameter* parameter, Scalar value) {
  if (parameter->has_value()) return;
  parameter->value = Full(device_, parameter->spec.shape, value, {.dtype = parameter->spec.dtype});
}

double FanInBound(int64_t count) {
  return count > 0 ? 1 / std::sqrt(static_cast<double>(count)) : 0;
}

}  // namespace tensord::nn::internal
