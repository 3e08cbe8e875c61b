#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/cpu/elementwise.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

TEST(KernelTableTest, EveryOpOfTheRegistryHasAKernel) {
  for (const OpSchema* schema : AllOps()) {
    // The engine writes the bytes of a constant, and runs other ops for a composition.
    if (schema->name == "constant" || schema->formula != nullptr) continue;
    EXPECT_NE(cpu::FindKernel(schema->name), nullptr) << schema->name;
  }
}

// Every dtype that inference accepts has a loop.
TEST(KernelTableTest, EveryElementwiseOpHasALoopForEveryDTypeThatItTakes) {
  for (const OpSchema* schema : AllOps()) {
    if (!schema->elementwise.has_value() || schema->name == "cast") continue;
    for (const DType dtype : kAllDTypes) {
      std::vector<TensorSpec> inputs(schema->min_inputs, TensorSpec{dtype, {2}});
      if (schema->name == "where") inputs[0].dtype = DType::kBool;
      const absl::StatusOr<OpPlan> plan = PlanOp(schema->name, inputs, {});
      if (!plan.ok() || plan->alias) continue;
      EXPECT_TRUE(cpu::ElementwiseLoop::Find(cpu::BestLoops(), *schema, plan->attrs,
                                             plan->input_dtypes, plan->output().dtype)
                      .has_value())
          << schema->name << " of " << DTypeName(dtype);
    }
  }
}

TEST(KernelTableTest, MissingKernelIsAnErrorAndNoCrash) {
  const auto device = *MakeCpuDevice({DeviceKind::kCpu, 0}, 1 << 20, 1);
  const TensorSpec spec = {DType::kBool, {4}};
  const BufferRef in = *device->Allocate(4), out = *device->Allocate(4);
  const Operand operands[] = {{&spec, in->data()}, {&spec, in->data()}};
  const Attributes attrs = {{"axes", std::vector<int64_t>{0}}};
  for (const char* op : {"sub", "div", "neg", "exp", "mean", "constant"}) {
    const auto inputs = absl::MakeConstSpan(operands, FindOp(op)->max_inputs == 1 ? 1 : 2);
    const absl::Status status = device->Launch(
        {TestLaunch(*device).context(), FindOp(op), &attrs, inputs, {{&spec, out->data()}}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << op;
    EXPECT_THAT(status.message(), ::testing::HasSubstr(op));
  }
}

}  // namespace
}  // namespace tensord::server
