// Matrix products and linear layers.
#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/blas.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/elementwise.h"
#include "tensord/server/device/cuda/kernels/integer_matmul.h"
#include "tensord/server/device/cuda/kernels/linear_epilogue.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cuda {
namespace {

// A matmul as products of matrices: (m, k) · (k, n) -> (m, n) for each index of `batch`. `batch`
// has the strides of (a, b) in elements. The output's items lie one after another.
struct BatchedMatmul {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 1, n = 1, k = 1;
  StridedLoop<2> batch;
};

// Returns the dimensions of an operand except the last two.
Shape BatchShape(const Shape& shape) {
  return Shape(shape.dims().first(std::max(shape.rank() - 2, 0)));
}

Dims BatchStrides(const Shape& operand, const Shape& batch, int64_t matrix_elements) {
  Dims strides = BroadcastStrides(BatchShape(operand), batch);
  for (int64_t& stride : strides) stride *= matrix_elements;
  return strides;
}

// A vector is a row on the left and a column on the right.
BatchedMatmul DescribeMatmul(const KernelCall& call) {
  const Shape& a = call.inputs[0].spec->shape;
  const Shape& b = call.inputs[1].spec->shape;
  BatchedMatmul matmul;
  matmul.transpose_a = call.attrs->Bool("transpose_a");
  matmul.transpose_b = call.attrs->Bool("transpose_b");
  matmul.k = a.dim(a.rank() - 1);
  if (a.rank() > 1) {
    matmul.m = a.dim(a.rank() - 2);
    if (matmul.transpose_a) std::swap(matmul.m, matmul.k);
  }
  if (b.rank() > 1) matmul.n = b.dim(b.rank() - (matmul.transpose_b ? 2 : 1));
  const Shape& out = call.output().spec->shape;
  const int matrix_dims = (a.rank() > 1 ? 1 : 0) + (b.rank() > 1 ? 1 : 0);
  const Shape batch(out.dims().first(out.rank() - matrix_dims));
  const Dims a_strides = BatchStrides(a, batch, matmul.m * matmul.k);
  const Dims b_strides = BatchStrides(b, batch, matmul.k * matmul.n);
  matmul.batch =
      MakeStridedLoop<2>(batch.rank(), batch.dims().data(), {a_strides.data(), b_strides.data()});
  return matmul;
}

// The maximum number of rows of a matrix in cuBLASLt.
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

// If all items share the right matrix, makes one product of them: the left matrices become one tall
// matrix.
void FoldBatchIntoRows(BatchedMatmul& matmul) {
  const StridedLoop<2>& batch = matmul.batch;
  const bool folds = !matmul.transpose_a && batch.rank == 1 && batch.stride[1][0] == 0 &&
                     batch.stride[0][0] == matmul.m * matmul.k && batch.size > 1 &&
                     matmul.m <= kMaxRows / batch.size;
  if (!folds) return;
  matmul.m *= batch.size;
  matmul.batch = MakeStridedLoop<2>(0, nullptr, {nullptr, nullptr});
}

const void* At(const void* data, int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * SizeOf(dtype);
}

void* At(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * SizeOf(dtype);
}

// A batch of the library has one stride. So this function loops over all batch axes except the
// last.
absl::Status MultiplyFloating(const KernelCall& call, const BatchedMatmul& matmul,
                              KernelContext& context) {
  const StridedLoop<2>& batch = matmul.batch;
  const int last = batch.rank - 1;
  MatmulProblem problem;
  problem.dtype = call.output().spec->dtype;
  problem.allow_tf32 = call.attrs->Bool("allow_tf32");
  problem.transpose_a = matmul.transpose_a;
  problem.transpose_b = matmul.transpose_b;
  problem.m = matmul.m;
  problem.n = matmul.n;
  problem.k = matmul.k;
  problem.batch = batch.extent[last];
  problem.a_stride = batch.stride[0][last];
  problem.b_stride = batch.stride[1][last];
  for (int64_t item = 0; item < batch.size; item += problem.batch) {
    int64_t offset[2];
    batch.Offsets(item, offset);
    TENSORD_RETURN_IF_ERROR(MultiplyItems(
        problem, At(call.inputs[0].data, offset[0], problem.dtype),
        At(call.inputs[1].data, offset[1], problem.dtype),
        At(call.output().data, item * problem.m * problem.n, problem.dtype), *context.blas));
  }
  return absl::OkStatus();
}

absl::Status MultiplyIntegers(const KernelCall& call, const BatchedMatmul& matmul,
                              KernelContext& context) {
  const IntegerMatmulLauncher launch = IntegerMatmulLaunchers()[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  IntegerMatmulJob job;
  job.a = call.inputs[0].data;
  job.b = call.inputs[1].data;
  job.out = call.output().data;
  job.m = matmul.m;
  job.n = matmul.n;
  job.k = matmul.k;
  job.a_row_stride = matmul.transpose_a ? 1 : matmul.k;
  job.a_column_stride = matmul.transpose_a ? matmul.m : 1;
  job.b_row_stride = matmul.transpose_b ? 1 : matmul.n;
  job.b_column_stride = matmul.transpose_b ? matmul.k : 1;
  job.batch = matmul.batch;
  return LaunchStatus(call, launch(job, context.stream));
}

absl::Status Zero(const KernelCall& call, KernelContext& context) {
  const auto bytes = static_cast<size_t>(call.output().spec->size_bytes());
  return LaunchStatus(call, cudaMemsetAsync(call.output().data, 0, bytes, context.stream));
}

absl::Status RunMatmul(const KernelCall& call, KernelContext& context) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  BatchedMatmul matmul = DescribeMatmul(call);
  if (matmul.k == 0) return Zero(call, context);
  FoldBatchIntoRows(matmul);
  if (!IsFloating(call.output().spec->dtype)) return MultiplyIntegers(call, matmul, context);
  return WithOperands(call, MultiplyFloating(call, matmul, context));
}

// out += bias, along the last of (rows, columns).
absl::Status AddBias(const KernelCall& call, int64_t rows, int64_t columns,
                     KernelContext& context) {
  const int64_t extent[] = {rows, columns};
  const int64_t out_strides[] = {columns, 1};
  const int64_t bias_strides[] = {0, 1};
  const auto loop = MakeStridedLoop<2>(2, extent, {out_strides, bias_strides});
  const BinaryLauncher add = FindBinaryLauncher(BinaryFunction::kAdd, DTypeNumber(call.output()));
  if (add == nullptr) return NoKernelError(call);
  return LaunchStatus(
      call, add(call.output().data, call.inputs[2].data, call.output().data, loop, context.stream));
}

absl::Status Activate(const KernelCall& call, UnaryFunction activation, KernelContext& context) {
  const UnaryLauncher launch = FindUnaryLauncher(activation, DTypeNumber(call.output()));
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(call.output().data, call.output().data,
                                   call.output().spec->num_elements(), context.stream));
}

// Returns the epilogue with which cuBLASLt applies the activation. Returns kNone for most
// activations. cuBLASLt's GELU is the approximation by tanh. It has relative errors of about 2^-11,
// as TensorFloat-32 and float16 have, so exact float32 doesn't use it.
Epilogue FusedActivation(std::optional<UnaryFunction> activation, const MatmulProblem& problem) {
  if (activation == UnaryFunction::kRelu) return Epilogue::kRelu;
  const bool exact = problem.dtype == DType::kFloat32 && !problem.allow_tf32;
  if (activation == UnaryFunction::kGeluTanh && !exact) return Epilogue::kGeluTanh;
  return Epilogue::kNone;
}

// Returns whether cuBLASLt rounds the product to 16 bits before it adds the bias. It does so if the
// rows of a 16-bit operand aren't aligned to 16 bytes.
bool RoundsBeforeBias(const MatmulProblem& problem, const KernelCall& call) {
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  return problem.n % 8 != 0 || problem.k % 8 != 0 || !is_aligned(call.inputs[0].data) ||
         !is_aligned(call.inputs[1].data) || !is_aligned(call.output().data);
}

struct LinearSteps {
  bool multiplied = false, biased = false, activated = false;
};

// Computes activation(x · wᵀ + bias) for 16-bit dtypes and rounds the result once. Multiplies some
// rows at a time, whose float32 product is stored in scratch memory. The scratch memory has at most
// kMaxScratchBytes, or one row.
absl::Status MultiplyInFloat32(const KernelCall& call, std::optional<UnaryFunction> activation,
                               MatmulProblem problem, KernelContext& context) {
  constexpr int64_t kMaxScratchBytes = int64_t{32} << 20;
  const LinearEpilogueLauncher launch_epilogue =
      FindLinearEpilogue(activation, DTypeNumber(call.output()));
  if (launch_epilogue == nullptr) return NoKernelError(call);
  const int64_t row_bytes = problem.n * static_cast<int64_t>(sizeof(float));
  const int64_t all_rows = problem.m;
  const int64_t rows_at_once = std::clamp(kMaxScratchBytes / row_bytes, int64_t{1}, all_rows);
  TENSORD_ASSIGN_OR_RETURN(const Scratch product, MakeScratch(context, rows_at_once * row_bytes));
  problem.float32_out = true;
  for (int64_t row = 0; row < all_rows; row += rows_at_once) {
    TENSORD_RETURN_IF_ERROR(CheckStop());
    problem.m = std::min(rows_at_once, all_rows - row);
    TENSORD_RETURN_IF_ERROR(
        context.blas->Multiply(problem, At(call.inputs[0].data, row * problem.k, problem.dtype),
                               call.inputs[1].data, nullptr, product.data()));
    const int64_t extent[] = {problem.m, problem.n};
    const int64_t bias_strides[] = {0, 1};
    LinearEpilogueJob job;
    job.product = static_cast<const float*>(product.data());
    job.bias = call.inputs.size() < 3 ? nullptr : call.inputs[2].data;
    job.out = At(call.output().data, row * problem.n, problem.dtype);
    job.loop = MakeStridedLoop<1>(2, extent, {bias_strides});
    TENSORD_RETURN_IF_ERROR(LaunchStatus(call, launch_epilogue(job, context.stream)));
  }
  return absl::OkStatus();
}

// Computes x · wᵀ. Sets in `steps` whether bias and activation have been applied, too. For float16
// and bfloat16 it applies both, so that the result is rounded once.
absl::Status MultiplyLinear(const KernelCall& call, std::optional<UnaryFunction> activation,
                            MatmulProblem problem, KernelContext& context, LinearSteps& steps) {
  const void* bias = steps.biased ? nullptr : call.inputs[2].data;
  MatmulProblem fused = problem;
  fused.bias = bias != nullptr;
  fused.epilogue = FusedActivation(activation, problem);
  const bool is_16_bit = SizeOf(problem.dtype) == 2;
  const bool has_epilogue = fused.epilogue != Epilogue::kNone;
  const bool fuses =
      (fused.bias || has_epilogue) &&
      problem.dtype != DType::kFloat64 &&  // cuBLASLt has no float64 epilogues
      (!is_16_bit || ((steps.activated || has_epilogue) && !RoundsBeforeBias(problem, call)));
  if (fuses) {
    const absl::Status status = context.blas->Multiply(
        fused, call.inputs[0].data, call.inputs[1].data, bias, call.output().data);
    if (!absl::IsUnimplemented(status)) {
      steps.biased = true;
      steps.activated |= fused.epilogue != Epilogue::kNone;
      return status;
    }
  }
  if (is_16_bit && !(steps.biased && steps.activated)) {
    steps.biased = steps.activated = true;
    return MultiplyInFloat32(call, activation, problem, context);
  }
  return context.blas->Multiply(problem, call.inputs[0].data, call.inputs[1].data, nullptr,
                                call.output().data);
}

// (…,in)·(out,in)ᵀ + (out) -> (…,out)
absl::Status RunLinear(const KernelCall& call, KernelContext& context) {
  const TensorSpec& out = *call.output().spec;
  if (out.num_elements() == 0) return absl::OkStatus();
  const std::optional<UnaryFunction> activation = FindActivation(call.attrs->String("activation"));
  MatmulProblem problem;
  problem.dtype = out.dtype;
  problem.allow_tf32 = call.attrs->Bool("allow_tf32");
  problem.transpose_b = true;
  problem.n = call.inputs[1].spec->shape.dim(0);
  problem.k = call.inputs[1].spec->shape.dim(1);
  problem.m = out.num_elements() / problem.n;
  LinearSteps steps;
  steps.biased = call.inputs.size() < 3;
  steps.activated = !activation.has_value();
  if (problem.k == 0) {
    TENSORD_RETURN_IF_ERROR(Zero(call, context));
  } else {
    TENSORD_RETURN_IF_ERROR(
        WithOperands(call, MultiplyLinear(call, activation, problem, context, steps)));
  }
  if (!steps.biased) TENSORD_RETURN_IF_ERROR(AddBias(call, problem.m, problem.n, context));
  return steps.activated ? absl::OkStatus() : Activate(call, *activation, context);
}

}  // namespace

void AppendMatmulKernels(KernelTable& table) {
  table["matmul"] = RunMatmul;
  table["linear"] = RunLinear;
}

}  // namespace tensord::server::cuda
