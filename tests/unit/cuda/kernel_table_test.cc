#include "tensord/server/device/cuda/kernel_table.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cuda/kernels/elementwise.h"
#include "tensord/server/device/cuda/kernels/linear_epilogue.h"

namespace tensord::server::cuda {
namespace {

TEST(KernelTableTest, HasAKernelForEveryOpButConstantAndCompositions) {
  for (const OpSchema* schema : AllOps()) {
    const bool by_engine = schema->name == "constant" || schema->formula != nullptr;
    EXPECT_EQ(FindKernel(schema->name) == nullptr, by_engine) << schema->name;
  }
}

TEST(KernelTableTest, HasAnEpilogueForEveryActivationOfLinear) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    EXPECT_NE(FindLinearEpilogue(std::nullopt, DTypeNumber(dtype)), nullptr);
    for (const UnaryFunction activation : Activations()) {
      EXPECT_NE(FindLinearEpilogue(activation, DTypeNumber(dtype)), nullptr)
          << FunctionName(activation) << " " << DTypeName(dtype);
    }
  }
}

// Every dtype that inference accepts has a kernel.
TEST(KernelTableTest, HasALauncherForEveryDTypeOfEveryElementwiseOp) {
  for (const OpSchema* schema : AllOps()) {
    for (const DType dtype : kAllDTypes) {
      const std::vector<TensorSpec> inputs(schema->min_inputs, TensorSpec{dtype, {2}});
      const absl::StatusOr<OpPlan> plan = PlanOp(schema->name, inputs, {});
      if (!plan.ok() || plan->alias || !schema->elementwise.has_value()) continue;
      const int number = DTypeNumber(plan->input_dtypes[0]);
      const std::string what = absl::StrCat(schema->name, " of ", DTypeName(dtype));
      const ElementwiseFunction function = *FunctionOf(*schema, plan->attrs);
      if (function.kind == ElementwiseFunction::Kind::kUnary) {
        EXPECT_NE(FindUnaryLauncher(function.unary(), number), nullptr) << what;
      } else if (function.kind == ElementwiseFunction::Kind::kBinary) {
        EXPECT_NE(FindBinaryLauncher(function.binary(), number), nullptr) << what;
      }
    }
  }
}

TEST(KernelTableTest, HasNoOtherOps) { EXPECT_EQ(FindKernel("fft"), nullptr); }

}  // namespace
}  // namespace tensord::server::cuda
