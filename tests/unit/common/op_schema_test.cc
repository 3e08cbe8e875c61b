#include "tensord/common/ops/op_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Registry, HoldsEveryOpSortedAndDescribed) {
  std::vector<std::string> names;
  for (const OpSchema* op : AllOps()) {
    names.push_back(op->name);
    EXPECT_EQ(FindOp(op->name), op);
    EXPECT_FALSE(op->doc.empty() || op->signature.empty()) << op->name;
    EXPECT_LE(op->min_inputs, op->max_inputs) << op->name;
    for (const AttrDef& attr : op->attrs) EXPECT_FALSE(attr.doc.empty()) << op->name << attr.name;
    if (op->max_inputs <= 2 || !op->input_names.empty()) {
      EXPECT_EQ(op->input_names.size(), op->max_inputs) << op->name;
    }
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"add", "gelu", "linear", "softmax", "where", "zeros"}));
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(FindOp("Add"), nullptr);
}

TEST(Registry, ThePageOfOpsNamesEveryOp) {
  std::ifstream file(TENSORD_OPS_PAGE);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  ASSERT_THAT(page, HasSubstr("| one operand |"));
  // The first cells of the rows that define compositions.
  std::string defined;
  const std::string definitions = page.substr(page.find("| composition | definition |"));
  for (const absl::string_view row : absl::StrSplit(definitions, '\n')) {
    const std::vector<absl::string_view> cells = absl::StrSplit(row, '|');
    if (cells.size() > 2) absl::StrAppend(&defined, cells[1]);
  }
  for (const OpSchema* op : AllOps()) {
    const std::string name = absl::StrCat("`", op->name, "`");
    EXPECT_THAT(page, HasSubstr(name));
    if (op->formula != nullptr) EXPECT_THAT(defined, HasSubstr(name));
  }
}

// Returns whether a function of two operands returns bool for the first numeric dtype that it
// takes.
bool GivesBoolOfNumbers(const char* op) {
  for (const DType dtype : {DType::kFloat32, DType::kInt32}) {
    const absl::StatusOr<OpPlan> plan = PlanOp(op, {Of(dtype), Of(dtype)}, {});
    if (plan.ok()) return IsBool(plan->output().dtype);
  }
  ADD_FAILURE() << op << " takes neither float32 nor int32";
  return false;
}

TEST(Registry, EveryRowOfTheElementwiseListIsAnOp) {
#define TENSORD_CHECK(name, Function, typing, cost, doc)                                     \
  ASSERT_NE(FindOp(#name), nullptr);                                                         \
  EXPECT_EQ(FindOp(#name)->elementwise, ElementwiseFunction::Of(UnaryFunction::k##Function)) \
      << #name;                                                                              \
  EXPECT_EQ(FunctionName(UnaryFunction::k##Function), #name);                                \
  EXPECT_EQ(FunctorName(UnaryFunction::k##Function), #Function);
  TENSORD_UNARY_OPS(TENSORD_CHECK)
#undef TENSORD_CHECK
#define TENSORD_CHECK(name, Function, typing, cost, doc)                                      \
  ASSERT_NE(FindOp(#name), nullptr);                                                          \
  EXPECT_EQ(FindOp(#name)->elementwise, ElementwiseFunction::Of(BinaryFunction::k##Function)) \
      << #name;                                                                               \
  EXPECT_EQ(FunctionName(BinaryFunction::k##Function), #name);                                \
  EXPECT_EQ(IsComparison(BinaryFunction::k##Function), GivesBoolOfNumbers(#name)) << #name;
  TENSORD_BINARY_OPS(TENSORD_CHECK)
#undef TENSORD_CHECK
}

TEST(Registry, AttributeSelectsTheFunctionOfGelu) {
  const OpSchema& gelu = *FindOp("gelu");
  EXPECT_EQ(FunctionOf(gelu, PlanOp("gelu", {F32({2})}, {})->attrs)->unary(), UnaryFunction::kGelu);
  const Attributes by_tanh = {{"approximate", std::string("tanh")}};
  EXPECT_EQ(FunctionOf(gelu, PlanOp("gelu", {F32({2})}, by_tanh)->attrs)->unary(),
            UnaryFunction::kGeluTanh);
  EXPECT_EQ(FunctionOf(*FindOp("matmul"), {}), std::nullopt);
}

TEST(PlanOp, UnknownOpErrorSuggestsTheNearestNames) {
  EXPECT_THAT(Result("sofmax", {}), AllOf(StartsWith("NOT_FOUND"), HasSubstr("mean softmax?")));
  EXPECT_THAT(Result("rleu", {}), HasSubstr("did you mean relu?")) << "two letters exchanged";
  EXPECT_THAT(Result("cat", {}), HasSubstr("did you mean concat?"));
  EXPECT_THAT(Result("MatMul", {}), HasSubstr("did you mean matmul?"));
  EXPECT_EQ(Result("foo", {}),
            "NOT_FOUND: there is no op \"foo\"; ListOps and common/OPS.md list all ops");
  EXPECT_LT(Result(std::string(1 << 20, 'x'), {}).size(), 400u);
}

TEST(PlanOp, UnknownOpErrorSuggestsNoWordThatIsOnlyShort) {
  for (const char* name : {"svd", "lu", "qr", "abc", "fft"}) {
    EXPECT_THAT(Result(name, {}), Not(HasSubstr("did you mean"))) << name;
  }
}

TEST(PlanOp, UnknownOpErrorNamesTheOpsThatDoTheSameAsPyTorchsOrNumPys) {
  EXPECT_THAT(Result("view", {}), HasSubstr("did you mean reshape?"));
  EXPECT_THAT(Result("conv2d", {}), HasSubstr("did you mean conv?"));
  EXPECT_THAT(Result("split", {}), HasSubstr("did you mean slice?"));
  EXPECT_THAT(Result("chunk", {}), HasSubstr("did you mean slice?"));
  EXPECT_THAT(Result("zeros_like", {}), HasSubstr("did you mean zeros?"));
  EXPECT_THAT(Result("add_", {}), HasSubstr("did you mean add?"));
  EXPECT_THAT(Result("repeat", {}), HasSubstr("compose it of reshape and broadcast_to"));
  EXPECT_THAT(Result("einsum", {}), HasSubstr("compose it of permute, reshape and matmul"));
  EXPECT_THAT(Result("outer", {}), HasSubstr("compose it of reshape and mul"));
  EXPECT_THAT(Result("unsqueeze", {}), HasSubstr("did you mean reshape?"));
  EXPECT_THAT(Result("embedding", {}), HasSubstr("did you mean index?"));
  EXPECT_THAT(Result("stack", {}), HasSubstr("compose it of reshape and concat"));
  EXPECT_THAT(Result("flip", {}), HasSubstr("compose it of slice with the step -1"));
  EXPECT_THAT(Result("masked_fill", {}), HasSubstr("did you mean where?"));
  EXPECT_THAT(Result("clip", {}), HasSubstr("did you mean clamp?"));
  EXPECT_THAT(Result("clmap", {}), HasSubstr("did you mean clamp?"));
  EXPECT_THAT(Result("recirpocal", {}), HasSubstr("did you mean reciprocal?"));
}

TEST(OpSchemaTest, CountsTheOutputsOfSignatures) {
  for (const auto& [name, count] :
       std::initializer_list<std::pair<const char*, int>>{{"mish", 1},
                                                          {"index", 1},
                                                          {"mse_loss", 1},
                                                          {"conv", 1},
                                                          {"sort", 2},
                                                          {"var_mean", 2},
                                                          {"nll_loss", 2},
                                                          {"layer_norm", 3},
                                                          {"lstm_cell", 3}}) {
    EXPECT_EQ(CountOutputs(*FindOp(name)), count) << name;
  }
}

TEST(PlanOp, ChecksTheNumberOfInputs) {
  EXPECT_THAT(Result("add", {F32({2})}),
              AllOf(StartsWith("INVALID_ARGUMENT: add: takes 2 inputs"), HasSubstr("got 1")));
  EXPECT_THAT(Result("linear", {F32({2})}), HasSubstr("takes 2 to 3 inputs and got 1"));
  EXPECT_THAT(Result("zeros", {F32({2})}, {{"shape", Ints{1}}}), HasSubstr("takes 0 inputs"));
  EXPECT_THAT(Result("concat", {}), HasSubstr("takes 1 to 1024 inputs and got 0"));
  EXPECT_THAT(Result("concat", std::vector<TensorSpec>(1025, F32({1}))), HasSubstr("got 1025"));
  EXPECT_EQ(Result("concat", std::vector<TensorSpec>(1024, F32({1}))), "float32[1024]");
}

TEST(PlanOp, ChecksTheInputs) {
  EXPECT_THAT(Result("neg", {F32({-1})}), HasSubstr("neg: input 0: "));
  EXPECT_THAT(Result("add", {F32({1}), Of(DType::kUnspecified)}), HasSubstr("add: input 1: dtype"));
}

TEST(PlanOp, RefusesUnknownMissingAndIllTypedAttributesWithTheList) {
  const std::string list = "axes: ints = [], keepdims: bool = false, ord: float = 2";
  EXPECT_THAT(Result("norm", {F32({2})}, {{"axis", int64_t{0}}}),
              AllOf(HasSubstr("norm: there is no attribute \"axis\""), HasSubstr(list)));
  EXPECT_THAT(Result("norm", {F32({2})}, {{"axes", int64_t{0}}}),
              AllOf(HasSubstr("axes must be of type ints and is int 0"), HasSubstr(list)));
  EXPECT_THAT(Result("norm", {F32({2})}, {{"keepdims", int64_t{1}}}), HasSubstr("bool and is int"));
  EXPECT_THAT(Result("norm", {F32({2})}, {{"ord", true}}), HasSubstr("float and is bool true"));
  EXPECT_THAT(Result("reshape", {F32({2})}),
              AllOf(HasSubstr("attribute shape is missing"), HasSubstr("shape: ints (required)")));
  EXPECT_THAT(Result("neg", {F32({2})}, {{"x", 1.0}}), HasSubstr("it takes no attributes"));
  EXPECT_THAT(Result("softmax", {F32({2})}, {{"axis", 1.0}}), HasSubstr("int and is float 1"));
  EXPECT_THAT(Result("full", {}, {{"shape", Ints{}}, {"value", "1"}}), HasSubstr("scalar"));
  EXPECT_THAT(Result("gelu", {F32({2})}, {{"approximate", true}}), HasSubstr("string and is bool"));
  EXPECT_THAT(Result("cast", {F32({2})}, {{"dtype", "int8"}}), HasSubstr("dtype and is string"));
  EXPECT_THAT(Result("cast", {F32({2})}, {{"dtype", static_cast<DType>(55)}}), HasSubstr("dtype"));
  EXPECT_THAT(Result("cast", {F32({2})}, {{"dtype", DType::kUnspecified}}), HasSubstr("dtype"));
  EXPECT_THAT(Result("constant", {}, {{"shape", Ints{1}}, {"dtype", DType::kInt8}, {"data", "x"}}),
              HasSubstr("bytes and is string"));
}

TEST(PlanOp, MessagesStaySmallForAnyInput) {
  const Ints huge(1 << 20, 3);
  const std::string text(1 << 20, '\x07');
  EXPECT_LT(Result("reshape", {F32({2})}, {{"shape", huge}}).size(), 1000u);
  EXPECT_LT(Result("permute", {F32({2})}, {{"axes", huge}}).size(), 1000u);
  EXPECT_LT(Result("sum", {F32({9, 9, 9, 9})}, {{"axes", huge}}).size(), 1000u);
  EXPECT_LT(Result("slice", {F32({2})}, {{"starts", huge}, {"stops", huge}}).size(), 1000u);
  EXPECT_LT(Result("gelu", {F32({2})}, {{"approximate", text}}).size(), 1000u);
  EXPECT_LT(Result("gelu", {F32({2})}, {{text, text}}).size(), 1000u);
  EXPECT_LT(Result("sum", {F32({2})}, {{"keepdims", huge}}).size(), 1000u);
  std::vector<TensorSpec> many(1000, F32({1}));
  many.push_back(F32({1, 1}));
  EXPECT_THAT(Result("concat", many), HasSubstr("and 997 more"));
}

TEST(PlanOp, AcceptsAnIntegerForAFloat) {
  const Attributes attrs = NormalForm("norm", {F32({2})}, {{"ord", int64_t{1}}});
  EXPECT_EQ(attrs.Float("ord"), 1.0);
}

TEST(PlanOp, ErrorsNameTheInputs) {
  EXPECT_THAT(Result("add", {F32({2, 3}), F32({4, 5})}),
              HasSubstr("inputs are float32[2, 3] and float32[4, 5]"));
  EXPECT_THAT(Result("mean", {Of(DType::kInt8)}), HasSubstr("input is int8[2]"));
}

TEST(PlanOp, HostileAttributesNeverCrash) {
  const int64_t extremes[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
  for (const OpSchema* op : AllOps()) {
    for (int64_t extreme : extremes) {
      for (const Shape& shape : {Shape(), Shape({0}), Shape({3, 0}), Shape({kMaxElements, 0, 1})}) {
        Attributes attrs;
        for (const AttrDef& def : op->attrs) {
          switch (def.type) {
            case AttrType::kInts:
              attrs.Set(def.name, Ints(static_cast<size_t>(shape.rank()), extreme));
              break;
            case AttrType::kInt:
            case AttrType::kFloat:
            case AttrType::kScalar:
              attrs.Set(def.name, extreme);
              break;
            default:
              if (!def.default_value.has_value()) attrs.Set(def.name, DType::kInt32);
          }
        }
        const std::vector<TensorSpec> inputs(op->min_inputs, F32(shape));
        const absl::StatusOr<OpPlan> plan = PlanOp(op->name, inputs, attrs);
        if (plan.ok()) {
          EXPECT_TRUE(plan->output().Validate().ok()) << op->name;
        } else {
          EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
          EXPECT_THAT(std::string(plan.status().message()), StartsWith(op->name + ": "));
        }
      }
    }
  }
}

constexpr DeviceName kGpu = {DeviceKind::kCuda, 0};
constexpr DeviceName kCpu = {DeviceKind::kCpu, 0};

TEST(CheckSameDevice, NamesBothInputsAndSuggestsACopy) {
  const TensorSpec spec = F32({2, 3});
  EXPECT_TRUE(CheckSameDevice("add", {}).ok());
  EXPECT_TRUE(CheckSameDevice("add", {{0, 7, &spec, kGpu}, {1, 8, &spec, kGpu}}).ok());
  const absl::Status status = CheckSameDevice("add", {{0, 7, &spec, kGpu}, {1, 9, &spec, kCpu}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "add: inputs are on different devices: a (tensor 7, float32[2, 3]) is on cuda:0 and b "
            "(tensor 9, float32[2, 3]) is on cpu:0; copy one first, for example b to cuda:0 "
            "(Tensor::To in the client library, the call CopyToDevice)");
  const std::vector<PlacedInput> list = {
      {0, 1, &spec, kCpu}, {1, 2, &spec, kCpu}, {2, 3, &spec, kGpu}};
  EXPECT_THAT(std::string(CheckSameDevice("concat", list).message()),
              AllOf(HasSubstr("input 2 (tensor 3,"), HasSubstr("for example input 2 to cpu:0")));
}

TEST(CheckSameDevice, SuggestsACopyOfTheActivationAndNotOfTheWeight) {
  const TensorSpec x = F32({2, 3}), weight = F32({4, 3}), bias = F32({4});
  const absl::Status status =
      CheckSameDevice("linear", {{0, 7, &x, kCpu}, {1, 8, &weight, kGpu}, {2, 9, &bias, kGpu}});
  EXPECT_EQ(std::string(status.message()),
            "linear: inputs are on different devices: x (tensor 7, float32[2, 3]) is on cpu:0 and "
            "weight (tensor 8, float32[4, 3]) is on cuda:0; copy one first, for example x to "
            "cuda:0 (Tensor::To in the client library, the call CopyToDevice)");
  EXPECT_THAT(
      std::string(
          CheckSameDevice("linear", {{0, 7, &x, kGpu}, {1, 8, &weight, kGpu}, {2, 9, &bias, kCpu}})
              .message()),
      HasSubstr("for example bias to cuda:0"));
}

}  // namespace
}  // namespace tensord
