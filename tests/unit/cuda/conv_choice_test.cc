// The choice between cuDNN's engines, and convolutions that cuDNN has no engine for. These tests set
// options of the emulation.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "conv_reference.h"
#include "tensord/server/device/cuda/conv_plan.h"
#include "tensord/tests/cuda_emulation/control.h"

namespace tensord::server {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

class ConvChoiceTest : public CudaTest {
 protected:
  ConvChoiceTest() : options_(cuda_emulation::TheOptions()) {}
  ~ConvChoiceTest() override { cuda_emulation::TheOptions() = options_; }

  void ExpectAllKinds(const ConvCase& c, DType dtype) {
    SCOPED_TRACE(testing::Message() << c.x.ToString() << " and " << c.w.ToString());
    const ConvReference expected(c, dtype);
    ExpectNear(Run(*cuda_, "conv", {expected.x, expected.w}, c.attrs()), expected.y);
    ExpectNear(Run(*cuda_, "conv_backward_input", {expected.g, expected.w}, c.backward_attrs(c.x)),
               expected.x_gradient);
    ExpectNear(Run(*cuda_, "conv_backward_weight", {expected.g, expected.x}, c.backward_attrs(c.w)),
               expected.w_gradient);
  }

  // Expects the results of convolutions with every epilogue.
  void ExpectEpilogues(DType dtype, double roundings, double scale) {
    const ConvCase c = {{2, 3, 7, 9}, {4, 3, 3, 3}, {1}, {1}};
    const ConvReference expected(c, dtype);
    for (const char* activation : {"none", "relu", "silu"}) {
      SCOPED_TRACE(activation);
      Attributes attrs = c.attrs();
      attrs.Set("activation", std::string(activation));
      ExpectNear(Run(*cuda_, "conv", {expected.x, expected.w, expected.bias}, attrs),
                 expected.WithEpilogue(activation, true), roundings, scale);
      ExpectNear(Run(*cuda_, "conv", {expected.x, expected.w}, attrs),
                 expected.WithEpilogue(activation, false), roundings, scale);
    }
  }

 private:
  const cuda_emulation::Options options_;
};

constexpr double ActivationRoundings(DType dtype) { return SizeOf(dtype) == 2 ? 1 : 16; }

TEST_F(ConvChoiceTest, ComputesProductsIfCudnnHasNoEngine) {
  cuda_emulation::TheOptions().refuse_convolutions = true;
  const ConvCase cases[] = {
      {{2, 3, 9}, {4, 3, 3}},
      {{3, 3, 7, 9}, {4, 3, 3, 3}, {1}, {1}},
      {{1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}, {1, 2, 1}, {1, 0, 1}},
      {{2, 3, 8, 9}, {5, 3, 3, 2}, {2, 3}, {1, 0, 2, 1}, {1, 2}},
      {{3, 6, 7, 7}, {4, 3, 3, 3}, {2}, {1}, {1}, 2},   // more images than groups
      {{2, 8, 5, 5}, {16, 1, 3, 3}, {1}, {1}, {1}, 8},  // more groups than images
  };
  for (const ConvCase& c : cases) {
    for (const DType dtype : kDTypes) ExpectAllKinds(c, dtype);
  }
  for (const DType dtype : kDTypes) ExpectEpilogues(dtype, ActivationRoundings(dtype), 1);
}

TEST_F(ConvChoiceTest, ComputesProductsOfItemsIfCublasHasNoBatches) {
  cuda_emulation::TheOptions().refuse_convolutions = true;
  cuda_emulation::TheOptions().refuse_batches = true;
  ExpectAllKinds({{3, 6, 7, 7}, {4, 3, 3, 3}, {2}, {1}, {1}, 2}, DType::kFloat32);
  ExpectAllKinds({{2, 8, 5, 5}, {16, 1, 3, 3}, {1}, {1}, {1}, 8}, DType::kFloat16);
}

// The columns of an image don't fit in the scratch memory at once.
TEST_F(ConvChoiceTest, ComputesProductsOfSomePositionsAtATime) {
  cuda_emulation::TheOptions().refuse_convolutions = true;
  ExpectAllKinds({{2, 1, 1500, 1501}, {2, 1, 2, 2}}, DType::kFloat64);
}

TEST_F(ConvChoiceTest, RoundsOnceIfCudnnFusesNoEpilogue) {
  cuda_emulation::TheOptions().refuse_epilogues = true;
  for (const DType dtype : kDTypes) ExpectEpilogues(dtype, ActivationRoundings(dtype), 1);
}

TEST_F(ConvChoiceTest, RoundsToTf32OnlyIfAllowed) {
  const ConvCase c = {{1, 1, 1, 2}, {1, 1, 1, 1}};
  const HostTensor x = HostTensor::Of<float>(DType::kFloat32, c.x, {1 + 0x1p-12f, 2});
  const HostTensor w = HostTensor::Of<float>(DType::kFloat32, c.w, {1});
  Attributes attrs = c.attrs();
  for (const bool refuse : {false, true}) {
    cuda_emulation::TheOptions().refuse_convolutions = refuse;
    attrs.Set("allow_tf32", false);
    ExpectNear(Run(*cuda_, "conv", {x, w}, attrs), {1 + 0x1p-12, 2}, 0);
    attrs.Set("allow_tf32", true);
    ExpectNear(Run(*cuda_, "conv", {x, w}, attrs), {1, 2}, 0);
  }
}

// The emulation recommends these engines first: a nondeterministic one, one with another precision,
// one with too much workspace, one without a plan, and one with tensor cores.
TEST_F(ConvChoiceTest, ReportsWhyEnginesWereRejected) {
  std::vector<cuda::ConvEngine> seen;
  cuda::ObserveConvPlans(
      [&](const cuda::ConvProblem& problem, const std::vector<cuda::ConvEngine>& engines) {
        EXPECT_EQ(problem.kind, ConvKind::kForward);
        seen = engines;
      });
  const ConvCase c = {{2, 3, 9}, {4, 3, 3}};
  const ConvReference expected(c, DType::kFloat16);
  Run(*cuda_, "conv", {expected.x, expected.w}, c.attrs());
  cuda::ObserveConvPlans(nullptr);
  using testing::HasSubstr;
  ASSERT_EQ(seen.size(), 5u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].index, static_cast<int64_t>(i));
  EXPECT_THAT(seen[0].rejection, HasSubstr("nondeterministic"));
  EXPECT_THAT(seen[1].rejection, HasSubstr("converts inputs to a smaller type"));
  EXPECT_THAT(seen[2].rejection, HasSubstr("too much workspace"));
  EXPECT_THAT(seen[3].rejection, HasSubstr("cudnnBackendFinalize failed"));
  EXPECT_EQ(seen[4].rejection, "");
  EXPECT_THAT(seen[4].notes, testing::ElementsAre(cuda::cudnn::NumericalNote::kTensorCore));
  EXPECT_EQ(seen[4].workspace_bytes, 64 << 10);
}

TEST_F(ConvChoiceTest, ReleasesAllObjectsOfCudnn) {
  ExpectAllKinds({{2, 3, 9}, {4, 3, 3}}, DType::kFloat32);
  EXPECT_THAT(cuda_emulation::LiveObjects(), testing::HasSubstr("descriptors of cuDNN"));
  cuda_.reset();
  EXPECT_THAT(cuda_emulation::LiveObjects(), testing::Not(testing::HasSubstr("cuDNN")));
}

}  // namespace
}  // namespace tensord::server
