// Checks cudnn_library.h against NVIDIA's header. The build compiles this file only if it finds
// that header.
#include <cudnn.h>

#include <type_traits>

#include "tensord/server/device/cuda/cudnn_library.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace tensord::server::cuda {
namespace {

// Types are the same, or enumerations of one size.
template <typename A, typename B>
constexpr bool kMatches = std::is_same_v<A, B> ||
                          (std::is_enum_v<A> && std::is_enum_v<B> && sizeof(A) == sizeof(B));

template <typename Result, typename... Parameters, typename OtherResult, typename... Others>
constexpr bool Match(Result (*)(Parameters...), OtherResult (*)(Others...)) {
  if constexpr (sizeof...(Parameters) == sizeof...(Others)) {
    return kMatches<Result, OtherResult> && (kMatches<Parameters, Others> && ...);
  } else {
    return false;
  }
}

constexpr CudnnLibrary kDeclared;
static_assert(Match(kDeclared.GetVersion, static_cast<decltype(&cudnnGetVersion)>(nullptr)));
static_assert(Match(kDeclared.GetErrorString,
                    static_cast<decltype(&cudnnGetErrorString)>(nullptr)));
static_assert(Match(kDeclared.Create, static_cast<decltype(&cudnnCreate)>(nullptr)));
static_assert(Match(kDeclared.Destroy, static_cast<decltype(&cudnnDestroy)>(nullptr)));
static_assert(Match(kDeclared.SetStream, static_cast<decltype(&cudnnSetStream)>(nullptr)));
static_assert(Match(kDeclared.CreateDescriptor,
                    static_cast<decltype(&cudnnBackendCreateDescriptor)>(nullptr)));
static_assert(Match(kDeclared.DestroyDescriptor,
                    static_cast<decltype(&cudnnBackendDestroyDescriptor)>(nullptr)));
static_assert(Match(kDeclared.SetAttribute,
                    static_cast<decltype(&cudnnBackendSetAttribute)>(nullptr)));
static_assert(Match(kDeclared.GetAttribute,
                    static_cast<decltype(&cudnnBackendGetAttribute)>(nullptr)));
static_assert(Match(kDeclared.Finalize, static_cast<decltype(&cudnnBackendFinalize)>(nullptr)));
static_assert(Match(kDeclared.Execute, static_cast<decltype(&cudnnBackendExecute)>(nullptr)));
static_assert(std::is_same_v<cudnn::Handle, cudnnHandle_t>);
static_assert(std::is_same_v<cudnn::Descriptor, cudnnBackendDescriptor_t>);

#define TENSORD_CHECK(ours, theirs) \
  static_assert(static_cast<int>(cudnn::Status::ours) == static_cast<int>(CUDNN_STATUS_##theirs))
TENSORD_CHECK(kSuccess, SUCCESS);
TENSORD_CHECK(kNotInitialized, NOT_INITIALIZED);
TENSORD_CHECK(kBadParam, BAD_PARAM);
TENSORD_CHECK(kBadParamNullPointer, BAD_PARAM_NULL_POINTER);
TENSORD_CHECK(kBadParamMisalignedPointer, BAD_PARAM_MISALIGNED_POINTER);
TENSORD_CHECK(kBadParamNotFinalized, BAD_PARAM_NOT_FINALIZED);
TENSORD_CHECK(kBadParamSizeInsufficient, BAD_PARAM_SIZE_INSUFFICIENT);
TENSORD_CHECK(kBadParamStreamMismatch, BAD_PARAM_STREAM_MISMATCH);
TENSORD_CHECK(kBadParamShapeMismatch, BAD_PARAM_SHAPE_MISMATCH);
TENSORD_CHECK(kBadParamAttributeType, BAD_PARAM_ATTRIBUTE_TYPE);
TENSORD_CHECK(kNotSupported, NOT_SUPPORTED);
TENSORD_CHECK(kNotSupportedGraphPattern, NOT_SUPPORTED_GRAPH_PATTERN);
TENSORD_CHECK(kNotSupportedArchMismatch, NOT_SUPPORTED_ARCH_MISMATCH);
TENSORD_CHECK(kInternalErrorHostAllocationFailed, INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
TENSORD_CHECK(kInternalErrorDeviceAllocationFailed, INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
TENSORD_CHECK(kExecutionFailed, EXECUTION_FAILED);
TENSORD_CHECK(kExecutionFailedCudaDriver, EXECUTION_FAILED_CUDA_DRIVER);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs) \
  static_assert(static_cast<int>(cudnn::DataType::ours) == static_cast<int>(CUDNN_DATA_##theirs))
TENSORD_CHECK(kFloat, FLOAT);
TENSORD_CHECK(kDouble, DOUBLE);
TENSORD_CHECK(kHalf, HALF);
TENSORD_CHECK(kBFloat16, BFLOAT16);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs) \
  static_assert(static_cast<int>(cudnn::ConvolutionMode::ours) == static_cast<int>(CUDNN_##theirs))
TENSORD_CHECK(kConvolution, CONVOLUTION);
TENSORD_CHECK(kCrossCorrelation, CROSS_CORRELATION);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs)                             \
  static_assert(static_cast<int>(cudnn::PointwiseMode::ours) == \
                static_cast<int>(CUDNN_POINTWISE_##theirs))
TENSORD_CHECK(kAdd, ADD);
TENSORD_CHECK(kReluFwd, RELU_FWD);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs) \
  static_assert(static_cast<int>(cudnn::NanPropagation::ours) == static_cast<int>(CUDNN_##theirs))
TENSORD_CHECK(kNotPropagate, NOT_PROPAGATE_NAN);
TENSORD_CHECK(kPropagate, PROPAGATE_NAN);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs)                        \
  static_assert(static_cast<int>(cudnn::HeurMode::ours) == \
                static_cast<int>(CUDNN_HEUR_MODE_##theirs))
TENSORD_CHECK(kFallback, FALLBACK);
TENSORD_CHECK(kA, A);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs)                             \
  static_assert(static_cast<int>(cudnn::NumericalNote::ours) == \
                static_cast<int>(CUDNN_NUMERICAL_NOTE_##theirs))
TENSORD_CHECK(kTensorCore, TENSOR_CORE);
TENSORD_CHECK(kDownConvertInputs, DOWN_CONVERT_INPUTS);
TENSORD_CHECK(kReducedPrecisionReduction, REDUCED_PRECISION_REDUCTION);
TENSORD_CHECK(kFft, FFT);
TENSORD_CHECK(kNondeterministic, NONDETERMINISTIC);
TENSORD_CHECK(kWinograd, WINOGRAD);
TENSORD_CHECK(kWinogradTile4x4, WINOGRAD_TILE_4x4);
TENSORD_CHECK(kWinogradTile6x6, WINOGRAD_TILE_6x6);
TENSORD_CHECK(kWinogradTile13x13, WINOGRAD_TILE_13x13);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs)                              \
  static_assert(static_cast<int>(cudnn::DescriptorType::ours) == \
                static_cast<int>(CUDNN_BACKEND_##theirs))
TENSORD_CHECK(kPointwise, POINTWISE_DESCRIPTOR);
TENSORD_CHECK(kConvolution, CONVOLUTION_DESCRIPTOR);
TENSORD_CHECK(kEngine, ENGINE_DESCRIPTOR);
TENSORD_CHECK(kEngineConfig, ENGINECFG_DESCRIPTOR);
TENSORD_CHECK(kEngineHeuristics, ENGINEHEUR_DESCRIPTOR);
TENSORD_CHECK(kExecutionPlan, EXECUTION_PLAN_DESCRIPTOR);
TENSORD_CHECK(kOperationConvolutionForward, OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
TENSORD_CHECK(kOperationConvolutionBackwardFilter,
              OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
TENSORD_CHECK(kOperationConvolutionBackwardData, OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
TENSORD_CHECK(kOperationPointwise, OPERATION_POINTWISE_DESCRIPTOR);
TENSORD_CHECK(kOperationGraph, OPERATIONGRAPH_DESCRIPTOR);
TENSORD_CHECK(kVariantPack, VARIANT_PACK_DESCRIPTOR);
TENSORD_CHECK(kTensor, TENSOR_DESCRIPTOR);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs)                             \
  static_assert(static_cast<int>(cudnn::AttributeType::ours) == \
                static_cast<int>(CUDNN_TYPE_##theirs))
TENSORD_CHECK(kHandle, HANDLE);
TENSORD_CHECK(kDataType, DATA_TYPE);
TENSORD_CHECK(kBoolean, BOOLEAN);
TENSORD_CHECK(kInt64, INT64);
TENSORD_CHECK(kFloat, FLOAT);
TENSORD_CHECK(kDouble, DOUBLE);
TENSORD_CHECK(kVoidPtr, VOID_PTR);
TENSORD_CHECK(kConvolutionMode, CONVOLUTION_MODE);
TENSORD_CHECK(kHeurMode, HEUR_MODE);
TENSORD_CHECK(kNanPropagation, NAN_PROPOGATION);
TENSORD_CHECK(kNumericalNote, NUMERICAL_NOTE);
TENSORD_CHECK(kPointwiseMode, POINTWISE_MODE);
TENSORD_CHECK(kBackendDescriptor, BACKEND_DESCRIPTOR);
#undef TENSORD_CHECK

#define TENSORD_CHECK(ours, theirs) \
  static_assert(static_cast<int>(cudnn::Attribute::ours) == static_cast<int>(CUDNN_ATTR_##theirs))
TENSORD_CHECK(kPointwiseMode, POINTWISE_MODE);
TENSORD_CHECK(kPointwiseMathPrecision, POINTWISE_MATH_PREC);
TENSORD_CHECK(kPointwiseNanPropagation, POINTWISE_NAN_PROPAGATION);
TENSORD_CHECK(kConvolutionComputeType, CONVOLUTION_COMP_TYPE);
TENSORD_CHECK(kConvolutionMode, CONVOLUTION_CONV_MODE);
TENSORD_CHECK(kConvolutionDilations, CONVOLUTION_DILATIONS);
TENSORD_CHECK(kConvolutionFilterStrides, CONVOLUTION_FILTER_STRIDES);
TENSORD_CHECK(kConvolutionPostPaddings, CONVOLUTION_POST_PADDINGS);
TENSORD_CHECK(kConvolutionPrePaddings, CONVOLUTION_PRE_PADDINGS);
TENSORD_CHECK(kConvolutionSpatialDims, CONVOLUTION_SPATIAL_DIMS);
TENSORD_CHECK(kHeuristicsMode, ENGINEHEUR_MODE);
TENSORD_CHECK(kHeuristicsOperationGraph, ENGINEHEUR_OPERATION_GRAPH);
TENSORD_CHECK(kHeuristicsResults, ENGINEHEUR_RESULTS);
TENSORD_CHECK(kEngineConfigEngine, ENGINECFG_ENGINE);
TENSORD_CHECK(kPlanHandle, EXECUTION_PLAN_HANDLE);
TENSORD_CHECK(kPlanEngineConfig, EXECUTION_PLAN_ENGINE_CONFIG);
TENSORD_CHECK(kPlanWorkspaceSize, EXECUTION_PLAN_WORKSPACE_SIZE);
TENSORD_CHECK(kForwardAlpha, OPERATION_CONVOLUTION_FORWARD_ALPHA);
TENSORD_CHECK(kForwardBeta, OPERATION_CONVOLUTION_FORWARD_BETA);
TENSORD_CHECK(kForwardConvolution, OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
TENSORD_CHECK(kForwardW, OPERATION_CONVOLUTION_FORWARD_W);
TENSORD_CHECK(kForwardX, OPERATION_CONVOLUTION_FORWARD_X);
TENSORD_CHECK(kForwardY, OPERATION_CONVOLUTION_FORWARD_Y);
TENSORD_CHECK(kBackwardDataAlpha, OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
TENSORD_CHECK(kBackwardDataBeta, OPERATION_CONVOLUTION_BWD_DATA_BETA);
TENSORD_CHECK(kBackwardDataConvolution, OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
TENSORD_CHECK(kBackwardDataW, OPERATION_CONVOLUTION_BWD_DATA_W);
TENSORD_CHECK(kBackwardDataDx, OPERATION_CONVOLUTION_BWD_DATA_DX);
TENSORD_CHECK(kBackwardDataDy, OPERATION_CONVOLUTION_BWD_DATA_DY);
TENSORD_CHECK(kBackwardFilterAlpha, OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
TENSORD_CHECK(kBackwardFilterBeta, OPERATION_CONVOLUTION_BWD_FILTER_BETA);
TENSORD_CHECK(kBackwardFilterConvolution, OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
TENSORD_CHECK(kBackwardFilterDw, OPERATION_CONVOLUTION_BWD_FILTER_DW);
TENSORD_CHECK(kBackwardFilterX, OPERATION_CONVOLUTION_BWD_FILTER_X);
TENSORD_CHECK(kBackwardFilterDy, OPERATION_CONVOLUTION_BWD_FILTER_DY);
TENSORD_CHECK(kPointwiseOperationDescriptor, OPERATION_POINTWISE_PW_DESCRIPTOR);
TENSORD_CHECK(kPointwiseOperationX, OPERATION_POINTWISE_XDESC);
TENSORD_CHECK(kPointwiseOperationB, OPERATION_POINTWISE_BDESC);
TENSORD_CHECK(kPointwiseOperationY, OPERATION_POINTWISE_YDESC);
TENSORD_CHECK(kGraphHandle, OPERATIONGRAPH_HANDLE);
TENSORD_CHECK(kGraphOperations, OPERATIONGRAPH_OPS);
TENSORD_CHECK(kTensorByteAlignment, TENSOR_BYTE_ALIGNMENT);
TENSORD_CHECK(kTensorDataType, TENSOR_DATA_TYPE);
TENSORD_CHECK(kTensorDimensions, TENSOR_DIMENSIONS);
TENSORD_CHECK(kTensorStrides, TENSOR_STRIDES);
TENSORD_CHECK(kTensorUniqueId, TENSOR_UNIQUE_ID);
TENSORD_CHECK(kTensorIsVirtual, TENSOR_IS_VIRTUAL);
TENSORD_CHECK(kVariantPackUniqueIds, VARIANT_PACK_UNIQUE_IDS);
TENSORD_CHECK(kVariantPackDataPointers, VARIANT_PACK_DATA_POINTERS);
TENSORD_CHECK(kVariantPackWorkspace, VARIANT_PACK_WORKSPACE);
TENSORD_CHECK(kEngineGlobalIndex, ENGINE_GLOBAL_INDEX);
TENSORD_CHECK(kEngineNumericalNote, ENGINE_NUMERICAL_NOTE);
#undef TENSORD_CHECK

}  // namespace
}  // namespace tensord::server::cuda
