#include "tensord/server/device/cpu/gemm.h"
#include "tensord/server/device/cpu/kernel_table.h"

namespace tensord::server::cpu {
namespace {

// Returns an operand's leading dimensions. A vector has none.
Shape BatchOf(const Shape& shape) {
  return shape.rank() <= 2 ? Shape() : Shape(shape.dims().first(shape.rank() - 2));
}

// Returns the axes of the items of `out_batch` in an operand with the batch dimensions `batch`. If
// the items lie one after another, returns nullopt.
std::optional<StridedAxes> ItemAxes(const Shape& batch, const Shape& out_batch) {
  if (batch.num_elements() == out_batch.num_elements()) return std::nullopt;
  const absl::Span<const int64_t> sizes = out_batch.dims();
  return StridedAxes{Dims(sizes.begin(), sizes.end()), BroadcastStrides(batch, out_batch)};
}

}  // namespace

BatchedGemm MatmulGemm(const Attributes& attrs, absl::Span<const Operand> inputs,
                       const Operand& output) {
  const Shape& a = inputs[0].spec->shape;
  const Shape& b = inputs[1].spec->shape;
  BatchedGemm gemm;
  gemm.dtype = output.spec->dtype;
  gemm.transpose_a = attrs.Bool("transpose_a");
  gemm.transpose_b = attrs.Bool("transpose_b");
  const int64_t a_rows = a.rank() == 1 ? 1 : a.dim(a.rank() - 2);
  const int64_t a_cols = a.dim(a.rank() - 1);
  const int64_t b_rows = b.rank() == 1 ? b.dim(0) : b.dim(b.rank() - 2);
  const int64_t b_cols = b.rank() == 1 ? 1 : b.dim(b.rank() - 1);
  gemm.m = gemm.transpose_a ? a_cols : a_rows;
  gemm.k = gemm.transpose_a ? a_rows : a_cols;
  gemm.n = gemm.transpose_b ? b_rows : b_cols;
  gemm.a = inputs[0].data;
  gemm.b = inputs[1].data;
  gemm.c = output.data;
  gemm.a_elements = a.num_elements();
  gemm.b_elements = b.num_elements();
  const Shape& out = output.spec->shape;
  const int matrix_axes = (a.rank() > 1 ? 1 : 0) + (b.rank() > 1 ? 1 : 0);
  const Shape out_batch(out.dims().first(out.rank() - matrix_axes));
  gemm.items = out_batch.num_elements();
  const Shape a_batch = BatchOf(a), b_batch = BatchOf(b);
  if (b_batch.num_elements() == 1 && !gemm.transpose_a && a_batch.num_elements() == gemm.items) {
    gemm.m *= gemm.items;  // all items share the right matrix, so their rows make one tall matrix
    gemm.items = 1;
    return gemm;
  }
  gemm.a_axes = ItemAxes(a_batch, out_batch);
  gemm.b_axes = ItemAxes(b_batch, out_batch);
  return gemm;
}

namespace {

absl::Status MatmulKernel(const Context& ctx, const KernelCall& call) {
  const DType dtype = call.output().spec->dtype;
  if (call.inputs[0].spec->dtype != dtype || call.inputs[1].spec->dtype != dtype) {
    return NoKernel(call);
  }
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  return RunGemm(ctx, call, MatmulGemm(*call.attrs, call.inputs, call.output()));
}

}  // namespace

void AppendMatmulKernels(KernelTable& table) { table["matmul"] = MatmulKernel; }

}  // namespace tensord::server::cpu
