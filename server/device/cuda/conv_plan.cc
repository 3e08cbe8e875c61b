#include "tensord/server/device/cuda/conv_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server::cuda {
namespace {

using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::DescriptorType;

cudnn::DataType DataTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return cudnn::DataType::kHalf;
    case DType::kBFloat16:
      return cudnn::DataType::kBFloat16;
    case DType::kFloat64:
      return cudnn::DataType::kDouble;
    default:
      return cudnn::DataType::kFloat;
  }
}

// Builds the graph. Each function finalizes a descriptor and keeps it in `plan`.
class GraphBuilder {
 public:
  GraphBuilder(const CudnnLibrary& library, const ConvProblem& problem, int64_t alignment,
               ConvPlan& plan)
      : library_(library), problem_(problem), alignment_(alignment), plan_(plan) {
    plan_.descriptors.reserve(kMaxDescriptors);  // so that pointers to descriptors stay valid
  }

  absl::StatusOr<const CudnnDescriptor*> Build(cudnn::Handle handle) {
    TENSORD_RETURN_IF_ERROR(AddOperations());
    CudnnDescriptor graph(library_, DescriptorType::kOperationGraph);
    graph.Set(Attribute::kGraphHandle, handle)
        .Set(Attribute::kGraphOperations, AttributeType::kBackendDescriptor,
             static_cast<int64_t>(operations_.size()), operations_.data());
    return Keep(std::move(graph));
  }

  absl::StatusOr<const CudnnDescriptor*> Keep(CudnnDescriptor descriptor) {
    TENSORD_RETURN_IF_ERROR(descriptor.Finalize());
    plan_.descriptors.push_back(std::move(descriptor));
    return &plan_.descriptors.back();
  }

 private:
  using Sizes = std::vector<int64_t>;
  static constexpr size_t kMaxDescriptors = 24;
  static constexpr int64_t kVirtualAlignment = 16;  // at least the size of an element

  // cuDNN has two or three spatial axes.
  int axes() const { return std::max(problem_.geometry.axes, 2); }
  Sizes Spatial(const int64_t (&sizes)[ConvGeometry::kAxes]) const {
    return Sizes(sizes + ConvGeometry::kAxes - axes(), sizes + ConvGeometry::kAxes);
  }
  Sizes WithSpatial(int64_t first, int64_t second,
                    const int64_t (&sizes)[ConvGeometry::kAxes]) const {
    Sizes all = Spatial(sizes);
    all.insert(all.begin(), {first, second});
    return all;
  }

  absl::StatusOr<const CudnnDescriptor*> Tensor(ConvTensor number, cudnn::DataType type,
                                                const Sizes& sizes, bool is_virtual = false) {
    Sizes strides(sizes.size(), 1);
    for (size_t i = sizes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
    CudnnDescriptor tensor(library_, DescriptorType::kTensor);
    tensor.Set(Attribute::kTensorDataType, type)
        .Set(Attribute::kTensorDimensions, sizes)
        .Set(Attribute::kTensorStrides, strides)
        .Set(Attribute::kTensorUniqueId, static_cast<int64_t>(number))
        .Set(Attribute::kTensorByteAlignment, is_virtual ? kVirtualAlignment : alignment_);
    if (is_virtual) tensor.Set(Attribute::kTensorIsVirtual, true);
    return Keep(std::move(tensor));
  }

  absl::StatusOr<const CudnnDescriptor*> Convolution() {
    const ConvGeometry& g = problem_.geometry;
    CudnnDescriptor convolution(library_, DescriptorType::kConvolution);
    convolution.Set(Attribute::kConvolutionComputeType, ComputeType())
        .Set(Attribute::kConvolutionMode, cudnn::ConvolutionMode::kCrossCorrelation)
        .Set(Attribute::kConvolutionSpatialDims, int64_t{axes()})
        .Set(Attribute::kConvolutionFilterStrides, Spatial(g.stride))
        .Set(Attribute::kConvolutionDilations, Spatial(g.dilation))
        .Set(Attribute::kConvolutionPrePaddings, Spatial(g.low))
        .Set(Attribute::kConvolutionPostPaddings, Spatial(g.high));
    return Keep(std::move(convolution));
  }

  // The type of sums, and of the tensors between the operations.
  cudnn::DataType ComputeType() const {
    return problem_.dtype == DType::kFloat64 ? cudnn::DataType::kDouble : cudnn::DataType::kFloat;
  }

  void SetScale(CudnnDescriptor& operation, Attribute alpha, Attribute beta) const {
    const double one = 1, zero = 0;
    const float one32 = 1, zero32 = 0;
    if (problem_.dtype == DType::kFloat64) {
      operation.Set(alpha, AttributeType::kDouble, 1, &one)
          .Set(beta, AttributeType::kDouble, 1, &zero);
    } else {
      operation.Set(alpha, AttributeType::kFloat, 1, &one32)
          .Set(beta, AttributeType::kFloat, 1, &zero32);
    }
  }

  absl::Status AddOperations() {
    const ConvGeometry& g = problem_.geometry;
    const cudnn::DataType type = DataTypeOf(problem_.dtype);
    const Sizes y_sizes = WithSpatial(g.batch, g.out_channels, g.out);
    TENSORD_ASSIGN_OR_RETURN(
        const CudnnDescriptor* const x,
        Tensor(ConvTensor::kX, type, WithSpatial(g.batch, g.in_channels, g.in)));
    TENSORD_ASSIGN_OR_RETURN(
        const CudnnDescriptor* const w,
        Tensor(ConvTensor::kW, type, WithSpatial(g.out_channels, g.group_in(), g.kernel)));
    TENSORD_ASSIGN_OR_RETURN(const CudnnDescriptor* const y, Tensor(ConvTensor::kY, type, y_sizes));
    TENSORD_ASSIGN_OR_RETURN(const CudnnDescriptor* const convolution, Convolution());
    switch (problem_.kind) {
      case ConvKind::kForward:
        return AddForward(*convolution, *x, *w, *y, y_sizes);
      case ConvKind::kBackwardInput: {
        CudnnDescriptor operation(library_, DescriptorType::kOperationConvolutionBackwardData);
        SetScale(operation, Attribute::kBackwardDataAlpha, Attribute::kBackwardDataBeta);
        operation.Set(Attribute::kBackwardDataConvolution, *convolution)
            .Set(Attribute::kBackwardDataW, *w)
            .Set(Attribute::kBackwardDataDx, *x)
            .Set(Attribute::kBackwardDataDy, *y);
        return AddOperation(std::move(operation));
      }
      case ConvKind::kBackwardWeight: {
        CudnnDescriptor operation(library_, DescriptorType::kOperationConvolutionBackwardFilter);
        SetScale(operation, Attribute::kBackwardFilterAlpha, Attribute::kBackwardFilterBeta);
        operation.Set(Attribute::kBackwardFilterConvolution, *convolution)
            .Set(Attribute::kBackwardFilterDw, *w)
            .Set(Attribute::kBackwardFilterX, *x)
            .Set(Attribute::kBackwardFilterDy, *y);
        return AddOperation(std::move(operation));
      }
    }
    return absl::InternalError("unknown kind of convolution");
  }

  // convolution -> bias -> ReLU. The results in between are virtual: they are never stored.
  absl::Status AddForward(const CudnnDescriptor& convolution, const CudnnDescriptor& x,
                          const CudnnDescriptor& w, const CudnnDescriptor& y,
                          const Sizes& y_sizes) {
    const CudnnDescriptor* convolved = &y;
    if (problem_.bias || problem_.relu) {
      TENSORD_ASSIGN_OR_RETURN(convolved,
                               Tensor(ConvTensor::kConvolved, ComputeType(), y_sizes, true));
    }
    CudnnDescriptor operation(library_, DescriptorType::kOperationConvolutionForward);
    SetScale(operation, Attribute::kForwardAlpha, Attribute::kForwardBeta);
    operation.Set(Attribute::kForwardConvolution, convolution)
        .Set(Attribute::kForwardX, x)
        .Set(Attribute::kForwardW, w)
        .Set(Attribute::kForwardY, *convolved);
    TENSORD_RETURN_IF_ERROR(AddOperation(std::move(operation)));
    const CudnnDescriptor* biased = convolved;
    if (problem_.bias) {
      Sizes bias_sizes(y_sizes.size(), 1);
      bias_sizes[1] = problem_.geometry.out_channels;
      TENSORD_ASSIGN_OR_RETURN(const CudnnDescriptor* const bias,
                               Tensor(ConvTensor::kBias, DataTypeOf(problem_.dtype), bias_sizes));
      biased = &y;
      if (problem_.relu) {
        TENSORD_ASSIGN_OR_RETURN(biased, Tensor(ConvTensor::kBiased, ComputeType(), y_sizes, true));
      }
      TENSORD_RETURN_IF_ERROR(AddPointwise(cudnn::PointwiseMode::kAdd, *convolved, bias, *biased));
    }
    if (!problem_.relu) return absl::OkStatus();
    return AddPointwise(cudnn::PointwiseMode::kReluFwd, *biased, nullptr, y);
  }

  absl::Status AddPointwise(cudnn::PointwiseMode mode, const CudnnDescriptor& in,
                            const CudnnDescriptor* second, const CudnnDescriptor& out) {
    CudnnDescriptor pointwise(library_, DescriptorType::kPointwise);
    pointwise.Set(Attribute::kPointwiseMode, mode)
        .Set(Attribute::kPointwiseMathPrecision, ComputeType());
    if (mode == cudnn::PointwiseMode::kReluFwd) {
      pointwise.Set(Attribute::kPointwiseNanPropagation, cudnn::NanPropagation::kPropagate);
    }
    TENSORD_ASSIGN_OR_RETURN(const CudnnDescriptor* const kept, Keep(std::move(pointwise)));
    CudnnDescriptor operation(library_, DescriptorType::kOperationPointwise);
    operation.Set(Attribute::kPointwiseOperationDescriptor, *kept)
        .Set(Attribute::kPointwiseOperationX, in)
        .Set(Attribute::kPointwiseOperationY, out);
    if (second != nullptr) operation.Set(Attribute::kPointwiseOperationB, *second);
    return AddOperation(std::move(operation));
  }

  absl::Status AddOperation(CudnnDescriptor operation) {
    TENSORD_ASSIGN_OR_RETURN(const CudnnDescriptor* const kept, Keep(std::move(operation)));
    operations_.push_back(kept->get());
    return absl::OkStatus();
  }

  const CudnnLibrary& library_;
  const ConvProblem& problem_;
  const int64_t alignment_;
  ConvPlan& plan_;
  std::vector<cudnn::Descriptor> operations_;
};

// Returns whether an engine with this note is exact enough, and gives the same bits in each run.
bool Accepts(const ConvProblem& problem, cudnn::NumericalNote note) {
  switch (note) {
    case cudnn::NumericalNote::kTensorCore:  // for float32, the tensor cores round to TF32
      return problem.dtype != DType::kFloat32 || problem.allow_tf32;
    case cudnn::NumericalNote::kNondeterministic:
    case cudnn::NumericalNote::kDownConvertInputs:
    case cudnn::NumericalNote::kReducedPrecisionReduction:
    case cudnn::NumericalNote::kFft:  // spreads a NaN over a whole image
    case cudnn::NumericalNote::kWinogradTile6x6:
    case cudnn::NumericalNote::kWinogradTile13x13:
      return false;
    default:
      return true;
  }
}

// Describes the engine of `config`. Returns OK if it is acceptable.
absl::Status CheckEngine(const CudnnLibrary& library, const ConvProblem& problem,
                         const CudnnDescriptor& config, ConvEngine& described) {
  CudnnDescriptor engine(library, DescriptorType::kEngine);
  TENSORD_RETURN_IF_ERROR(engine.status());
  cudnn::Descriptor filled = engine.get();
  int64_t count = 0;
  TENSORD_RETURN_IF_ERROR(config.Get(Attribute::kEngineConfigEngine,
                                     AttributeType::kBackendDescriptor, 1, &count, &filled));
  TENSORD_RETURN_IF_ERROR(engine.Get(Attribute::kEngineGlobalIndex, AttributeType::kInt64, 1,
                                     &count, &described.index));
  constexpr int64_t kMaxNotes = 64;
  described.notes.resize(kMaxNotes);
  const absl::Status status =
      engine.Get(Attribute::kEngineNumericalNote, AttributeType::kNumericalNote, kMaxNotes, &count,
                 described.notes.data());
  described.notes.resize(status.ok() ? std::min(count, kMaxNotes) : 0);
  TENSORD_RETURN_IF_ERROR(status);
  for (const cudnn::NumericalNote note : described.notes) {
    if (Accepts(problem, note)) continue;
    return absl::UnimplementedError(
        absl::StrCat("an engine has the numerical note: ", NumericalNoteName(note)));
  }
  return absl::OkStatus();
}

// Returns the engines that cuDNN recommends for the graph, the fastest first, with their settings.
absl::StatusOr<std::vector<CudnnDescriptor>> Recommend(const CudnnLibrary& library,
                                                       const CudnnDescriptor& graph,
                                                       cudnn::HeurMode mode) {
  CudnnDescriptor heuristics(library, DescriptorType::kEngineHeuristics);
  heuristics.Set(Attribute::kHeuristicsOperationGraph, graph).Set(Attribute::kHeuristicsMode, mode);
  TENSORD_RETURN_IF_ERROR(heuristics.Finalize());
  int64_t count = 0;
  TENSORD_RETURN_IF_ERROR(heuristics.Get(Attribute::kHeuristicsResults,
                                         AttributeType::kBackendDescriptor, 0, &count, nullptr));
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnn::Descriptor> filled;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(library, DescriptorType::kEngineConfig);
    TENSORD_RETURN_IF_ERROR(configs.back().status());
    filled.push_back(configs.back().get());
  }
  if (count == 0) return configs;
  TENSORD_RETURN_IF_ERROR(heuristics.Get(Attribute::kHeuristicsResults,
                                         AttributeType::kBackendDescriptor, count, &count,
                                         filled.data()));
  while (static_cast<int64_t>(configs.size()) > count) configs.pop_back();
  return configs;
}

// Makes a plan of one engine.
absl::StatusOr<CudnnDescriptor> FinalizePlan(const CudnnLibrary& library, cudnn::Handle handle,
                                             const CudnnDescriptor& config,
                                             int64_t max_workspace_bytes,
                                             int64_t& workspace_bytes) {
  CudnnDescriptor plan(library, DescriptorType::kExecutionPlan);
  plan.Set(Attribute::kPlanHandle, handle).Set(Attribute::kPlanEngineConfig, config);
  TENSORD_RETURN_IF_ERROR(plan.Finalize());
  int64_t count = 0;
  TENSORD_RETURN_IF_ERROR(
      plan.Get(Attribute::kPlanWorkspaceSize, AttributeType::kInt64, 1, &count, &workspace_bytes));
  if (workspace_bytes <= max_workspace_bytes) return plan;
  return absl::UnimplementedError("an engine needs too much workspace");
}

// Returns whether another engine may succeed after this failure.
bool MayTryNext(const absl::Status& status) {
  return !absl::IsResourceExhausted(status) && !absl::IsDataLoss(status);
}

// Makes a plan with the engine of `config` if the engine is acceptable. Describes the engine.
absl::StatusOr<CudnnDescriptor> TryEngine(const CudnnLibrary& library, cudnn::Handle handle,
                                          const ConvProblem& problem, const CudnnDescriptor& config,
                                          int64_t max_workspace_bytes, ConvEngine& engine) {
  TENSORD_RETURN_IF_ERROR(CheckEngine(library, problem, config, engine));
  return FinalizePlan(library, handle, config, max_workspace_bytes, engine.workspace_bytes);
}

// Does what MakeConvPlan() does. Appends the engines that it tries to `engines`.
absl::StatusOr<ConvPlan> ChoosePlan(const CudnnLibrary& library, cudnn::Handle handle,
                                    const ConvProblem& problem, int64_t alignment,
                                    int64_t max_workspace_bytes, std::vector<ConvEngine>& engines) {
  ConvPlan made;
  GraphBuilder builder(library, problem, alignment, made);
  absl::Status last = absl::UnimplementedError("it recommends no engine");
  const absl::StatusOr<const CudnnDescriptor*> graph = builder.Build(handle);
  if (!graph.ok()) last = graph.status();
  for (const cudnn::HeurMode mode : {cudnn::HeurMode::kA, cudnn::HeurMode::kFallback}) {
    if (!graph.ok()) break;
    absl::StatusOr<std::vector<CudnnDescriptor>> configs = Recommend(library, **graph, mode);
    if (!configs.ok()) {
      last = configs.status();
      if (MayTryNext(last)) continue;
      break;
    }
    for (CudnnDescriptor& config : *configs) {
      ConvEngine& engine = engines.emplace_back();
      absl::StatusOr<CudnnDescriptor> plan =
          TryEngine(library, handle, problem, config, max_workspace_bytes, engine);
      if (plan.ok()) {
        made.workspace_bytes = engine.workspace_bytes;
        made.plan = plan->get();
        made.descriptors.push_back(std::move(config));
        made.descriptors.push_back(*std::move(plan));
        return made;
      }
      last = plan.status();
      engine.rejection = std::string(last.message());
      if (!MayTryNext(last)) return last;
    }
  }
  if (!MayTryNext(last)) return last;
  return absl::UnimplementedError(
      absl::StrCat("cuDNN has no engine for a convolution of this kind: ", last.message()));
}

ConvPlanObserver& TheObserver() {
  static auto* observer = new ConvPlanObserver;
  return *observer;
}

}  // namespace

std::array<int64_t, 29> ConvProblem::Numbers() const {
  std::array<int64_t, 29> numbers = {static_cast<int64_t>(kind),
                                     static_cast<int64_t>(dtype),
                                     int64_t{allow_tf32} | int64_t{bias} << 1 | int64_t{relu} << 2,
                                     geometry.batch,
                                     geometry.in_channels,
                                     geometry.out_channels,
                                     geometry.groups,
                                     geometry.axes};
  auto* to = numbers.data() + 8;
  for (const auto* sizes : {&geometry.in, &geometry.out, &geometry.kernel, &geometry.stride,
                            &geometry.dilation, &geometry.low, &geometry.high}) {
    to = std::copy(std::begin(*sizes), std::end(*sizes), to);
  }
  return numbers;
}

std::string NumericalNoteName(cudnn::NumericalNote note) {
  switch (note) {
    case cudnn::NumericalNote::kTensorCore:
      return "tensor cores";
    case cudnn::NumericalNote::kDownConvertInputs:
      return "converts inputs to a smaller type";
    case cudnn::NumericalNote::kReducedPrecisionReduction:
      return "reduced precision of sums";
    case cudnn::NumericalNote::kFft:
      return "FFT";
    case cudnn::NumericalNote::kNondeterministic:
      return "nondeterministic";
    case cudnn::NumericalNote::kWinograd:
      return "Winograd";
    case cudnn::NumericalNote::kWinogradTile4x4:
      return "Winograd tiles of 4x4";
    case cudnn::NumericalNote::kWinogradTile6x6:
      return "Winograd tiles of 6x6";
    case cudnn::NumericalNote::kWinogradTile13x13:
      return "Winograd tiles of 13x13";
  }
  return absl::StrCat("note ", static_cast<int>(note));  // of a newer cuDNN
}

void ObserveConvPlans(ConvPlanObserver observer) { TheObserver() = std::move(observer); }

absl::StatusOr<ConvPlan> MakeConvPlan(const CudnnLibrary& library, cudnn::Handle handle,
                                      const ConvProblem& problem, int64_t alignment,
                                      int64_t max_workspace_bytes) {
  std::vector<ConvEngine> engines;
  absl::StatusOr<ConvPlan> plan =
      ChoosePlan(library, handle, problem, alignment, max_workspace_bytes, engines);
  if (TheObserver() != nullptr) TheObserver()(problem, engines);
  return plan;
}

}  // namespace tensord::server::cuda
