#include "tensord/client/nn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/common/status_details.h"
#include "tensord/tests/expect_error.h"

namespace tensord::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> ParameterNames(const Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : module.Parameters()) names.push_back(name);
  return names;
}

TEST(NnTest, PrintsAsPyTorchDoes) {
  const Sequential model(Linear(64, 128), ReLU(), Sequential(Linear(128, 10, {.bias = false})),
                         GELU(GeluApproximation::kTanh), Softmax());
  EXPECT_EQ(model.ToString(),
            "Sequential(\n"
            "  (0): Linear(in_features=64, out_features=128, bias=True)\n"
            "  (1): ReLU()\n"
            "  (2): Sequential(\n"
            "    (0): Linear(in_features=128, out_features=10, bias=False)\n"
            "  )\n"
            "  (3): GELU(approximate='tanh')\n"
            "  (4): Softmax(dim=-1)\n"
            ")");
}

TEST(NnTest, DropoutPrintsAsPyTorchDoes) {
  EXPECT_EQ(Dropout(0.1).ToString(), "Dropout(p=0.1, inplace=False)");
  EXPECT_EQ(Dropout().ToString(), "Dropout(p=0.5, inplace=False)");
}

TEST(NnTest, TrainAndEvalReachAllModules) {
  Sequential model(Linear(4, 3), Sequential(ReLU(), Dropout(0.5)));
  const auto& inner = static_cast<const Sequential&>(model[1]);
  EXPECT_TRUE(inner[1].training()) << "modules begin in training mode";
  model.Eval();
  EXPECT_FALSE(model.training());
  EXPECT_FALSE(model[0].training());
  EXPECT_FALSE(inner[1].training());
  model.Train();
  EXPECT_TRUE(inner[1].training());
}

TEST(NnTest, ParametersAreNamedAsInPyTorch) {
  const Sequential model(Linear(4, 3), ReLU(), Sequential(Linear(3, 2, {.bias = false})));
  EXPECT_THAT(ParameterNames(model), ElementsAre("0.weight", "0.bias", "2.0.weight"));
  EXPECT_EQ(model.NumParameters(), 4 * 3 + 3 + 3 * 2);
}

TEST(NnTest, FindsAParameterByItsName) {
  const Sequential model(Linear(Tensor::Failed(absl::AbortedError("weight of 0"))), ReLU());
  EXPECT_EQ(model[0].weight().status().message(), "weight of 0");
  EXPECT_EQ(model.parameter("0.weight").status().message(), "weight of 0");
  ExpectError(model[1].weight().status(), absl::StatusCode::kNotFound, {"ReLU", "weight", "none"});
  ExpectError(model.parameter("weight").status(), absl::StatusCode::kNotFound, {"0.weight"});
}

TEST(NnTest, ErrorOfAModuleWithoutValuesNamesTheRemedy) {
  const Linear layer(4, 3);
  const absl::Status status = layer(Tensor()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("call To(device) or LoadStateDict"));
}

TEST(NnTest, ErrorOfALayerThatWasGivenAnEmptyWeightSaysSo) {
  Linear layer{Tensor(), Tensor()};
  const absl::Status status = layer(Tensor()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the weight"));
  EXPECT_THAT(status.message(), HasSubstr("is an empty Tensor"));
  EXPECT_THAT(status.message(), Not(HasSubstr("call To(device)")));
}

TEST(NnTest, SequenceReturnsTheErrorOfItsInputAsItIs) {
  const Sequential model(Linear(4, 3), ReLU());
  EXPECT_EQ(model(Tensor::Failed(absl::AbortedError("the root"))).status(),
            absl::AbortedError("the root"));
}

TEST(NnTest, StateDictMustHaveExactlyTheModulesNames) {
  Sequential model(Linear(4, 3), ReLU(), Linear(3, 2));
  const absl::Status status = model.LoadStateDict({{"0.weigth", Tensor()}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "LoadStateDict: missing 0.weight [3, 4]; missing 0.bias [3]; missing 2.weight [2, 3]; "
            "missing 2.bias [2]; unexpected 0.weigth");
}

TEST(NnTest, NamesAFailedTensorInAStateDict) {
  Linear layer(4, 3, {.bias = false});
  const absl::Status status = layer.LoadStateDict(
      {{"weight", Tensor::Failed(WithErrorInfo(absl::NotFoundError("it isn't there"), "GONE"))}});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "parameter weight: it isn't there");
  EXPECT_EQ(ErrorReason(status), "GONE") << "the details for programs stay";
}

TEST(NnTest, MoveToAnInvalidDeviceChangesNothing) {
  Linear layer(4, 3);
  EXPECT_EQ(layer.To(Device()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(layer.weight().state(), nullptr);
}

TEST(NnTest, IndexOutsideASequenceEndsTheProgramWithAnError) {
  const Sequential model(Linear(4, 3), ReLU(), Linear(3, 2));
  EXPECT_EQ(model[2].ToString(), "Linear(in_features=3, out_features=2, bias=True)");
  EXPECT_DEATH(model[7], "there is no module 7: it has 3 modules");
  EXPECT_DEATH(model[-1], "there is no module -1: it has 3 modules");
}

TEST(NnTest, CopiesOfASequenceShareItsModules) {
  Sequential model;
  model.Append(Linear(2, 2)).Append(ReLU());
  const Sequential copy = model;
  EXPECT_EQ(copy.size(), 2);
  EXPECT_EQ(&copy[0], &model[0]);
}

}  // namespace
}  // namespace tensord::nn
