// Compiles fused kernels. This needs no GPU.
#include "tensord/server/device/cuda/fused_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cuda/nvrtc.h"

namespace tensord::server::cuda {
namespace {

// Builds a fused kernel over `dtype` step by step. Add() ignores an op that doesn't take the dtype.
class Builder {
 public:
  explicit Builder(DType dtype) : dtype_(dtype), spec_{dtype, {1000}} {}

  void Add(const char* op, std::vector<int> operands, const Attributes& attrs = {}) {
    std::vector<TensorSpec> specs;
    for (const int i : operands) specs.push_back({i >= 0 ? dtype_ : steps_[-i - 1].dtype, {1000}});
    absl::StatusOr<OpPlan> plan = PlanOp(op, specs, attrs);
    if (!plan.ok() || plan->alias) return;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (plan->input_dtypes[i] != specs[i].dtype) return;  // the engine would cast first
    }
    plans_.push_back(std::make_unique<OpPlan>(*std::move(plan)));
    steps_.push_back({plans_.back()->schema,
                      &plans_.back()->attrs,
                      {operands.begin(), operands.end()},
                      plans_.back()->output().dtype});
  }

  absl::StatusOr<FusedSource> Source() const {
    const TensorSpec output = {steps_.back().dtype, {1000}};
    const std::vector<TensorSpec> inputs = {spec_, {dtype_, {}}, spec_};
    return MakeFusedSource({inputs, steps_, &output});
  }

 private:
  const DType dtype_;
  const TensorSpec spec_;
  std::vector<std::unique_ptr<OpPlan>> plans_;
  std::vector<FusedSpec::Step> steps_;
};

// Returns whether NVRTC is installed. If it is, expects it to compile the ops.
bool Compiles(const Builder& builder) {
  const absl::StatusOr<FusedSource> source = builder.Source();
  EXPECT_TRUE(source.ok()) << source.status();
  if (!source.ok()) return true;
  const absl::StatusOr<std::string> code = CompileForGpu(source->text, 8, 0);
  if (absl::IsUnimplemented(code.status())) return false;
  EXPECT_TRUE(code.ok()) << code.status() << "\n" << source->text;
  if (code.ok()) EXPECT_THAT(*code, testing::HasSubstr(kFusedName));
  return true;
}

TEST(FusedSourceTest, EveryElementwiseOpOverEveryDTypeCompiles) {
  for (const DType dtype : kRealDTypes) {
    // One kernel has at most 64 ops.
    Builder ops(dtype);
    for (const OpSchema* schema : AllOps()) {
      if (!schema->elementwise.has_value() || !schema->attrs.empty()) continue;
      if (schema->min_inputs == 1) ops.Add(schema->name.c_str(), {2});
      if (schema->min_inputs == 2) ops.Add(schema->name.c_str(), {0, 1});
    }
    Builder ops_with_attributes(dtype);
    ops_with_attributes.Add("gelu", {0});
    ops_with_attributes.Add("gelu", {0}, {{"approximate", std::string("tanh")}});
    for (const DType to : kRealDTypes) ops_with_attributes.Add("cast", {0}, {{"dtype", to}});
    if (!Compiles(ops) || !Compiles(ops_with_attributes)) GTEST_SKIP() << "NVRTC isn't installed";
  }
}

TEST(FusedSourceTest, WhereChoosesAmongStoredElements) {
  Builder builder(DType::kFloat16);
  builder.Add("lt", {0, 1});
  builder.Add("where", {-1, 0, 2});
  const absl::StatusOr<FusedSource> source = builder.Source();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->pack_width, 8);
  EXPECT_EQ(source->single, (std::vector<bool>{false, true, false}));
  const absl::StatusOr<std::string> code = CompileForGpu(source->text, 9, 0);
  if (absl::IsUnimplemented(code.status())) GTEST_SKIP() << code.status();
  EXPECT_TRUE(code.ok()) << code.status() << "\n" << source->text;
}

TEST(FusedSourceTest, RejectsOtherOpsAndBroadcasts) {
  const TensorSpec square = {DType::kFloat32, {8, 8}}, row = {DType::kFloat32, {8}};
  const OpPlan matmul = *PlanOp("matmul", {square, square}, {});
  const OpPlan add = *PlanOp("add", {square, row}, {});
  const std::vector<TensorSpec> squares = {square, square}, with_row = {square, row};
  const FusedSpec::Step product = {matmul.schema, &matmul.attrs, {0, 1}, DType::kFloat32};
  EXPECT_EQ(MakeFusedSource({squares, {&product, 1}, &square}).status().code(),
            absl::StatusCode::kUnimplemented);
  const FusedSpec::Step sum = {add.schema, &add.attrs, {0, 1}, DType::kFloat32};
  EXPECT_EQ(MakeFusedSource({with_row, {&sum, 1}, &square}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(FusedSourceTest, ReturnsTheCompilersMessage) {
  const absl::StatusOr<std::string> code = CompileForGpu("no such thing", 8, 0);
  if (absl::IsUnimplemented(code.status())) GTEST_SKIP() << code.status();
  EXPECT_EQ(code.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(code.status().message(), testing::HasSubstr("fused.cu(1)"));
}

}  // namespace
}  // namespace tensord::server::cuda
