// Ops that accumulate along an axis.
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

absl::Status InferScan(InferenceContext& ctx) {
  const TensorSpec& in = ctx.input(0);
  DType dtype = ctx.attrs().Type("dtype");
  if (dtype == DType::kUnspecified) dtype = IsFloating(in.dtype) ? in.dtype : DType::kInt64;
  if (IsBool(dtype)) return ctx.Error("dtype is bool: name a numeric dtype, for example int64");
  TENSORD_ASSIGN_OR_RETURN(const int64_t axis,
                           ResolveAxis(ctx, ctx.attrs().Int("axis"), in.shape.rank()));
  ctx.SetAttr("axis", axis);
  ctx.SetAttr("dtype", dtype);
  ctx.ReadInputAs(0, dtype);
  ctx.AddOutput(dtype, in.shape);
  return absl::OkStatus();
}

OpSchema ScanOp(const char* name, const char* doc) {
  return {name,
          "(…) -> (…)",
          doc,
          1,
          1,
          {RequiredAttr("axis", AttrType::kInt, "the axis; a negative axis counts from the end"),
           OptionalAttr("dtype", AttrType::kDType, DType::kUnspecified,
                        "dtype to which the input is cast first, and of the result; default: the "
                        "input's, and int64 for integers and bool"),
           OptionalAttr("exclusive", AttrType::kBool, false,
                        "a result doesn't include the element at its own position"),
           OptionalAttr("reverse", AttrType::kBool, false, "from the last element to the first")},
          InferScan,
          OpCost::kCompute};
}

}  // namespace

void AppendScanOps(std::vector<OpSchema>& ops) {
  ops.push_back(ScanOp("cumsum", "The sums of the elements up to each one; integers wrap."));
  ops.push_back(ScanOp("cumprod", "The products of the elements up to each one; integers wrap."));
}

}  // namespace tensord
