#include "tensord/client/nn/pooling.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/module.h"
#include "tensord/client/ops.h"

namespace tensord::nn {
namespace {

// Returns one number for each of the two axes, where the caller may have given one for both.
std::vector<int64_t> BothAxes(std::vector<int64_t> values) {
  if (values.size() == 1) values.push_back(values[0]);
  return values;
}

// Returns "3" if all numbers are equal, otherwise "(3, 2)". No numbers give `otherwise`.
std::string NumbersToString(const std::vector<int64_t>& values, absl::string_view otherwise) {
  if (values.empty()) return std::string(otherwise);
  for (const int64_t value : values) {
    if (value != values[0]) return internal::PythonTuple(values);
  }
  return absl::StrCat(values[0]);
}

// Checks that the kernel has two axes and that x has three or four.
absl::Status CheckImage(const Module& module, const std::vector<int64_t>& kernel, const Tensor& x) {
  if (!x.ok()) return x.status();
  const std::string name = absl::StrCat("nn::", internal::KindOf(module), ": ");
  if (kernel.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "the kernel has ", kernel.size(), " numbers, and must have one or two"));
  }
  if (x.rank() == 3 || x.rank() == 4) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "x has shape ", x.shape().ToString(),
                                                 ", and must be (N,C,H,W) or (C,H,W)"));
}

}  // namespace

MaxPool2d::MaxPool2d(PoolOptions options) : options_(std::move(options)) {
  options_.kernel = BothAxes(std::move(options_.kernel));
}

Tensor MaxPool2d::Forward(const Tensor& x) const {
  const absl::Status status = CheckImage(*this, options_.kernel, x);
  return status.ok() ? MaxPool(x, options_) : Tensor::Failed(status);
}

std::string MaxPool2d::ToString() const {
  const std::string kernel = NumbersToString(options_.kernel, "");
  return absl::StrCat("MaxPool2d(kernel_size=", kernel,
                      ", stride=", NumbersToString(options_.stride, kernel),
                      ", padding=", NumbersToString(options_.padding, "0"),
                      ", dilation=", NumbersToString(options_.dilation, "1"),
                      ", ceil_mode=", internal::PythonBool(options_.ceil_mode), ")");
}

AvgPool2d::AvgPool2d(AvgPoolOptions options) : options_(std::move(options)) {
  options_.kernel = BothAxes(std::move(options_.kernel));
}

Tensor AvgPool2d::Forward(const Tensor& x) const {
  const absl::Status status = CheckImage(*this, options_.kernel, x);
  return status.ok() ? AvgPool(x, options_) : Tensor::Failed(status);
}

std::string AvgPool2d::ToString() const {
  const std::string kernel = NumbersToString(options_.kernel, "");
  return absl::StrCat("AvgPool2d(kernel_size=", kernel,
                      ", stride=", NumbersToString(options_.stride, kernel),
                      ", padding=", NumbersToString(options_.padding, "0"), ")");
}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(std::vector<int64_t> output_size)
    : output_size_(BothAxes(std::move(output_size))) {}

Tensor AdaptiveAvgPool2d::Forward(const Tensor& x) const {
  const absl::Status status = CheckImage(*this, output_size_, x);
  if (!status.ok()) return Tensor::Failed(status);
  const int64_t height = x.shape().dim(x.rank() - 2), width = x.shape().dim(x.rank() - 1);
  if (output_size_[0] == 1 && output_size_[1] == 1) {
    return Mean(x, {.axes = {-2, -1}, .keepdims = true});
  }
  if (output_size_[0] < 1 || output_size_[1] < 1 || height % output_size_[0] != 0 ||
      width % output_size_[1] != 0) {
    return Tensor::Failed(absl::UnimplementedError(
        absl::StrCat("nn::", ToString(), ": the sizes of x, ", height, " and ", width,
                     ", must be multiples of these numbers")));
  }
  return AvgPool(x, {.kernel = {height / output_size_[0], width / output_size_[1]}});
}

std::string AdaptiveAvgPool2d::ToString() const {
  return absl::StrCat("AdaptiveAvgPool2d(output_size=", internal::PythonTuple(output_size_), ")");
}

}  // namespace tensord::nn
