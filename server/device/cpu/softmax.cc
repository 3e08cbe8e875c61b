#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kSoftmaxTileColumns = 128;
constexpr int64_t kConvertedElements = 16 * 1024;  // the most that are converted at a time

// (outer, extent, inner). The softmax is over `extent`.
struct SoftmaxShape {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
};

SoftmaxShape ShapeOf(const KernelCall& call) {
  const Shape& in = call.inputs[0].spec->shape;
  const int64_t axis = call.attrs->Int("axis");
  SoftmaxShape shape;
  for (int i = 0; i < in.rank(); ++i) {
    (i < axis ? shape.outer : i == axis ? shape.extent : shape.inner) *= in.dim(i);
  }
  return shape;
}

// Computes a row or a tile of columns of 16-bit elements. Converts the elements to float32 in
// `work`, which has room for the operand and the result.
void Run16Bit(const Context& ctx, const SoftmaxLoops& loops, DType dtype, const char* x, char* y,
              const SoftmaxShape& shape, int64_t width, float* work) {
  // A long row is converted as a matrix of shorter rows.
  const bool is_row = shape.inner == 1;
  const int64_t length = is_row ? std::min(shape.extent, kConvertedElements) : width;
  const int64_t stride = is_row ? length : shape.inner;
  const int64_t elements = shape.extent * width;
  float* result = work + elements;
  const auto for_rows = [&](absl::FunctionRef<void(int64_t at, int64_t row, int64_t n)> fn) {
    Team::InPieces(
        0, elements, kGrainElements,
        [&](int64_t begin, int64_t end) {
          for (int64_t at = begin; at < end; at += length) {
            fn(at, at / length, std::min(length, end - at));
          }
        },
        length);
  };
  for_rows([&](int64_t at, int64_t row, int64_t n) {
    Convert(ctx.loops, dtype, x + row * stride * 2, DType::kFloat32, work + at, n);
  });
  if (is_row) {
    loops.row(work, result, shape.extent);
  } else {
    loops.columns(work, result, shape.extent, width, width);
  }
  for_rows([&](int64_t at, int64_t row, int64_t n) {
    Convert(ctx.loops, DType::kFloat32, result + at, dtype, y + row * stride * 2, n);
  });
}

absl::Status Run(const Context& ctx, const KernelCall& call, const SoftmaxLoops& loops) {
  if (loops.row == nullptr) return NoKernel(call);
  const DType dtype = call.inputs[0].spec->dtype;
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const int64_t size = SizeOf(dtype);
  const SoftmaxShape shape = ShapeOf(call);
  const int64_t tiles = (shape.inner + kSoftmaxTileColumns - 1) / kSoftmaxTileColumns;
  const int64_t widest = std::min(kSoftmaxTileColumns, shape.inner);
  const int64_t work_elements = Is16Bit(dtype) ? 2 * shape.extent * widest : 0;
  TENSORD_ASSIGN_OR_RETURN(const Scratch work,
                           MakeScratch(ctx, call, work_elements * 4 * ctx.team.threads()));
  const int64_t items = shape.outer * tiles;
  const double grain = kGrainElements / 4 / static_cast<double>(shape.extent * widest);
  ctx.team.For(items, grain, [&](int64_t begin, int64_t end) {
    float* own_work = work.As<float>() + Team::Current() * work_elements;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i % tiles * kSoftmaxTileColumns;
      const int64_t offset = (i / tiles * shape.extent * shape.inner + c) * size;
      const int64_t width = std::min(kSoftmaxTileColumns, shape.inner - c);
      const char* x = Advance(call.inputs[0].data, offset);
      char* y = Advance(call.output().data, offset);
      if (Is16Bit(dtype)) {
        Run16Bit(ctx, loops, dtype, x, y, shape, width, own_work);
      } else if (shape.inner == 1) {
        loops.row(x, y, shape.extent);
      } else {
        loops.columns(x, y, shape.extent, shape.inner, width);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status SoftmaxKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.softmax[Index(ComputeDType(call.inputs[0].spec->dtype))]);
}

absl::Status LogSoftmaxKernel(const Context& ctx, const KernelCall& call) {
  return Run(ctx, call, ctx.loops.log_softmax[Index(ComputeDType(call.inputs[0].spec->dtype))]);
}

}  // namespace

void AppendSoftmaxKernels(KernelTable& table) {
  table["softmax"] = SoftmaxKernel;
  table["log_softmax"] = LogSoftmaxKernel;
}

}  // namespace tensord::server::cpu
