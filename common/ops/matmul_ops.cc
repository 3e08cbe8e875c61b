// Matrix products.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// An operand of matmul as a batch of matrices.
struct MatrixOperand {
  Shape batch;
  int64_t rows;
  int64_t columns;
};

// A vector on the left becomes a row, a vector on the right a column.
MatrixOperand AsMatrices(const Shape& shape, bool transposed, bool is_left) {
  const int rank = shape.rank();
  if (rank == 1) {
    return is_left ? MatrixOperand{{}, 1, shape.dim(0)} : MatrixOperand{{}, shape.dim(0), 1};
  }
  MatrixOperand operand{Shape(shape.dims().first(rank - 2)), shape.dim(rank - 2),
                        shape.dim(rank - 1)};
  if (transposed) std::swap(operand.rows, operand.columns);
  return operand;
}

absl::Status CheckMatmulRanks(const InferenceContext& ctx) {
  for (int i = 0; i < 2; ++i) {
    const int rank = ctx.input(i).shape.rank();
    if (rank == 0) {
      return ctx.Error("a scalar has no rows to multiply with: use mul, or reshape it to [1]");
    }
    const char* flag = i == 0 ? "transpose_a" : "transpose_b";
    if (rank == 1 && ctx.attrs().Bool(flag)) {
      return ctx.Error(absl::StrCat(flag,
                                    " is set for a vector, which has nothing to transpose: "
                                    "leave it out, or reshape the vector to a matrix"));
    }
  }
  return absl::OkStatus();
}

// "(3,4)"; "(3)" for a vector.
std::string OperandText(const InferenceContext& ctx, int i, const MatrixOperand& operand) {
  const Shape& shape = ctx.input(i).shape;
  if (shape.rank() == 1) return absl::StrCat("(", shape.dim(0), ")");
  return absl::StrCat("(", operand.rows, ",", operand.columns, ")");
}

absl::Status InnerDimensionError(const InferenceContext& ctx, const MatrixOperand& a,
                                 const MatrixOperand& b) {
  const char* hint = "";
  if (ctx.input(1).shape.rank() > 1 && a.columns == b.columns) {
    hint = ctx.attrs().Bool("transpose_b") ? "; without transpose_b they would match"
                                           : "; with transpose_b they would match";
  } else if (ctx.input(0).shape.rank() > 1 && a.rows == b.rows) {
    hint = ctx.attrs().Bool("transpose_a") ? "; without transpose_a they would match"
                                           : "; with transpose_a they would match";
  }
  return ctx.Error(absl::StrCat("inner dimensions differ: ", OperandText(ctx, 0, a), "·",
                                OperandText(ctx, 1, b), " needs ", a.columns, " == ", b.rows,
                                hint));
}

absl::Status InferMatmul(InferenceContext& ctx) {
  TENSORD_RETURN_IF_ERROR(CheckMatmulRanks(ctx));
  for (int i = 0; i < 2; ++i) TENSORD_RETURN_IF_ERROR(RequireNumber(ctx, ctx.input(i).dtype));
  const Shape& left = ctx.input(0).shape;
  const Shape& right = ctx.input(1).shape;
  const MatrixOperand a = AsMatrices(left, ctx.attrs().Bool("transpose_a"), true);
  const MatrixOperand b = AsMatrices(right, ctx.attrs().Bool("transpose_b"), false);
  if (a.columns != b.rows) return InnerDimensionError(ctx, a, b);
  absl::StatusOr<Shape> shape = BroadcastShapes(a.batch, b.batch);
  if (!shape.ok()) return ctx.Error(absl::StrCat("batch ", shape.status().message()));
  if (left.rank() > 1) shape->AppendDim(a.rows);
  if (right.rank() > 1) shape->AppendDim(b.columns);
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  ctx.AddOutput(dtype, *std::move(shape));
  return absl::OkStatus();
}

absl::Status CheckLinearShapes(const InferenceContext& ctx) {
  const Shape& x = ctx.input(0).shape;
  const Shape& w = ctx.input(1).shape;
  if (x.rank() == 0) return ctx.Error("x is a scalar and must be (…,in): reshape it to [1]");
  if (w.rank() != 2) {
    return ctx.Error(
        absl::StrCat("the weight must be (out,in), and has ", w.rank(), " dimensions"));
  }
  const int64_t in = x.dim(x.rank() - 1);
  if (w.dim(1) != in) {
    return ctx.Error(absl::StrCat("x ends in ", in, " and the weight (out,in) takes ", w.dim(1),
                                  w.dim(0) == in ? "; transposed (permute) it would match" : ""));
  }
  if (ctx.num_inputs() == 3 && ctx.input(2).shape != Shape({w.dim(0)})) {
    return ctx.Error(absl::StrCat("the bias must be (out), here ", Shape({w.dim(0)}).ToString(),
                                  ", and is ", ctx.input(2).shape.ToString()));
  }
  return absl::OkStatus();
}

absl::Status InferLinear(InferenceContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TENSORD_RETURN_IF_ERROR(RequireFloating(ctx, ctx.input(i).dtype));
  }
  TENSORD_RETURN_IF_ERROR(CheckLinearShapes(ctx));
  TENSORD_RETURN_IF_ERROR(RequireActivation(ctx));
  TENSORD_ASSIGN_OR_RETURN(const DType dtype, PromoteInputs(ctx));
  Shape shape = ctx.input(0).shape;
  shape.set_dim(shape.rank() - 1, ctx.input(1).shape.dim(0));
  ctx.AddOutput(dtype, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

void AppendMatmulOps(std::vector<OpSchema>& ops) {
  ops.push_back(
      {"matmul",
       "(…,M,K)·(…,K,N) -> (…,M,N)",
       "The matrix product. A vector on the left is a row, on the right a column. Leading "
       "dimensions broadcast.",
       2,
       2,
       {OptionalAttr("transpose_a", AttrType::kBool, false,
                     "read a with its last two dimensions exchanged"),
        OptionalAttr("transpose_b", AttrType::kBool, false,
                     "read b with its last two dimensions exchanged"),
        AllowTf32()},
       InferMatmul});
  ops.push_back({"linear",
                 "(…,in)·(out,in)ᵀ + (out) -> (…,out)",
                 "activation(x·Wᵀ + b); the bias is optional.",
                 2,
                 3,
                 {ActivationAttr(), AllowTf32()},
                 InferLinear});
  ops.back().input_names = {"x", "weight", "bias"};
}

}  // namespace tensord
