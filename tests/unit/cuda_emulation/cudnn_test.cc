// The emulated cuDNN: a convolution from its descriptors to its execution, and reports of misuse.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "emulation_fixture.h"
#include "tensord/server/device/cuda/cudnn_descriptor.h"

namespace tensord::cuda_emulation {
namespace {

using server::cuda::CudnnDescriptor;
using server::cuda::CudnnLibrary;
using server::cuda::LoadCudnn;
namespace cudnn = server::cuda::cudnn;
using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::DescriptorType;
using cudnn::Status;
using testing::ElementsAre;
using Ints = std::vector<int64_t>;

constexpr int64_t kX = 1, kW = 2, kY = 3;

// Convolves x (1,1,1,4) with w (1,1,1,2). Each descriptor is a member, so that a test can replace
// it.
class CudnnTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    ASSERT_EQ(library_.Create(&handle_), Status::kSuccess);
    ASSERT_EQ(library_.SetStream(handle_, first_), Status::kSuccess);
    x_data_ = MakeFloats({1, 2, 3, 4});
    w_data_ = MakeFloats({10, 1});
    y_data_ = MakeFloats({0, 0, 0});
    ASSERT_EQ(cudaMalloc(&workspace_, kWorkspaceBytes), cudaSuccess);
  }
  void TearDown() override {
    library_.Destroy(handle_);
    for (float* data : {x_data_, w_data_, y_data_}) cudaFree(data);
    cudaFree(workspace_);
    EmulationTest::TearDown();
  }

  static float* MakeFloats(const std::vector<float>& values) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, values.size() * sizeof(float)), cudaSuccess);
    void* pinned = nullptr;
    EXPECT_EQ(cudaHostAlloc(&pinned, values.size() * sizeof(float), cudaHostAllocDefault),
              cudaSuccess);
    std::copy(values.begin(), values.end(), static_cast<float*>(pinned));
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(data, pinned, values.size() * sizeof(float), cudaMemcpyHostToDevice,
                              stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    return static_cast<float*>(data);
  }

  std::vector<float> Result() {
    std::vector<float> values;
    for (const int bits : Download(reinterpret_cast<const int*>(y_data_), 3, first_)) {
      values.push_back(std::bit_cast<float>(bits));
    }
    return values;
  }

  CudnnDescriptor New(DescriptorType type) const { return CudnnDescriptor(library_, type); }

  CudnnDescriptor NewTensor(int64_t number, const Ints& sizes, const Ints& strides) const {
    CudnnDescriptor tensor = New(DescriptorType::kTensor);
    tensor.Set(Attribute::kTensorDataType, cudnn::DataType::kFloat)
        .Set(Attribute::kTensorDimensions, sizes)
        .Set(Attribute::kTensorStrides, strides)
        .Set(Attribute::kTensorUniqueId, number)
        .Set(Attribute::kTensorByteAlignment, int64_t{16});
    return tensor;
  }
  CudnnDescriptor NewRow(int64_t number, int64_t size) const {
    return NewTensor(number, {1, 1, 1, size}, {size, size, size, 1});
  }
  CudnnDescriptor NewConvolution() const {
    CudnnDescriptor convolution = New(DescriptorType::kConvolution);
    convolution.Set(Attribute::kConvolutionComputeType, cudnn::DataType::kFloat)
        .Set(Attribute::kConvolutionMode, cudnn::ConvolutionMode::kCrossCorrelation)
        .Set(Attribute::kConvolutionSpatialDims, int64_t{2})
        .Set(Attribute::kConvolutionFilterStrides, Ints{1, 1})
        .Set(Attribute::kConvolutionDilations, Ints{1, 1})
        .Set(Attribute::kConvolutionPrePaddings, Ints{0, 0})
        .Set(Attribute::kConvolutionPostPaddings, Ints{0, 0});
    return convolution;
  }
  CudnnDescriptor NewOperation(const CudnnDescriptor& convolution, const CudnnDescriptor& x,
                               const CudnnDescriptor& w, const CudnnDescriptor& y) const {
    const float one = 1, zero = 0;
    CudnnDescriptor operation = New(DescriptorType::kOperationConvolutionForward);
    operation.Set(Attribute::kForwardAlpha, AttributeType::kFloat, 1, &one)
        .Set(Attribute::kForwardBeta, AttributeType::kFloat, 1, &zero)
        .Set(Attribute::kForwardConvolution, convolution)
        .Set(Attribute::kForwardX, x)
        .Set(Attribute::kForwardW, w)
        .Set(Attribute::kForwardY, y);
    return operation;
  }

  // Makes the plan of the only engine of the fallback.
  void MakePlan() {
    CudnnDescriptor x = NewRow(kX, 4), w = NewRow(kW, 2), y = NewRow(kY, 3);
    CudnnDescriptor convolution = NewConvolution();
    for (CudnnDescriptor* descriptor : {&x, &w, &y, &convolution}) {
      ASSERT_TRUE(descriptor->Finalize().ok());
    }
    CudnnDescriptor operation = NewOperation(convolution, x, w, y);
    ASSERT_TRUE(operation.Finalize().ok());
    const cudnn::Descriptor operations[] = {operation.get()};
    CudnnDescriptor graph = New(DescriptorType::kOperationGraph);
    graph.Set(Attribute::kGraphHandle, handle_)
        .Set(Attribute::kGraphOperations, AttributeType::kBackendDescriptor, 1, operations);
    ASSERT_TRUE(graph.Finalize().ok());
    CudnnDescriptor heuristics = New(DescriptorType::kEngineHeuristics);
    heuristics.Set(Attribute::kHeuristicsOperationGraph, graph)
        .Set(Attribute::kHeuristicsMode, cudnn::HeurMode::kFallback);
    ASSERT_TRUE(heuristics.Finalize().ok());
    CudnnDescriptor config = New(DescriptorType::kEngineConfig);
    cudnn::Descriptor filled = config.get();
    int64_t count = 0;
    ASSERT_TRUE(heuristics
                    .Get(Attribute::kHeuristicsResults, AttributeType::kBackendDescriptor, 1,
                         &count, &filled)
                    .ok());
    ASSERT_EQ(count, 1);
    plan_.Set(Attribute::kPlanHandle, handle_).Set(Attribute::kPlanEngineConfig, config);
    ASSERT_TRUE(plan_.Finalize().ok());
    int64_t bytes = 0;
    ASSERT_TRUE(
        plan_.Get(Attribute::kPlanWorkspaceSize, AttributeType::kInt64, 1, &count, &bytes).ok());
    ASSERT_EQ(bytes, kWorkspaceBytes);
  }

  Status Execute(const Ints& numbers, const std::vector<void*>& pointers, void* workspace) {
    CudnnDescriptor pack = New(DescriptorType::kVariantPack);
    pack.Set(Attribute::kVariantPackUniqueIds, numbers)
        .Set(Attribute::kVariantPackDataPointers, AttributeType::kVoidPtr,
             static_cast<int64_t>(pointers.size()), pointers.data())
        .Set(Attribute::kVariantPackWorkspace, AttributeType::kVoidPtr, 1, &workspace);
    EXPECT_TRUE(pack.Finalize().ok());
    return library_.Execute(handle_, plan_.get(), pack.get());
  }

  static constexpr int64_t kWorkspaceBytes = 64 << 10;
  const CudnnLibrary& library_ = **LoadCudnn();
  cudnn::Handle handle_ = nullptr;
  CudnnDescriptor plan_{library_, DescriptorType::kExecutionPlan};
  float *x_data_ = nullptr, *w_data_ = nullptr, *y_data_ = nullptr;
  void* workspace_ = nullptr;
};

TEST_F(CudnnTest, ComputesAConvolution) {
  MakePlan();
  ASSERT_EQ(Execute({kX, kW, kY}, {x_data_, w_data_, y_data_}, workspace_), Status::kSuccess);
  EXPECT_THAT(Result(), ElementsAre(12, 23, 34));
}

TEST_F(CudnnTest, RejectsExecutionsWithWrongAddresses) {
  MakePlan();
  EXPECT_EQ(Execute({kX, kW}, {x_data_, w_data_}, workspace_), Status::kBadParam);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(Execute({kX, kW, kY}, {x_data_ + 1, w_data_, y_data_}, workspace_),
            Status::kBadParamMisalignedPointer);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(Execute({kX, kW, kY}, {x_data_, w_data_, y_data_}, w_data_),
            Status::kBadParamSizeInsufficient);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(Execute({kX, kW, kY}, {x_data_, w_data_, y_data_}, nullptr),
            Status::kBadParamSizeInsufficient);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(CudnnTest, RejectsDescriptorsThatAreNotFinalized) {
  CudnnDescriptor heuristics = New(DescriptorType::kEngineHeuristics);
  const CudnnDescriptor graph = New(DescriptorType::kOperationGraph);
  const cudnn::Descriptor value = graph.get();
  EXPECT_EQ(library_.SetAttribute(heuristics.get(), Attribute::kHeuristicsOperationGraph,
                                  AttributeType::kBackendDescriptor, 1, &value),
            Status::kBadParamNotFinalized);
  EXPECT_TRUE(HasNewReports());
  int64_t count = 0;
  EXPECT_EQ(library_.GetAttribute(plan_.get(), Attribute::kPlanWorkspaceSize, AttributeType::kInt64,
                                  1, &count, &count),
            Status::kBadParamNotFinalized);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(library_.Execute(handle_, plan_.get(), New(DescriptorType::kVariantPack).get()),
            Status::kBadParamNotFinalized);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(CudnnTest, RejectsWrongAttributes) {
  CudnnDescriptor tensor = New(DescriptorType::kTensor);
  EXPECT_EQ(library_.Finalize(tensor.get()), Status::kBadParam);  // nothing is set
  EXPECT_TRUE(HasNewReports());
  const int64_t value = 1;
  EXPECT_EQ(library_.SetAttribute(tensor.get(), Attribute::kTensorUniqueId, AttributeType::kFloat,
                                  1, &value),
            Status::kBadParamAttributeType);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(library_.SetAttribute(tensor.get(), Attribute::kHeuristicsMode,
                                  AttributeType::kHeurMode, 1, &value),
            Status::kBadParam);
  EXPECT_TRUE(HasNewReports());
  CudnnDescriptor row = NewRow(kX, 4);
  ASSERT_TRUE(row.Finalize().ok());
  EXPECT_EQ(library_.SetAttribute(row.get(), Attribute::kTensorUniqueId, AttributeType::kInt64, 1,
                                  &value),
            Status::kBadParam);
  EXPECT_TRUE(HasNewReports());
  EXPECT_FALSE(NewTensor(kX, {1, 1, 2, 2}, {4, 4, 1, 2}).Finalize().ok());
  EXPECT_TRUE(HasNewReports());
}

TEST_F(CudnnTest, RejectsShapesThatDoNotMatch) {
  CudnnDescriptor x = NewRow(kX, 4), w = NewRow(kW, 2), y = NewRow(kY, 4);
  CudnnDescriptor convolution = NewConvolution();
  for (CudnnDescriptor* descriptor : {&x, &w, &y, &convolution}) {
    ASSERT_TRUE(descriptor->Finalize().ok());
  }
  const CudnnDescriptor operation = NewOperation(convolution, x, w, y);
  EXPECT_EQ(library_.Finalize(operation.get()), Status::kBadParamShapeMismatch);
  EXPECT_TRUE(HasNewReports());
}

TEST_F(CudnnTest, RejectsStreamsOfAnotherDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(library_.SetStream(handle_, other), Status::kBadParamStreamMismatch);
  EXPECT_TRUE(HasNewReports());
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CudnnTest, CountsLiveObjects) {
  EXPECT_THAT(LiveObjects(), testing::HasSubstr("1 handles of cuDNN, 1 descriptors of cuDNN"));
}

}  // namespace
}  // namespace tensord::cuda_emulation
