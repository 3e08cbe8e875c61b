#include "tensord/tests/cuda_emulation/cudnn_object.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/element.h"

namespace tensord::cuda_emulation {
namespace {

using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::DescriptorType;
using cudnn::Status;

// An attribute that can be set.
struct Rule {
  DescriptorType owner;
  Attribute attribute;
  AttributeType type;
  int64_t max_count;
  bool required = true;
};

constexpr int64_t kMaxSizes = 8, kMaxOperations = 8, kMaxTensors = 16;

constexpr Rule kRules[] = {
    {DescriptorType::kTensor, Attribute::kTensorDataType, AttributeType::kDataType, 1},
    {DescriptorType::kTensor, Attribute::kTensorDimensions, AttributeType::kInt64, kMaxSizes},
    {DescriptorType::kTensor, Attribute::kTensorStrides, AttributeType::kInt64, kMaxSizes},
    {DescriptorType::kTensor, Attribute::kTensorUniqueId, AttributeType::kInt64, 1},
    {DescriptorType::kTensor, Attribute::kTensorByteAlignment, AttributeType::kInt64, 1},
    {DescriptorType::kTensor, Attribute::kTensorIsVirtual, AttributeType::kBoolean, 1, false},

    {DescriptorType::kConvolution, Attribute::kConvolutionComputeType, AttributeType::kDataType, 1},
    {DescriptorType::kConvolution, Attribute::kConvolutionMode, AttributeType::kConvolutionMode, 1},
    {DescriptorType::kConvolution, Attribute::kConvolutionSpatialDims, AttributeType::kInt64, 1},
    {DescriptorType::kConvolution, Attribute::kConvolutionFilterStrides, AttributeType::kInt64, 6},
    {DescriptorType::kConvolution, Attribute::kConvolutionDilations, AttributeType::kInt64, 6},
    {DescriptorType::kConvolution, Attribute::kConvolutionPrePaddings, AttributeType::kInt64, 6},
    {DescriptorType::kConvolution, Attribute::kConvolutionPostPaddings, AttributeType::kInt64, 6},

    {DescriptorType::kPointwise, Attribute::kPointwiseMode, AttributeType::kPointwiseMode, 1},
    {DescriptorType::kPointwise, Attribute::kPointwiseMathPrecision, AttributeType::kDataType, 1},
    {DescriptorType::kPointwise, Attribute::kPointwiseNanPropagation,
     AttributeType::kNanPropagation, 1, false},

    {DescriptorType::kOperationConvolutionForward, Attribute::kForwardConvolution,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionForward, Attribute::kForwardX,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionForward, Attribute::kForwardW,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionForward, Attribute::kForwardY,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionForward, Attribute::kForwardAlpha, AttributeType::kFloat,
     1},
    {DescriptorType::kOperationConvolutionForward, Attribute::kForwardBeta, AttributeType::kFloat,
     1},

    {DescriptorType::kOperationConvolutionBackwardData, Attribute::kBackwardDataConvolution,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardData, Attribute::kBackwardDataDx,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardData, Attribute::kBackwardDataW,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardData, Attribute::kBackwardDataDy,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardData, Attribute::kBackwardDataAlpha,
     AttributeType::kFloat, 1},
    {DescriptorType::kOperationConvolutionBackwardData, Attribute::kBackwardDataBeta,
     AttributeType::kFloat, 1},

    {DescriptorType::kOperationConvolutionBackwardFilter, Attribute::kBackwardFilterConvolution,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardFilter, Attribute::kBackwardFilterX,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardFilter, Attribute::kBackwardFilterDw,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardFilter, Attribute::kBackwardFilterDy,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationConvolutionBackwardFilter, Attribute::kBackwardFilterAlpha,
     AttributeType::kFloat, 1},
    {DescriptorType::kOperationConvolutionBackwardFilter, Attribute::kBackwardFilterBeta,
     AttributeType::kFloat, 1},

    {DescriptorType::kOperationPointwise, Attribute::kPointwiseOperationDescriptor,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationPointwise, Attribute::kPointwiseOperationX,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kOperationPointwise, Attribute::kPointwiseOperationB,
     AttributeType::kBackendDescriptor, 1, false},
    {DescriptorType::kOperationPointwise, Attribute::kPointwiseOperationY,
     AttributeType::kBackendDescriptor, 1},

    {DescriptorType::kOperationGraph, Attribute::kGraphHandle, AttributeType::kHandle, 1},
    {DescriptorType::kOperationGraph, Attribute::kGraphOperations,
     AttributeType::kBackendDescriptor, kMaxOperations},

    {DescriptorType::kEngineHeuristics, Attribute::kHeuristicsOperationGraph,
     AttributeType::kBackendDescriptor, 1},
    {DescriptorType::kEngineHeuristics, Attribute::kHeuristicsMode, AttributeType::kHeurMode, 1},

    {DescriptorType::kExecutionPlan, Attribute::kPlanHandle, AttributeType::kHandle, 1},
    {DescriptorType::kExecutionPlan, Attribute::kPlanEngineConfig,
     AttributeType::kBackendDescriptor, 1},

    {DescriptorType::kVariantPack, Attribute::kVariantPackUniqueIds, AttributeType::kInt64,
     kMaxTensors},
    {DescriptorType::kVariantPack, Attribute::kVariantPackDataPointers, AttributeType::kVoidPtr,
     kMaxTensors},
    {DescriptorType::kVariantPack, Attribute::kVariantPackWorkspace, AttributeType::kVoidPtr, 1},
};

Status Refuse(Status status, absl::string_view text) {
  Report(absl::StrCat("cudnnBackend: ", text));
  return status;
}

std::string Name(const CudnnObject& object, Attribute attribute) {
  return absl::StrCat("attribute ", static_cast<int>(attribute), " of a descriptor of type ",
                      static_cast<int>(object.type));
}

// A scale may also be a double. Finalize() compares it with the compute type.
bool IsTypeOf(const Rule& rule, AttributeType type) {
  return type == rule.type ||
         (rule.type == AttributeType::kFloat && type == AttributeType::kDouble);
}

bool IsPositive(const std::vector<int64_t>& values, int64_t min) {
  return std::all_of(values.begin(), values.end(), [=](int64_t value) { return value >= min; });
}

cudaDataType_t TypeOf(const CudnnObject& tensor) {
  switch (tensor.Get<cudnn::DataType>(Attribute::kTensorDataType)) {
    case cudnn::DataType::kHalf:
      return CUDA_R_16F;
    case cudnn::DataType::kBFloat16:
      return CUDA_R_16BF;
    case cudnn::DataType::kDouble:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

Status FinalizeTensor(const CudnnObject& tensor) {
  const std::vector<int64_t> sizes = tensor.Ints(Attribute::kTensorDimensions);
  const std::vector<int64_t> strides = tensor.Ints(Attribute::kTensorStrides);
  const auto alignment = tensor.Get<int64_t>(Attribute::kTensorByteAlignment);
  if (sizes.size() != strides.size() || sizes.size() < 3 || !IsPositive(sizes, 1)) {
    return Refuse(Status::kBadParam, "a tensor's sizes and strides don't match");
  }
  if ((alignment & (alignment - 1)) != 0 ||
      alignment < static_cast<int64_t>(ElementBytes(TypeOf(tensor)))) {
    return Refuse(Status::kBadParam,
                  "a tensor's alignment isn't a power of two, or is less than an element");
  }
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    if (strides[i] != stride) {
      return Refuse(Status::kBadParam, "only dense row-major tensors are emulated");
    }
  }
  return Status::kSuccess;
}

Status FinalizeConvolution(const CudnnObject& convolution) {
  const auto spatial =
      static_cast<size_t>(convolution.Get<int64_t>(Attribute::kConvolutionSpatialDims));
  for (const Attribute attribute :
       {Attribute::kConvolutionFilterStrides, Attribute::kConvolutionDilations,
        Attribute::kConvolutionPrePaddings, Attribute::kConvolutionPostPaddings}) {
    const bool is_padding = attribute == Attribute::kConvolutionPrePaddings ||
                            attribute == Attribute::kConvolutionPostPaddings;
    const std::vector<int64_t> values = convolution.Ints(attribute);
    if (values.size() != spatial || !IsPositive(values, is_padding ? 0 : 1)) {
      return Refuse(Status::kBadParam, "a convolution has wrong strides, dilations or paddings");
    }
  }
  const auto mode = convolution.Get<cudnn::ConvolutionMode>(Attribute::kConvolutionMode);
  return mode == cudnn::ConvolutionMode::kCrossCorrelation ? Status::kSuccess
                                                           : Status::kNotSupported;
}

// The attributes of an operation of a direction.
struct OperationAttributes {
  ConvolutionDirection direction;
  Attribute convolution, x, w, y, alpha, beta;
};

OperationAttributes AttributesOf(DescriptorType type) {
  if (type == DescriptorType::kOperationConvolutionForward) {
    return {ConvolutionDirection::kForward, Attribute::kForwardConvolution,
            Attribute::kForwardX,           Attribute::kForwardW,
            Attribute::kForwardY,           Attribute::kForwardAlpha,
            Attribute::kForwardBeta};
  }
  if (type == DescriptorType::kOperationConvolutionBackwardData) {
    return {ConvolutionDirection::kBackwardData, Attribute::kBackwardDataConvolution,
            Attribute::kBackwardDataDx,          Attribute::kBackwardDataW,
            Attribute::kBackwardDataDy,          Attribute::kBackwardDataAlpha,
            Attribute::kBackwardDataBeta};
  }
  return {ConvolutionDirection::kBackwardFilter, Attribute::kBackwardFilterConvolution,
          Attribute::kBackwardFilterX,           Attribute::kBackwardFilterDw,
          Attribute::kBackwardFilterDy,          Attribute::kBackwardFilterAlpha,
          Attribute::kBackwardFilterBeta};
}

ConvolutionTensor TensorOf(const CudnnObject& tensor) {
  return {TypeOf(tensor), tensor.Ints(Attribute::kTensorDimensions)};
}

double Scalar(const CudnnObject& operation, Attribute attribute, bool in_double) {
  return in_double ? operation.Get<double>(attribute) : operation.Get<float>(attribute);
}

Convolution ConvolutionOf(const CudnnObject& operation) {
  const OperationAttributes a = AttributesOf(operation.type);
  const CudnnObject& descriptor = operation.Object(a.convolution);
  Convolution c;
  c.direction = a.direction;
  c.strides = descriptor.Ints(Attribute::kConvolutionFilterStrides);
  c.dilations = descriptor.Ints(Attribute::kConvolutionDilations);
  c.pre_paddings = descriptor.Ints(Attribute::kConvolutionPrePaddings);
  c.post_paddings = descriptor.Ints(Attribute::kConvolutionPostPaddings);
  c.in_double = descriptor.Get<cudnn::DataType>(Attribute::kConvolutionComputeType) ==
                cudnn::DataType::kDouble;
  c.x = TensorOf(operation.Object(a.x));
  c.w = TensorOf(operation.Object(a.w));
  c.y = TensorOf(operation.Object(a.y));
  return c;
}

Status FinalizeConvolutionOperation(const CudnnObject& operation) {
  const OperationAttributes a = AttributesOf(operation.type);
  if (operation.Object(a.convolution).type != DescriptorType::kConvolution ||
      operation.Object(a.x).type != DescriptorType::kTensor ||
      operation.Object(a.w).type != DescriptorType::kTensor ||
      operation.Object(a.y).type != DescriptorType::kTensor) {
    return Refuse(Status::kBadParam, "a convolution has descriptors of the wrong type");
  }
  const Convolution c = ConvolutionOf(operation);
  if (!IsConsistent(c)) {
    return Refuse(Status::kBadParamShapeMismatch, "the shapes of a convolution don't match");
  }
  const AttributeType scale = c.in_double ? AttributeType::kDouble : AttributeType::kFloat;
  if (operation.values.at(a.alpha).type != scale || operation.values.at(a.beta).type != scale) {
    return Refuse(Status::kBadParam, "alpha and beta must have the compute type");
  }
  return Scalar(operation, a.beta, c.in_double) == 0 ? Status::kSuccess : Status::kNotSupported;
}

Status FinalizePointwise(const CudnnObject& operation) {
  if (operation.Object(Attribute::kPointwiseOperationDescriptor).type !=
      DescriptorType::kPointwise) {
    return Refuse(Status::kBadParam, "a pointwise operation has no pointwise descriptor");
  }
  const auto mode = operation.Object(Attribute::kPointwiseOperationDescriptor)
                        .Get<cudnn::PointwiseMode>(Attribute::kPointwiseMode);
  const bool is_binary = mode == cudnn::PointwiseMode::kAdd;
  if (is_binary != operation.Has(Attribute::kPointwiseOperationB)) {
    return Refuse(Status::kBadParam, "a pointwise operation has the wrong number of operands");
  }
  const auto sizes =
      operation.Object(Attribute::kPointwiseOperationX).Ints(Attribute::kTensorDimensions);
  const auto y_sizes =
      operation.Object(Attribute::kPointwiseOperationY).Ints(Attribute::kTensorDimensions);
  if (sizes != y_sizes) {
    return Refuse(Status::kBadParamShapeMismatch, "the shapes of a pointwise operation differ");
  }
  if (!is_binary) return Status::kSuccess;
  std::vector<int64_t> bias(sizes.size(), 1);
  bias[1] = sizes[1];
  return operation.Object(Attribute::kPointwiseOperationB).Ints(Attribute::kTensorDimensions) ==
                 bias
             ? Status::kSuccess
             : Refuse(Status::kBadParamShapeMismatch, "the bias isn't (1, channels, 1…)");
}

bool IsVirtual(const CudnnObject& tensor) {
  return tensor.Has(Attribute::kTensorIsVirtual) && tensor.Get<bool>(Attribute::kTensorIsVirtual);
}

// The graph must be a convolution, and then pointwise operations, each on the result of the one
// before, which must be virtual.
Status FinalizeGraph(const CudnnObject& graph) {
  const auto& operations = graph.Objects(Attribute::kGraphOperations);
  const CudnnObject* result = nullptr;
  for (const CudnnObjectRef& operation : operations) {
    if (operation->type == DescriptorType::kOperationPointwise) {
      if (result == nullptr) return Status::kNotSupportedGraphPattern;
      if (&operation->Object(Attribute::kPointwiseOperationX) != result || !IsVirtual(*result)) {
        return Refuse(Status::kBadParam, "an operation doesn't use the virtual result before it");
      }
      result = &operation->Object(Attribute::kPointwiseOperationY);
      continue;
    }
    if (result != nullptr) return Status::kNotSupportedGraphPattern;
    const OperationAttributes a = AttributesOf(operation->type);
    for (const Attribute input : {a.x, a.w}) {
      if (IsVirtual(operation->Object(input))) {
        return Refuse(Status::kBadParam, "an operand of a convolution is virtual");
      }
    }
    result = &operation->Object(a.y);
  }
  if (result == nullptr || IsVirtual(*result)) {
    return Refuse(Status::kBadParam, "the graph has no result");
  }
  return Status::kSuccess;
}

// Returns whether the emulated library has engines for the graph.
bool HasEngines(const CudnnGraph& graph) {
  const Convolution& c = graph.convolution;
  const Options& options = TheOptions();
  if (options.refuse_convolutions) return false;
  if ((c.has_bias || c.relu) && (options.refuse_epilogues || c.in_double)) return false;
  return c.x.type == c.w.type && c.y.type == c.x.type && (c.x.type == CUDA_R_64F) == c.in_double;
}

}  // namespace

std::vector<int64_t> CudnnObject::Ints(Attribute attribute) const {
  const CudnnValue& value = values.at(attribute);
  std::vector<int64_t> ints(static_cast<size_t>(value.count));
  std::memcpy(ints.data(), value.bytes.data(), value.bytes.size());
  return ints;
}

size_t SizeOf(AttributeType type) {
  switch (type) {
    case AttributeType::kBoolean:
      return sizeof(bool);
    case AttributeType::kHandle:
    case AttributeType::kInt64:
    case AttributeType::kDouble:
    case AttributeType::kVoidPtr:
    case AttributeType::kBackendDescriptor:
      return 8;
    default:
      return 4;  // float and enumerations
  }
}

Status CheckAttribute(const CudnnObject& object, Attribute attribute, AttributeType type,
                      int64_t count) {
  for (const Rule& rule : kRules) {
    if (rule.owner != object.type || rule.attribute != attribute) continue;
    if (!IsTypeOf(rule, type)) {
      return Refuse(Status::kBadParamAttributeType,
                    absl::StrCat(Name(object, attribute), " is set with the wrong type"));
    }
    if (count >= 1 && count <= rule.max_count) return Status::kSuccess;
    return Refuse(Status::kBadParam,
                  absl::StrCat(Name(object, attribute), " is set to ", count, " values"));
  }
  return Refuse(Status::kBadParam, absl::StrCat(Name(object, attribute), " can't be set"));
}

Status Finalize(CudnnObject& object) {
  for (const Rule& rule : kRules) {
    if (rule.owner != object.type || !rule.required || object.Has(rule.attribute)) continue;
    return Refuse(Status::kBadParam, absl::StrCat(Name(object, rule.attribute), " isn't set"));
  }
  Status status = Status::kSuccess;
  switch (object.type) {
    case DescriptorType::kTensor:
      status = FinalizeTensor(object);
      break;
    case DescriptorType::kConvolution:
      status = FinalizeConvolution(object);
      break;
    case DescriptorType::kOperationConvolutionForward:
    case DescriptorType::kOperationConvolutionBackwardData:
    case DescriptorType::kOperationConvolutionBackwardFilter:
      status = FinalizeConvolutionOperation(object);
      break;
    case DescriptorType::kOperationPointwise:
      status = FinalizePointwise(object);
      break;
    case DescriptorType::kOperationGraph:
      status = FinalizeGraph(object);
      break;
    case DescriptorType::kExecutionPlan:
      object.engine = object.Object(Attribute::kPlanEngineConfig).engine;
      if (!object.engine.has_plan) status = Status::kNotSupportedArchMismatch;
      break;
    case DescriptorType::kVariantPack:
      if (object.values.at(Attribute::kVariantPackUniqueIds).count !=
          object.values.at(Attribute::kVariantPackDataPointers).count) {
        status = Refuse(Status::kBadParam, "a variant pack has more numbers than addresses");
      }
      break;
    case DescriptorType::kEngineHeuristics:
    case DescriptorType::kPointwise:
      break;
    default:
      status = Refuse(Status::kBadParam, "this descriptor can't be finalized");
  }
  object.finalized = status == Status::kSuccess;
  return status;
}

CudnnGraph DescribeGraph(const CudnnObject& graph) {
  CudnnGraph described;
  described.alignment = std::numeric_limits<int32_t>::max();
  const auto number = [&](const CudnnObject& tensor) {
    described.alignment =
        std::min(described.alignment, tensor.Get<int64_t>(Attribute::kTensorByteAlignment));
    return tensor.Get<int64_t>(Attribute::kTensorUniqueId);
  };
  for (const CudnnObjectRef& operation : graph.Objects(Attribute::kGraphOperations)) {
    Convolution& c = described.convolution;
    if (operation->type != DescriptorType::kOperationPointwise) {
      const OperationAttributes a = AttributesOf(operation->type);
      c = ConvolutionOf(*operation);
      c.alpha = Scalar(*operation, a.alpha, c.in_double);
      described.x = number(operation->Object(a.x));
      described.w = number(operation->Object(a.w));
      described.y = number(operation->Object(a.y));
      continue;
    }
    const CudnnObject& result = operation->Object(Attribute::kPointwiseOperationY);
    c.y = TensorOf(result);
    described.y = number(result);
    if (operation->Has(Attribute::kPointwiseOperationB)) {
      const CudnnObject& bias = operation->Object(Attribute::kPointwiseOperationB);
      c.has_bias = true;
      c.bias_type = TypeOf(bias);
      described.bias = number(bias);
    } else {
      c.relu = true;
    }
  }
  return described;
}

std::vector<CudnnEngine> RecommendEngines(const CudnnObject& graph, cudnn::HeurMode mode) {
  constexpr int64_t kWorkspaceBytes = int64_t{64} << 10, kLargeBytes = int64_t{1} << 40;
  std::vector<CudnnEngine> engines;
  if (!HasEngines(DescribeGraph(graph))) return engines;
  if (mode == cudnn::HeurMode::kFallback) {
    engines.push_back({{}, kWorkspaceBytes});
    return engines;
  }
  const cudaDataType_t type = DescribeGraph(graph).convolution.x.type;
  // A caller that chooses one of the first engines gets wrong values, or needs too much memory.
  engines.push_back({{cudnn::NumericalNote::kTensorCore, cudnn::NumericalNote::kNondeterministic},
                     0,
                     true,
                     ConvolutionPrecision::kExact,
                     /*repeats=*/false});
  engines.push_back(
      {{cudnn::NumericalNote::kDownConvertInputs},
       0,
       true,
       type == CUDA_R_16BF ? ConvolutionPrecision::kTf32 : ConvolutionPrecision::kBfloat16});
  engines.push_back({{}, kLargeBytes});
  engines.push_back({{}, 0, /*has_plan=*/false});
  engines.push_back(
      {{cudnn::NumericalNote::kTensorCore},
       kWorkspaceBytes,
       true,
       type == CUDA_R_32F ? ConvolutionPrecision::kTf32 : ConvolutionPrecision::kExact});
  if (type == CUDA_R_64F) engines.push_back({{}, 0});  // an engine without workspace
  return engines;
}

}  // namespace tensord::cuda_emulation
