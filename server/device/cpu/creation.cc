#include <string.h>

#include <algorithm>
#include <variant>

#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/strided_copy.h"
#include "tensord/server/device/diagonal.h"

namespace tensord::server::cpu {
namespace {

// A value, which is a bool, an int64 or a double, as an element of a dtype. If the dtype is
// complex, the value is the real part, and the imaginary part is 0.
struct Element {
  alignas(8) char bytes[kMaxElementBytes] = {};

  Element(const Context& ctx, const AttrValue& value, DType dtype) {
    ConvertNumber(ctx.loops, value, RealDTypeOf(dtype), bytes);
  }
};

absl::Status FillWith(const Context& ctx, const KernelCall& call, const AttrValue& value) {
  const DType dtype = call.output().spec->dtype;
  const Element element(ctx, value, dtype);
  Fill(ctx, element.bytes, SizeOf(dtype), call.output().data, call.output().spec->num_elements());
  return absl::OkStatus();
}

// Computes the elements start + i step in T, and converts them to the output's dtype.
template <typename T>
absl::Status Arange(const Context& ctx, const KernelCall& call, DType computed, T start, T step) {
  const DType dtype = call.output().spec->dtype;
  const int64_t size = SizeOf(dtype);
  const auto fill = [&](int64_t begin, int64_t end) {
    T block[kBlockElements];
    for (int64_t i = begin; i < end; i += kBlockElements) {
      const int64_t n = std::min<int64_t>(kBlockElements, end - i);
      for (int64_t j = 0; j < n; ++j) block[j] = start + static_cast<T>(i + j) * step;
      Convert(ctx.loops, computed, block, dtype, Advance(call.output().data, i * size), n);
    }
  };
  ctx.team.For(call.output().spec->num_elements(), kGrainElements, fill, kBlockElements);
  return absl::OkStatus();
}

absl::Status ZerosKernel(const Context& ctx, const KernelCall& call) {
  return FillWith(ctx, call, int64_t{0});
}

absl::Status OnesKernel(const Context& ctx, const KernelCall& call) {
  return FillWith(ctx, call, int64_t{1});
}

absl::Status FullKernel(const Context& ctx, const KernelCall& call) {
  return FillWith(ctx, call, *call.attrs->Find("value"));
}

absl::Status ArangeKernel(const Context& ctx, const KernelCall& call) {
  if (std::holds_alternative<int64_t>(*call.attrs->Find("start"))) {
    return Arange(ctx, call, DType::kInt64, call.attrs->Int("start"), call.attrs->Int("step"));
  }
  return Arange(ctx, call, DType::kFloat64, call.attrs->Float("start"), call.attrs->Float("step"));
}

absl::Status EyeKernel(const Context& ctx, const KernelCall& call) {
  const DType dtype = call.output().spec->dtype;
  const int64_t size = SizeOf(dtype);
  const int64_t rows = call.output().spec->shape.dim(0), cols = call.output().spec->shape.dim(1);
  const Element zero(ctx, int64_t{0}, dtype), one(ctx, int64_t{1}, dtype);
  Fill(ctx, zero.bytes, size, call.output().data, rows * cols);
  const Diagonal diagonal = FindDiagonal(rows, cols, call.attrs->Int("k"));
  for (int64_t i = 0; i < diagonal.size; ++i) {
    memcpy(Advance(call.output().data, (diagonal.first + i * (cols + 1)) * size), one.bytes, size);
  }
  return absl::OkStatus();
}

}  // namespace

void AppendCreationKernels(KernelTable& table) {
  table["zeros"] = ZerosKernel;
  table["ones"] = OnesKernel;
  table["full"] = FullKernel;
  table["arange"] = ArangeKernel;
  table["eye"] = EyeKernel;
}

}  // namespace tensord::server::cpu
