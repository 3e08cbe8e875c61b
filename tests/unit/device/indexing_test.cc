// What the conformance table doesn't test of ops with indices on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

// Runs an op whose output is the memory of input 0. Returns the status of the launch, and the
// memory in `result`.
absl::Status RunInPlace(OpRunner& runner, const char* op, const std::vector<HostTensor>& inputs,
                        const Attributes& attrs, HostTensor* result) {
  std::vector<TensorSpec> specs;
  std::vector<BufferRef> buffers;
  std::vector<const Buffer*> operands;
  for (const HostTensor& input : inputs) {
    specs.push_back(input.spec);
    buffers.push_back(*runner.Upload(input));
    operands.push_back(buffers.back().get());
  }
  const OpPlan plan = *PlanOp(op, specs, attrs);
  const auto kernel = *runner.device().Prepare({plan.schema, &plan.attrs, specs, plan.outputs});
  EXPECT_EQ(kernel->in_place(0), 0);
  const absl::Status status =
      kernel->Launch(TestLaunch(runner.device()).context(), operands, buffers[0].get());
  *result = runner.Download(*buffers[0], inputs[0].spec);
  return status;
}

// Indices from -rows to rows - 1, each several times.
HostTensor Indices(const Shape& shape, int64_t rows) {
  std::vector<double> values;
  const int64_t n = shape.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<double>((i * 37 + i / 11) % (2 * rows) - rows));
  }
  return MakeTensor(DType::kInt64, shape, values);
}

struct UpdateCase {
  const char* op;
  std::vector<HostTensor> inputs;
  Attributes attrs;
};

std::vector<UpdateCase> Cases(DType dtype) {
  const auto of = [dtype](const Shape& shape, int seed) {
    return Spread(dtype, shape, -8, 8, seed);
  };
  const Attributes add = {{"reduce", std::string("add")}};
  const Attributes view = {
      {"shape", Ints{40, 50}}, {"strides", Ints{-2, 300}}, {"offset", int64_t{99}}};
  return {{"index_put", {of({90, 1000}, 1), Indices({700}, 90), of({700, 1000}, 2)}, add},
          {"index_put", {of({5000}, 1), Indices({90000}, 5000), of({90000}, 2)}, add},
          {"index_put",
           {of({60, 7, 30}, 1), Indices({500}, 7), of({60, 500, 30}, 2)},
           {{"axis", int64_t{1}}, {"reduce", std::string("add")}}},
          {"index_put", {of({900, 100}, 1), Indices({2000}, 900), of({2000, 100}, 2)}, {}},
          {"scatter", {of({5000}, 1), Indices({90000}, 5000), of({90000}, 2)}, add},
          {"scatter", {of({90, 70}, 1), Indices({1000, 70}, 90), of({1000, 70}, 2)}, add},
          {"scatter",
           {of({300, 70}, 1), Indices({300, 400}, 70), of({300, 400}, 2)},
           {{"axis", int64_t{1}}}},
          {"scatter",
           {of({300, 70}, 1), Indices({300, 400}, 70), of({300, 400}, 2)},
           {{"axis", int64_t{1}}, {"reduce", std::string("add")}}},
          {"as_strided_scatter", {of({100, 200}, 1), of({40, 50}, 2)}, view}};
}

TEST(UpdateTest, GivesTheSameBitsInPlaceAndWithAnyNumberOfThreads) {
  OpRunner one(1), two(2), seven(7);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt8}) {
    for (const UpdateCase& update : Cases(dtype)) {
      const HostTensor expected = *one.Run(update.op, update.inputs, update.attrs);
      for (OpRunner* runner : {&one, &two, &seven}) {
        EXPECT_TRUE(runner->Run(update.op, update.inputs, update.attrs)->bytes == expected.bytes)
            << update.op << " of " << DTypeName(dtype);
        HostTensor changed;
        ASSERT_TRUE(RunInPlace(*runner, update.op, update.inputs, update.attrs, &changed).ok());
        EXPECT_TRUE(changed.bytes == expected.bytes) << update.op << " of " << DTypeName(dtype);
      }
    }
  }
}

TEST(UpdateTest, ChangesNothingIfAnIndexIsOutOfRange) {
  OpRunner runner(2);
  const HostTensor x = Spread(DType::kFloat32, {50, 40}, -8, 8);
  std::vector<double> indices(3000, 7);
  indices[2999] = 50;
  const std::vector<HostTensor> rows = {x, MakeTensor(DType::kInt32, {3000}, indices),
                                        Spread(DType::kFloat32, {3000, 40}, -1, 1)};
  const std::vector<HostTensor> elements = {x, MakeTensor(DType::kInt32, {75, 40}, indices),
                                            Spread(DType::kFloat32, {75, 40}, -1, 1)};
  for (const bool scatter : {false, true}) {
    HostTensor after;
    const absl::Status status = RunInPlace(runner, scatter ? "scatter" : "index_put",
                                           scatter ? elements : rows, {}, &after);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), scatter
                                    ? "index 50 at [74, 39] of input 1 is out of range for axis 0 "
                                      "of size 50"
                                    : "index 50 at [2999] of input 1 is out of range for axis 0 of "
                                      "size 50");
    EXPECT_TRUE(after.bytes == x.bytes);
  }
}

// Several threads check parts of the indices.
TEST(IndexCheckTest, TheErrorNamesTheFirstBadIndex) {
  struct CheckCase {
    const char* op;
    Shape x, indices;
    const char* place;  // of element 500,000
    int64_t axis = 0;
  };
  const CheckCase cases[] = {{"index", {9, 3}, {600000}, "[500000] of input 1"},
                             {"index", {2, 9}, {600000}, "[500000] of input 1", 1},
                             {"index", {0, 9}, {600000}, "[500000] of input 1", 1},
                             {"gather", {9, 1000}, {600, 1000}, "[500, 0] of input 1"},
                             {"gather", {600, 9}, {600, 1000}, "[500, 0] of input 1", 1},
                             {"scatter", {600, 9}, {600, 1000}, "[500, 0] of input 1", 1}};
  for (const int threads : {1, 2, 7}) {
    OpRunner runner(threads);
    for (const DType dtype : {DType::kInt32, DType::kInt64}) {
      for (const CheckCase& c : cases) {
        std::vector<double> indices(600000, -9);
        for (const int i : {500000, 500001, 590000, 599999}) indices[i] = i == 500000 ? -10 : 9;
        std::vector<HostTensor> inputs = {Spread(DType::kFloat32, c.x, -8, 8),
                                          MakeTensor(dtype, c.indices, indices)};
        if (std::string(c.op) == "scatter") inputs.push_back(MakeTensor(DType::kFloat32, {}, {1}));
        const absl::Status status = runner.Run(c.op, inputs, {{"axis", c.axis}}).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(status.message(), "index -10 at " + std::string(c.place) +
                                        " is out of range for axis " + std::to_string(c.axis) +
                                        " of size 9");
      }
    }
  }
}

TEST(IndexCheckTest, AcceptsTheWholeRangeAndNothingElse) {
  OpRunner runner(1);
  const HostTensor x = Spread(DType::kFloat32, {100}, -8, 8);
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const double least = dtype == DType::kInt32 ? -0x1p31 : -0x1p63;
    for (const double index : {0.0, 99.0, -1.0, -100.0}) {
      EXPECT_TRUE(runner.Run("index", {x, MakeTensor(dtype, {1}, {index})}).ok()) << index;
    }
    for (const double index : {100.0, -101.0, least, least + 1024, -(least + 1024)}) {
      EXPECT_FALSE(runner.Run("index", {x, MakeTensor(dtype, {1}, {index})}).ok()) << index;
    }
  }
}

// The sum of many small numbers doesn't stop at the precision of 16 bits.
TEST(UpdateTest, AddsHalvesInFloat32) {
  OpRunner runner(2);
  const HostTensor x = MakeTensor(DType::kFloat16, {2}, {0, 1});
  const HostTensor indices = MakeTensor(DType::kInt64, {6000}, std::vector<double>(6000, 0));
  const HostTensor values = MakeTensor(DType::kFloat16, {6000}, std::vector<double>(6000, 1));
  const Attributes add = {{"reduce", std::string("add")}};
  EXPECT_THAT(runner.Run("index_put", {x, indices, values}, add)->ToDoubles(),
              testing::ElementsAre(6000, 1));
  EXPECT_THAT(runner.Run("scatter", {x, indices, values}, add)->ToDoubles(),
              testing::ElementsAre(6000, 1));
}

}  // namespace
}  // namespace tensord::server
