#include "tensord/server/device/cuda/conv_products.h"

#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernels/conv.h"
#include "tensord/server/device/cuda/kernels/elementwise.h"
#include "tensord/server/device/cuda/kernels/movement.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cuda {
namespace {

// Returns the job that copies the windows of x, or of y if `transposed`.
ConvColumnsJob ColumnsOf(const ConvGeometry& g, bool transposed) {
  ConvColumnsJob job;
  job.channels = transposed ? g.out_channels : g.in_channels;
  job.transposed = transposed;
  for (int a = 0; a < ConvGeometry::kAxes; ++a) {
    job.size[a] = transposed ? g.out[a] : g.in[a];
    job.grid[a] = transposed ? g.in[a] : g.out[a];
    job.kernel[a] = g.kernel[a];
    job.stride[a] = g.stride[a];
    job.dilation[a] = g.dilation[a];
    job.low[a] = g.low[a];
  }
  return job;
}

MatmulProblem ProblemOf(const ConvProblem& conv, bool float32_out) {
  MatmulProblem problem;
  problem.dtype = conv.dtype;
  problem.float32_out = float32_out;
  problem.allow_tf32 = conv.allow_tf32;
  return problem;
}

// Computes, for each image and group, weights (rows, depth) · columns (depth, positions) ->
// (rows, positions).
class ColumnProducts {
 public:
  // `weights` is (groups, rows, depth). `columns` describes the windows of one image.
  ColumnProducts(const ConvProblem& conv, bool float32_out, const ConvColumnsJob& columns,
                 ReusedScratch& scratch, const void* weights, int64_t rows, const KernelCall& call,
                 KernelContext& context)
      : conv_(conv),
        float32_out_(float32_out),
        columns_(columns),
        scratch_(scratch),
        weights_(weights),
        rows_(rows),
        groups_(conv.geometry.groups),
        depth_(columns.channels / groups_ * columns.taps()),
        positions_(columns.grid[0] * columns.grid[1] * columns.grid[2]),
        element_bytes_(SizeOf(conv.dtype)),
        out_element_bytes_(float32_out ? SizeOf(DType::kFloat32) : element_bytes_),
        call_(call),
        context_(context) {}

  absl::Status Run(const void* from, void* out) {
    const int64_t images = conv_.geometry.batch;
    const int64_t position_bytes = std::max<int64_t>(1, groups_ * depth_ * element_bytes_);
    const int64_t all_at_once = kMaxConvScratchBytes / position_bytes;  // positions
    const int64_t images_at_once = std::clamp(all_at_once / positions_, int64_t{1}, images);
    const int64_t positions_at_once = std::clamp(all_at_once, int64_t{1}, positions_);
    TENSORD_ASSIGN_OR_RETURN(columns_.to,
                             scratch_.Get(images_at_once * positions_at_once * position_bytes));
    const int64_t from_bytes =
        columns_.channels * columns_.size[0] * columns_.size[1] * columns_.size[2] * element_bytes_;
    const int64_t out_bytes = groups_ * rows_ * positions_ * out_element_bytes_;
    for (int64_t image = 0; image < images; image += images_at_once) {
      TENSORD_RETURN_IF_ERROR(CheckStop());
      columns_.images = std::min(images_at_once, images - image);
      columns_.from = static_cast<const char*>(from) + image * from_bytes;
      for (int64_t first = 0; first < positions_; first += positions_at_once) {
        columns_.first_position = first;
        columns_.positions = std::min(positions_at_once, positions_ - first);
        TENSORD_RETURN_IF_ERROR(LaunchStatus(
            call_, LaunchConvColumns(columns_, static_cast<int>(element_bytes_), context_.stream)));
        TENSORD_RETURN_IF_ERROR(
            Multiply(static_cast<char*>(out) + image * out_bytes + first * out_element_bytes_));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Multiplies the columns in the scratch memory. A batch of the library has one stride, so it
  // consists of the images of one group, or of the groups of one image.
  absl::Status Multiply(char* out) {
    const int64_t images = columns_.images, positions = columns_.positions;
    MatmulProblem problem = ProblemOf(conv_, float32_out_);
    problem.m = rows_;
    problem.n = positions;
    problem.k = depth_;
    if (positions < positions_) problem.out_row_stride = positions_;
    const bool by_group = images > groups_;
    problem.batch = by_group ? images : groups_;
    problem.a_stride = by_group ? 0 : rows_ * depth_;
    problem.b_stride = (by_group ? groups_ : 1) * depth_ * positions;
    problem.out_stride = (by_group ? groups_ : 1) * rows_ * positions_;
    for (int64_t i = 0; i < (by_group ? groups_ : images); ++i) {
      const int64_t weights = by_group ? i * rows_ * depth_ : 0;
      const int64_t columns = (by_group ? 1 : groups_) * i * depth_ * positions;
      const int64_t result = (by_group ? 1 : groups_) * i * rows_ * positions_;
      TENSORD_RETURN_IF_ERROR(
          MultiplyItems(problem, static_cast<const char*>(weights_) + weights * element_bytes_,
                        static_cast<const char*>(columns_.to) + columns * element_bytes_,
                        out + result * out_element_bytes_, *context_.blas));
    }
    return absl::OkStatus();
  }

  const ConvProblem& conv_;
  const bool float32_out_;
  ConvColumnsJob columns_;
  ReusedScratch& scratch_;
  const void* const weights_;
  const int64_t rows_, groups_, depth_, positions_, element_bytes_, out_element_bytes_;
  const KernelCall& call_;
  KernelContext& context_;
};

// Copies the weight (O,C/groups,kernel…) as (groups,C/groups,O/groups,kernel…).
absl::Status TransposeWeight(const ConvProblem& conv, const void* weight, void* to,
                             const KernelCall& call, KernelContext& context) {
  const ConvGeometry& g = conv.geometry;
  const int64_t taps = g.taps(), ins = g.group_in(), outs = g.group_out();
  const int64_t extent[] = {g.groups, ins, outs, taps};
  const int64_t from_strides[] = {outs * ins * taps, taps, ins * taps, 1};
  const int64_t to_strides[] = {outs * ins * taps, outs * taps, taps, 1};
  return LaunchStatus(
      call,
      LaunchStridedCopy(weight, to, static_cast<int>(SizeOf(conv.dtype)),
                        MakeStridedLoop<2>(4, extent, {from_strides, to_strides}), context.stream));
}

// x's gradient is a product of the weight and the windows of y's gradient around each element of x.
absl::Status BackwardInput(const ConvProblem& conv, const ConvAddresses& addresses,
                           ReusedScratch& columns, const KernelCall& call, KernelContext& context) {
  const int64_t bytes = conv.geometry.weight_elements() * SizeOf(conv.dtype);
  TENSORD_ASSIGN_OR_RETURN(const Scratch weight, MakeScratch(context, bytes));
  TENSORD_RETURN_IF_ERROR(TransposeWeight(conv, addresses.w, weight.data(), call, context));
  return ColumnProducts(conv, /*float32_out=*/false, ColumnsOf(conv.geometry, /*transposed=*/true),
                        columns, weight.data(), conv.geometry.group_in(), call, context)
      .Run(addresses.y, addresses.x);
}

// For each image and group, adds y's gradient (O/groups, positions) · the columns' transpose
// (positions, depth) to `out`, (O/groups, depth). The images are added in order. For 16-bit dtypes
// `out` is float32.
absl::Status AddWeightGradients(const ConvProblem& conv, const ConvAddresses& addresses, void* out,
                                ReusedScratch& scratch, const KernelCall& call,
                                KernelContext& context) {
  const ConvGeometry& g = conv.geometry;
  const int64_t element_bytes = SizeOf(conv.dtype);
  const int64_t positions = g.out_elements(), depth = g.group_in() * g.taps();
  const int64_t position_bytes = std::max<int64_t>(1, g.groups * depth * element_bytes);
  const int64_t at_once = std::clamp(kMaxConvScratchBytes / position_bytes, int64_t{1}, positions);
  ConvColumnsJob columns = ColumnsOf(g, /*transposed=*/false);
  TENSORD_ASSIGN_OR_RETURN(columns.to, scratch.Get(at_once * position_bytes));
  MatmulProblem problem = ProblemOf(conv, /*float32_out=*/element_bytes == 2);
  problem.transpose_b = true;
  problem.m = g.group_out();
  problem.n = depth;
  problem.batch = g.groups;
  problem.a_stride = g.group_out() * positions;
  problem.a_row_stride = positions;
  for (int64_t image = 0; image < g.batch; ++image) {
    TENSORD_RETURN_IF_ERROR(CheckStop());
    columns.from = static_cast<const char*>(addresses.x) +
                   image * g.in_channels * g.in_elements() * element_bytes;
    const char* const gradient =
        static_cast<const char*>(addresses.y) + image * g.out_channels * positions * element_bytes;
    for (int64_t first = 0; first < positions; first += at_once) {
      columns.first_position = first;
      columns.positions = problem.k = std::min(at_once, positions - first);
      problem.b_stride = depth * problem.k;
      TENSORD_RETURN_IF_ERROR(LaunchStatus(
          call, LaunchConvColumns(columns, static_cast<int>(element_bytes), context.stream)));
      TENSORD_RETURN_IF_ERROR(
          MultiplyItems(problem, gradient + first * element_bytes, columns.to, out, *context.blas));
      problem.accumulates = true;
    }
  }
  return absl::OkStatus();
}

// For 16-bit dtypes, adds in float32 and rounds the sum once.
absl::Status BackwardWeight(const ConvProblem& conv, const ConvAddresses& addresses,
                            ReusedScratch& columns, const KernelCall& call,
                            KernelContext& context) {
  if (SizeOf(conv.dtype) != 2) {
    return AddWeightGradients(conv, addresses, addresses.w, columns, call, context);
  }
  const int64_t count = conv.geometry.weight_elements();
  TENSORD_ASSIGN_OR_RETURN(const Scratch sum,
                           MakeScratch(context, count * SizeOf(DType::kFloat32)));
  TENSORD_RETURN_IF_ERROR(AddWeightGradients(conv, addresses, sum.data(), columns, call, context));
  const UnaryLauncher round = CastLauncher(DTypeNumber(DType::kFloat32), DTypeNumber(conv.dtype));
  if (round == nullptr) return NoKernelError(call);
  return LaunchStatus(call, round(sum.data(), addresses.w, count, context.stream));
}

}  // namespace

absl::StatusOr<void*> ReusedScratch::Get(int64_t bytes) {
  if (bytes > bytes_) {
    scratch_.reset();  // first, so that the new memory may be the same
    bytes_ = 0;
    TENSORD_ASSIGN_OR_RETURN(scratch_, MakeScratch(context_, bytes));
    bytes_ = bytes;
  }
  return bytes == 0 ? nullptr : scratch_->data();
}

absl::Status ConvolveByProducts(const ConvProblem& problem, bool float32_out,
                                const ConvAddresses& addresses, ReusedScratch& columns,
                                const KernelCall& call, KernelContext& context) {
  switch (problem.kind) {
    case ConvKind::kForward:
      return ColumnProducts(problem, float32_out, ColumnsOf(problem.geometry, /*transposed=*/false),
                            columns, addresses.w, problem.geometry.group_out(), call, context)
          .Run(addresses.x, addresses.y);
    case ConvKind::kBackwardInput:
      return BackwardInput(problem, addresses, columns, call, context);
    case ConvKind::kBackwardWeight:
      return BackwardWeight(problem, addresses, columns, call, context);
  }
  return NoKernelError(call);
}

}  // namespace tensord::server::cuda
