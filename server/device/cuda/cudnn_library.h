// cuDNN 9, loaded when a convolution first needs it: a server can start without it. No Debian
// package has a header of cuDNN, so this file declares the part of its graph interface that the
// backend calls. If the build finds NVIDIA's header, cudnn_header_check.cc compares the two.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct cudnnContext;

namespace tensord::server::cuda {
namespace cudnn {

using Handle = cudnnContext*;
// A node of a graph, a graph, an engine or a plan. Its attributes are set, then it is finalized.
using Descriptor = void*;

// The results that the backend distinguishes. The thousands are the category: a result from 3000 to
// 3999 says that the library has no code for the request.
enum class Status : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kBadParamNullPointer = 2002,
  kBadParamMisalignedPointer = 2003,
  kBadParamNotFinalized = 2004,
  kBadParamSizeInsufficient = 2006,
  kBadParamStreamMismatch = 2007,
  kBadParamShapeMismatch = 2008,
  kBadParamAttributeType = 2010,
  kNotSupported = 3000,
  kNotSupportedGraphPattern = 3001,
  kNotSupportedArchMismatch = 3007,
  kInternalErrorHostAllocationFailed = 4003,
  kInternalErrorDeviceAllocationFailed = 4004,
  kExecutionFailed = 5000,
  kExecutionFailedCudaDriver = 5001,
};

enum class DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };
enum class ConvolutionMode : int { kConvolution = 0, kCrossCorrelation = 1 };
enum class PointwiseMode : int { kAdd = 0, kReluFwd = 100 };
enum class NanPropagation : int { kNotPropagate = 0, kPropagate = 1 };
enum class HeurMode : int { kFallback = 2, kA = 3 };
enum class NumericalNote : int {
  kTensorCore = 0,
  kDownConvertInputs = 1,
  kReducedPrecisionReduction = 2,
  kFft = 3,
  kNondeterministic = 4,
  kWinograd = 5,
  kWinogradTile4x4 = 6,
  kWinogradTile6x6 = 7,
  kWinogradTile13x13 = 8,
};

enum class DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kOperationConvolutionForward = 10,
  kOperationConvolutionBackwardFilter = 11,
  kOperationConvolutionBackwardData = 12,
  kOperationPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

enum class AttributeType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kVoidPtr = 6,
  kConvolutionMode = 7,
  kHeurMode = 8,
  kNanPropagation = 10,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kBackendDescriptor = 15,
};

enum class Attribute : int {
  kPointwiseMode = 0,
  kPointwiseMathPrecision = 1,
  kPointwiseNanPropagation = 2,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionFilterStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsOperationGraph = 201,
  kHeuristicsResults = 202,
  kEngineConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspaceSize = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kPointwiseOperationDescriptor = 750,
  kPointwiseOperationX = 751,
  kPointwiseOperationB = 752,
  kPointwiseOperationY = 753,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorByteAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorUniqueId = 906,
  kTensorIsVirtual = 907,
  kVariantPackUniqueIds = 1000,
  kVariantPackDataPointers = 1001,
  kVariantPackWorkspace = 1003,
  kEngineGlobalIndex = 1301,
  kEngineNumericalNote = 1303,
};

}  // namespace cudnn

// The functions of cuDNN that the backend calls.
struct CudnnLibrary {
  size_t (*GetVersion)() = nullptr;
  const char* (*GetErrorString)(cudnn::Status status) = nullptr;
  cudnn::Status (*Create)(cudnn::Handle* handle) = nullptr;
  cudnn::Status (*Destroy)(cudnn::Handle handle) = nullptr;
  cudnn::Status (*SetStream)(cudnn::Handle handle, cudaStream_t stream) = nullptr;
  cudnn::Status (*CreateDescriptor)(cudnn::DescriptorType type,
                                    cudnn::Descriptor* descriptor) = nullptr;
  cudnn::Status (*DestroyDescriptor)(cudnn::Descriptor descriptor) = nullptr;
  cudnn::Status (*SetAttribute)(cudnn::Descriptor descriptor, cudnn::Attribute attribute,
                                cudnn::AttributeType type, int64_t count,
                                const void* values) = nullptr;
  cudnn::Status (*GetAttribute)(cudnn::Descriptor descriptor, cudnn::Attribute attribute,
                                cudnn::AttributeType type, int64_t requested, int64_t* count,
                                void* values) = nullptr;
  cudnn::Status (*Finalize)(cudnn::Descriptor descriptor) = nullptr;
  cudnn::Status (*Execute)(cudnn::Handle handle, cudnn::Descriptor plan,
                           cudnn::Descriptor variant_pack) = nullptr;

  // Returns OK, or a status with the name of the call and cuDNN's text. Its code is:
  //   UNIMPLEMENTED       the library has no code for the request
  //   RESOURCE_EXHAUSTED  the host or the GPU has too little memory
  //   DATA_LOSS           a kernel failed
  //   INTERNAL            any other error
  absl::Status ToStatus(cudnn::Status status, absl::string_view call) const;
};

// Loads cuDNN at the first call. Later calls return the same result. If cuDNN can't be loaded,
// returns FAILED_PRECONDITION with the reason and the package that has it. Thread-safe.
absl::StatusOr<const CudnnLibrary*> LoadCudnn();

}  // namespace tensord::server::cuda
