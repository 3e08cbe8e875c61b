#include "tensord/tests/unit/device/large_calls.h"

#include <cstring>

#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMany = 4 << 20;

TensorSpec F32(Shape shape) { return {DType::kFloat32, std::move(shape)}; }
TensorSpec F64(Shape shape) { return {DType::kFloat64, std::move(shape)}; }
TensorSpec F16(Shape shape) { return {DType::kFloat16, std::move(shape)}; }
TensorSpec BF16(Shape shape) { return {DType::kBFloat16, std::move(shape)}; }
TensorSpec I32(Shape shape) { return {DType::kInt32, std::move(shape)}; }
Attributes Axes(Ints axes) { return {{"axes", std::move(axes)}}; }
Attributes Axis(int64_t axis) { return {{"axis", axis}}; }
Attributes Reduce(const char* reduce) {
  return {{"axis", int64_t{0}}, {"reduce", std::string(reduce)}};
}
Attributes Of(Ints shape, Attributes attrs = {}) {
  attrs.Set("shape", std::move(shape));
  return attrs;
}

const LargeCall kCalls[] = {
    {"Unary", "neg", {F32({kMany})}, {}},
    {"UnaryOfHalf", "exp", {F16({kMany})}, {}},
    {"Binary", "add", {F64({kMany}), F64({kMany})}, {}},
    {"Broadcast", "add", {F32({2048, 1}), F32({1, 2048})}, {}},
    {"BroadcastWithShortRows", "add", {F32({kMany / 4, 4}), F32({4})}, {}},
    {"Where", "where", {{DType::kBool, {kMany}}, F32({kMany}), F32({1})}, {}},
    {"Cast", "cast", {F32({kMany})}, {{"dtype", DType::kInt64}}},
    {"SumOfAll", "sum", {F32({2 * kMany})}, Axes({0})},
    {"SumOfLongRows", "sum", {F32({2, kMany})}, Axes({1})},
    {"SumOfShortRows", "sum", {F32({kMany / 16, 16})}, Axes({1})},
    {"SumOfColumns", "sum", {F32({8192, 4096})}, Axes({0})},
    {"SumOfNarrowColumns", "sum", {F32({kMany, 2})}, Axes({0})},
    {"SumOfTwoAxes", "sum", {F32({64, 256, 256})}, Axes({0, 2})},
    {"SumOfNothing", "sum", {F32({0, kMany})}, Axes({0})},
    {"MeanOfHalf", "mean", {BF16({kMany})}, Axes({0})},
    {"Max", "max", {F64({2, kMany})}, Axes({1})},
    {"Min", "min", {I32({kMany, 3})}, Axes({0})},
    {"Norm", "norm", {F32({kMany})}, {{"axes", Ints{0}}, {"ord", 3.0}}},
    {"ArgmaxOfAll", "argmax", {F32({kMany})}, Axes({0})},
    {"ArgmaxOfRows", "argmax", {F32({2, kMany})}, Axes({1})},
    {"ArgmaxOfColumns", "argmax", {F32({kMany, 2})}, Axes({0})},
    {"ArgminOfTwoAxes", "argmin", {I32({64, 256, 256})}, Axes({0, 2})},
    {"SumOfInt32IntoInt32",
     "sum",
     {I32({kMany, 3})},
     {{"axes", Ints{0}}, {"dtype", DType::kInt32}}},
    {"ProdOfShortRows", "prod", {I32({kMany / 16, 16})}, Axes({1})},
    {"ProdOfColumns", "prod", {F32({8192, 4096})}, Axes({0})},
    {"CountNonzero", "count_nonzero", {F32({2, kMany})}, Axes({1})},
    {"VarMeanOfAll", "var_mean", {F32({kMany})}, Axes({0})},
    {"VarMeanOfShortRows", "var_mean", {F32({kMany / 16, 16})}, Axes({1})},
    {"VarMeanOfColumns", "var_mean", {F64({2048, 2048})}, Axes({0})},
    {"VarMeanOfTwoAxes", "var_mean", {F16({64, 256, 256})}, Axes({0, 2})},
    {"VarMeanOfNothing", "var_mean", {F32({0, kMany})}, Axes({0})},
    {"CumsumOfALongRow", "cumsum", {F32({kMany})}, Axis(0)},
    {"CumsumOfShortRows",
     "cumsum",
     {I32({kMany / 8, 8})},
     {{"axis", int64_t{1}}, {"dtype", DType::kInt32}}},
    {"CumsumOfColumns", "cumsum", {F32({2048, 2048})}, Axis(0)},
    {"CumsumOfHalfColumns", "cumsum", {F16({kMany, 2})}, Axis(0)},
    {"Cumprod", "cumprod", {F64({2, kMany})}, Axis(1)},
    {"Softmax", "softmax", {F32({2048, 2048})}, Axis(1)},
    {"SoftmaxOfALongRow", "softmax", {F32({1, kMany})}, Axis(1)},
    {"SoftmaxOfColumns", "softmax", {F64({kMany, 2})}, Axis(0)},
    {"SoftmaxOfHalf", "softmax", {F16({2, kMany})}, Axis(1)},
    {"LogSoftmaxOfHalfColumns", "log_softmax", {BF16({kMany, 2})}, Axis(0)},
    {"SoftmaxBackward", "softmax_backward", {F32({2048, 2048}), F32({2048, 2048})}, Axis(1)},
    {"SoftmaxBackwardOfALongRow",
     "softmax_backward",
     {F64({1, kMany}), F64({1, kMany})},
     {{"axis", int64_t{1}}, {"log", true}}},
    {"SoftmaxBackwardOfHalfColumns",
     "softmax_backward",
     {BF16({kMany, 2}), BF16({kMany, 2})},
     Axis(0)},
    {"LayerNorm", "layer_norm", {F32({4096, 1024}), F32({1024}), F32({1024})}, {}},
    {"LayerNormOfALongRow", "layer_norm", {F32({2, kMany})}, {}},
    {"RmsNormOfHalf", "layer_norm", {F16({4096, 1024})}, {{"center", false}}},
    {"LayerNormBackward",
     "layer_norm_backward",
     {F32({4096, 1024}), F32({4096, 1024}), F32({4096, 1}), F32({4096, 1}), F32({1024})},
     {}},
    {"LayerNormBackwardOfALongRow",
     "layer_norm_backward",
     {BF16({2, kMany}), BF16({2, kMany}), F32({2, 1}), F32({2, 1})},
     {}},
    {"CrossEntropy", "cross_entropy", {F32({64, 65536}), I32({64})}, {}},
    {"CrossEntropyOfALongRow",
     "cross_entropy",
     {F32({1, kMany}), I32({1})},
     {{"label_smoothing", 0.1}}},
    {"CrossEntropyOfHalfColumns", "cross_entropy", {F16({2048, 2048}), I32({2048})}, Axis(0)},
    {"CrossEntropyBackward",
     "cross_entropy_backward",
     {F32({64}), F32({64, 65536}), F32({64}), I32({64})},
     {}},
    {"CrossEntropyBackwardOfColumns",
     "cross_entropy_backward",
     {F64({2048}), F64({2048, 2048}), F64({2048}), I32({2048})},
     Axis(0)},
    {"Attention",
     "sdpa",
     {F32({8, 2048, 64}), F32({8, 2048, 64}), F32({8, 2048, 64})},
     {{"causal", true}}},
    {"AttentionOfHalfRows",
     "sdpa",
     {F16({8, kMany / 64, 64}), F16({8, 64, 64}), F16({8, 64, 64})},
     {}},
    {"AttentionOfOneRow", "sdpa", {F32({1, 64}), F32({kMany / 64, 64}), F32({kMany / 64, 64})}, {}},
    {"AttentionBackward",
     "sdpa_backward",
     {F32({1024, 64}), F32({1024, 64}), F32({2048, 64}), F32({2048, 64}), F32({1024, 64}),
      F32({1024})},
     {}},
    {"AttentionBackwardWithMask",
     "sdpa_backward",
     {F32({8, 1024, 64}), F32({8, 1024, 64}), F32({8, 1024, 64}), F32({8, 1024, 64}),
      F32({8, 1024, 64}), F32({8, 1024}), F32({1024, 1024})},
     {{"mask_gradient", true}}},
    {"BatchNorm", "batch_norm", {F32({4, 64, 16384}), F32({64}), F32({64})}, {}},
    {"BatchNormInTraining",
     "batch_norm",
     {F16({1, 2, kMany / 2}), F32({2}), F32({2})},
     {{"training", true}}},
    {"BatchNormBackward",
     "batch_norm_backward",
     {F32({kMany / 4, 4}), F32({kMany / 4, 4}), F32({4}), F32({4})},
     {{"training", true}}},
    {"MaxPool", "max_pool", {F32({16, 512, 512})}, {{"kernel", Ints{3, 3}}}},
    {"MaxPoolOfHalf", "max_pool", {BF16({16, 512, 512})}, {{"kernel", Ints{2, 2}}}},
    {"MaxPoolBackward",
     "max_pool_backward",
     {F32({16, 256, 256}), {DType::kInt64, {16, 256, 256}}},
     {{"kernel", Ints{2, 2}}, {"size", Ints{512, 512}}}},
    {"AvgPool", "avg_pool", {F64({1, 2048, 2048})}, {{"kernel", Ints{2, 2}}}},
    {"AvgPoolBackward",
     "avg_pool_backward",
     {F32({1, 1024, 1024})},
     {{"kernel", Ints{2, 2}}, {"size", Ints{2048, 2048}}}},
    {"Conv", "conv", {F32({16, 64, 112, 112}), F32({64, 64, 3, 3})}, {{"padding", Ints{1}}}},
    {"ConvOfALargeImage", "conv", {F32({1, 64, 512, 512}), F32({64, 64, 3, 3})}, {}},
    {"ConvOfHalf", "conv", {F16({16, 64, 112, 112}), F16({64, 64, 3, 3})}, {}},
    {"ConvOfFloat64", "conv", {F64({4, 64, 56, 56}), F64({64, 64, 3, 3}), F64({64})}, {}},
    {"ConvBackwardInput",
     "conv_backward_input",
     {BF16({16, 64, 110, 110}), BF16({64, 64, 3, 3})},
     Of({16, 64, 112, 112})},
    {"ConvBackwardInputOfFloat64",
     "conv_backward_input",
     {F64({4, 64, 54, 54}), F64({64, 64, 3, 3})},
     Of({4, 64, 56, 56})},
    {"ConvBackwardWeight",
     "conv_backward_weight",
     {F32({16, 64, 110, 110}), F32({16, 64, 112, 112})},
     Of({64, 64, 3, 3})},
    {"ConvBackwardWeightOfFloat64",
     "conv_backward_weight",
     {F64({4, 64, 54, 54}), F64({4, 64, 56, 56})},
     Of({64, 64, 3, 3})},
    {"AdamStep",
     "adam_step",
     {F32({kMany}), F32({kMany}), F32({kMany}), F32({kMany}), F64({}), F64({})},
     {}},
    {"AdamStepOfHalf",
     "adam_step",
     {F16({kMany}), F16({kMany}), F16({kMany}), F16({kMany}), F64({}), F64({})},
     {}},
    {"LstmCell", "lstm_cell", {F32({2048, 2048}), F32({2048, 2048}), F32({2048, 512})}, {}},
    {"LstmCellOfHalf",
     "lstm_cell",
     {F16({2048, 2048}), F16({2048, 2048}), F16({2048, 512}), F16({2048}), F16({2048})},
     {}},
    {"LstmGatesBackward",
     "lstm_gates_backward",
     {F32({2048, 512}), F32({2048, 512}), F32({2048, 512}), F32({2048, 512}), F32({2048, 2048})},
     {}},
    {"GruCell", "gru_cell", {F32({2048, 1536}), F32({2048, 1536}), F32({2048, 512})}, {}},
    {"GruGatesBackward", "gru_gates_backward", {F32({2048, 512}), F32({2048, 2560})}, {}},
    {"Reshape", "reshape", {F32({kMany})}, Of({2048, 2048})},
    {"Permute", "permute", {F32({2048, 2048})}, Axes({1, 0})},
    {"PermuteOfLongColumns", "permute", {F32({kMany, 2})}, Axes({1, 0})},
    {"Slice",
     "slice",
     {F32({2 * kMany})},
     {{"starts", Ints{0}}, {"stops", Ints{2 * kMany}}, {"steps", Ints{2}}}},
    {"SliceBackwards",
     "slice",
     {F32({kMany})},
     {{"starts", Ints{kMany}}, {"stops", Ints{-kMany - 1}}, {"steps", Ints{-1}}}},
    {"ConcatOfShortRuns", "concat", {F32({kMany / 8, 8}), F32({kMany / 8, 8})}, Axis(1)},
    {"ConcatOfLongRuns", "concat", {F32({2, kMany}), F32({2, kMany})}, Axis(1)},
    {"BroadcastTo", "broadcast_to", {F32({2048, 1})}, Of({2048, 2048})},
    {"SortOfALongRow", "sort", {F32({kMany})}, {}},
    {"SortOfALongRowOfFloat64", "sort", {F64({kMany / 4})}, {{"descending", true}}},
    {"SortOfShortRows", "sort", {F32({kMany / 16, 16})}, {}},
    {"SortOfColumns", "sort", {I32({2048, 2048})}, Axis(0)},
    {"TopKOfALongRow", "topk", {F32({kMany})}, {{"k", int64_t{50}}}},
    {"TopKOfRows", "topk", {F16({64, 65536})}, {{"k", int64_t{50}}}},
    {"SearchSorted", "searchsorted", {F32({kMany}), F32({kMany / 4})}, {}},
    {"Nonzero", "nonzero", {F32({64, 65536})}, {{"size", kMany}}},
    {"NonzeroOfPadding", "nonzero", {F32({5})}, {{"size", 2 * kMany}}},
    {"Index", "index", {F32({kMany}), I32({kMany})}, Axis(0)},
    {"IndexOfRows", "index", {F32({kMany / 64, 64}), I32({kMany / 64})}, Axis(0)},
    {"IndexByTwoTensors", "index", {F32({2048, 2048}), I32({2048, 1}), I32({1, 2048})}, Axis(0)},
    {"Gather", "gather", {F32({kMany}), I32({kMany})}, Axis(0)},
    {"IndexPut", "index_put", {F32({kMany}), I32({kMany}), F32({kMany})}, Axis(0)},
    {"IndexPutOfRows",
     "index_put",
     {F32({kMany / 64, 64}), I32({kMany / 64}), F32({kMany / 64, 64})},
     Reduce("add")},
    {"IndexPutOfHalf",
     "index_put",
     {F16({kMany / 4}), I32({kMany / 4}), F16({kMany / 4})},
     Reduce("add")},
    {"Scatter", "scatter", {F32({kMany}), I32({kMany}), F32({kMany})}, Axis(0)},
    {"ScatterAdd", "scatter", {F64({kMany}), I32({kMany}), F64({kMany})}, Reduce("add")},
    {"ScatterMaxOfHalf",
     "scatter",
     {BF16({kMany / 4}), I32({kMany / 4}), BF16({kMany / 4})},
     Reduce("max")},
    {"AsStrided",
     "as_strided",
     {F32({kMany})},
     Of({2048, 2048}, {{"strides", Ints{-1, 2048}}, {"offset", int64_t{2047}}})},
    {"AsStridedScatter",
     "as_strided_scatter",
     {F32({kMany}), F32({2048, 2048})},
     Of({2048, 2048}, {{"strides", Ints{-1, 2048}}, {"offset", int64_t{2047}}})},
    {"Bitcast", "bitcast", {F32({kMany})}, {{"dtype", DType::kInt32}}},
    {"Zeros", "zeros", {}, Of({kMany})},
    {"Ones", "ones", {}, Of({kMany})},
    {"Full", "full", {}, Of({kMany}, {{"value", 2.5}})},
    {"Arange", "arange", {}, {{"start", 0.0}, {"stop", 1.0 * kMany}, {"step", 1.0}}},
    {"Eye", "eye", {}, {{"rows", int64_t{2048}}, {"cols", int64_t{2048}}}},
    {"Uniform", "uniform", {}, Of({kMany}, {{"seed", int64_t{1}}})},
    {"Normal", "normal", {}, Of({kMany}, {{"seed", int64_t{1}}, {"dtype", DType::kFloat16}})},
    {"Randint", "randint", {}, Of({kMany}, {{"seed", int64_t{1}}, {"high", int64_t{1000}}})},
    {"Dropout", "dropout", {F32({kMany})}, {{"seed", int64_t{1}}}},
    {"DropoutOfHalf", "dropout", {F16({kMany})}, {{"seed", int64_t{1}}}},
    {"Remainder", "remainder", {F32({kMany}), F32({kMany})}, {}},
    {"MatmulOfFloat64", "matmul", {F64({2048, 2048}), F64({2048, 2048})}, {}},
    {"MatmulOfFloat64Transposed",
     "matmul",
     {F64({4096, 300}), F64({4000, 4096})},
     {{"transpose_a", true}, {"transpose_b", true}}},
    {"MatmulOfFloat32", "matmul", {F32({2048, 2048}), F32({2048, 2000})}, {}},
    {"MatmulOfLongRows", "matmul", {F32({200, 131072}), F32({131072, 200})}, {}},
    {"MatmulOfBFloat16", "matmul", {BF16({2048, 2048}), BF16({2048, 2048})}, {}},
    {"MatmulOfFloat16", "matmul", {F16({2048, 2048}), F16({2048, 2048})}, {}},
    {"MatmulOfInt32", "matmul", {I32({700, 1000}), I32({1000, 1300})}, {}},
    {"MatmulOfInt32Columns", "matmul", {I32({20, 3000}), I32({3000, 8000})}, {}},
    {"MatmulOfManyItems", "matmul", {F32({512, 160, 160}), F32({512, 160, 160})}, {}},
    {"MatmulOfManySmallItems", "matmul", {F32({32768, 32, 32}), F32({32768, 32, 32})}, {}},
    {"MatmulOfBroadcastItems", "matmul", {F32({2048, 1, 1, 1}), F32({2048, 1, 1})}, {}},
    {"MatmulOfNothing", "matmul", {F32({4096, 0}), F32({0, 4096})}, {}},
    {"MatmulWithVector", "matmul", {F32({8192, 4096}), F32({4096})}, {}},
    {"MatmulWithVectorTransposed", "matmul", {F64({8192}), F64({8192, 4096})}, {}},
    {"Linear",
     "linear",
     {F32({2048, 2048}), F32({2000, 2048}), F32({2000})},
     {{"activation", "gelu"}}},
    {"LinearOfFloat64",
     "linear",
     {F64({2048, 2048}), F64({2048, 2048}), F64({2048})},
     {{"activation", "silu"}}},
};

}  // namespace

absl::Span<const LargeCall> LargeCalls() { return kCalls; }

void LargeCallTest::SetUp() {
  device_ = *MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{4} << 30, /*threads=*/2);
  device_->BindThread();
  const auto plan = PlanOp(GetParam().op, GetParam().inputs, GetParam().attrs);
  ASSERT_TRUE(plan.ok()) << plan.status();
  plan_ = *plan;
  for (size_t i = 0; i < GetParam().inputs.size(); ++i) {
    const TensorSpec& spec = GetParam().inputs[i];
    ASSERT_EQ(plan_.input_dtypes[i], spec.dtype);
    inputs_.push_back(*device_->Allocate(spec.size_bytes()));
    ASSERT_TRUE(FillWithIncreasingNumbers(spec, 0.25 * i, *inputs_.back()).ok());
    operands_.push_back({&spec, inputs_.back()->data()});
  }
  for (const TensorSpec& output : plan_.outputs) {
    outputs_.push_back(*device_->Allocate(output.size_bytes()));
    results_.push_back({&output, outputs_.back()->data()});
  }
}

absl::Status LargeCallTest::FillWithIncreasingNumbers(const TensorSpec& spec, double start,
                                                      const Buffer& buffer) {
  const int64_t n = spec.num_elements();
  if (n == 0) return absl::OkStatus();
  if (spec.dtype == DType::kBool) {
    std::memset(buffer.data(), 1, n);
    return absl::OkStatus();
  }
  if (!IsFloating(spec.dtype)) start = 0;
  const double step = IsFloating(spec.dtype) ? 1.0 / static_cast<double>(n) : 1.0;
  const Attributes attrs = {
      {"start", start}, {"step", step}, {"stop", start + (static_cast<double>(n) - 0.5) * step}};
  return device_->Launch(
      {TestLaunch(*device_).context(), FindOp("arange"), &attrs, {}, {{&spec, buffer.data()}}});
}

absl::Status LargeCallTest::Launch(MemoryAccount& account) {
  for (const BufferRef& output : outputs_) std::memset(output->data(), 0x5a, output->size_bytes());
  const LaunchContext context = {account, *device_};
  return device_->Launch({context, plan_.schema, &plan_.attrs, operands_, results_});
}

std::string LargeCallTest::Result() const {
  std::string bytes;
  for (const BufferRef& output : outputs_) {
    bytes.append(static_cast<const char*>(output->data()), output->size_bytes());
  }
  return bytes;
}

}  // namespace tensord::server
