// The functions that compute gradients, compared with finite differences in float64 for random
// configurations.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/tests/integration/client_fixture.h"
#include "tensord/tests/integration/gradient_configurations.h"

namespace tensord::integration {
namespace {

constexpr double kStep = 1e-5;

std::vector<Case> GradientCases() {
  std::vector<Case> cases;
  for (const auto part : {ActivationCases(), LossCases(), LayerCases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

// Reads tensors of shape [] in few round trips.
std::vector<double> ReadScalars(const Tensors& scalars) {
  constexpr size_t kTogether = 64;
  std::vector<double> values;
  for (size_t i = 0; i < scalars.size(); i += kTogether) {
    const size_t count = std::min(kTogether, scalars.size() - i);
    const auto read = Stack(absl::MakeConstSpan(scalars).subspan(i, count)).Read<double>();
    if (!read.ok()) {
      ADD_FAILURE() << read.status();
      return std::vector<double>(scalars.size());
    }
    values.insert(values.end(), read->begin(), read->end());
  }
  return values;
}

// Returns the derivatives of Σ gradient · forward by the elements of operand `k`.
std::vector<double> Differences(const Configuration& of, size_t k, const Tensor& gradient) {
  const std::vector<double> values = *of.operands[k].Read<double>();
  Tensors losses;
  for (size_t i = 0; i < values.size(); ++i) {
    for (const double step : {kStep, -kStep}) {
      Tensors operands = of.operands;
      std::vector<double> moved = values;
      moved[i] += step;
      operands[k] = FromVector<double>(gradient.device(), of.operands[k].shape(), moved);
      losses.push_back(Sum(of.forward(operands) * gradient));
    }
  }
  const std::vector<double> read = ReadScalars(losses);
  std::vector<double> differences(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    differences[i] = (read[2 * i] - read[2 * i + 1]) / (2 * kStep);
  }
  return differences;
}

class ClientGradientsTest : public ClientFixture {
 protected:
  void Compare(const Configuration& of, Draw& draw, const std::string& what) {
    const Tensor y = of.forward(of.operands);
    ASSERT_TRUE(y.ok()) << what << ": " << y.status();
    const Tensor gradient = draw.EvenValues(y.shape());
    const Tensors gradients = of.backward(of.operands, gradient);
    for (size_t k = 0; k < of.operands.size(); ++k) {
      const std::string which =
          absl::StrCat(what, ", operand ", k, ", ", of.operands[k].shape().ToString());
      const auto got = gradients[k].Read<double>();
      ASSERT_TRUE(got.ok()) << which << ": " << got.status();
      ASSERT_EQ(gradients[k].shape(), of.operands[k].shape()) << which;
      const std::vector<double> expected = Differences(of, k, gradient);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR((*got)[i], expected[i], 1e-6 * (1 + std::abs(expected[i])))
            << which << " at " << i;
      }
    }
  }
};

TEST_F(ClientGradientsTest, AgreeWithFiniteDifferences) {
  for (const Case& c : GradientCases()) {
    for (int i = 0; i < c.configurations && !HasFatalFailure(); ++i) {
      Draw draw(first_, static_cast<uint32_t>(i));
      Compare(c.make(draw), draw,
              absl::StrCat(absl::StrJoin(c.functions, ", "), ", configuration ", i));
    }
  }
}

TEST_F(ClientGradientsTest, AllFunctionsForGradientsAreCompared) {
  std::set<std::string> compared, expected;
  for (const Case& c : GradientCases()) compared.insert(c.functions.begin(), c.functions.end());
  for (const OpSchema* op : AllOps()) {
    if (absl::StrContains(op->name, "_backward")) expected.insert(op->name);
  }
  EXPECT_EQ(compared, expected);
}

}  // namespace
}  // namespace tensord::integration
