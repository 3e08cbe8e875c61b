// The part of cuDNN that the backend uses. LoadCudnn() returns these functions instead of those of
// the library.
#include "tensord/server/device/cuda/cudnn_library.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/cudnn_object.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/element.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/kernel.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::DescriptorType;
using cudnn::Status;

class DnnHandle {
 public:
  explicit DnnHandle(int device) : device_(device) {}
  int device() const { return device_; }

  cudaStream_t stream = nullptr;

 private:
  const int device_;  // the device that was current when the handle was created
};

HandleTable<cudnn::Handle, DnnHandle>& DnnHandles() {
  static auto* table = new HandleTable<cudnn::Handle, DnnHandle>("a handle of cuDNN");
  return *table;
}

HandleTable<cudnn::Descriptor, CudnnObject>& Descriptors() {
  static auto* table = new HandleTable<cudnn::Descriptor, CudnnObject>("a descriptor of cuDNN");
  return *table;
}

// The first statement of a function. If an error is injected, returns it from the function.
#define TENSORD_EMULATION_ENTER_DNN()                                         \
  if (const auto tensord_injected = static_cast<Status>(CountCall(__func__)); \
      tensord_injected != Status::kSuccess)                                   \
  return tensord_injected

Status RefuseCall(Status status, absl::string_view text) {
  Report(text);
  return status;
}

size_t cudnnGetVersion() { return 91900; }

const char* cudnnGetErrorString(Status status) {
  switch (static_cast<int>(status) / 1000) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case 1:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
      return "CUDNN_STATUS_BAD_PARAM";
    case 3:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

Status cudnnCreate(cudnn::Handle* handle) {
  TENSORD_EMULATION_ENTER_DNN();
  *handle = DnnHandles().Add(std::make_shared<DnnHandle>(CurrentDevice()));
  return Status::kSuccess;
}

Status cudnnDestroy(cudnn::Handle handle) {
  const bool existed = DnnHandles().Remove(handle, "cudnnDestroy") != nullptr;
  return existed ? Status::kSuccess : Status::kNotInitialized;
}

Status cudnnSetStream(cudnn::Handle handle, cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_DNN();
  const auto dnn = DnnHandles().Find(handle, "cudnnSetStream");
  if (dnn == nullptr) return Status::kNotInitialized;
  StreamRef found;
  if (FindStream(stream, "cudnnSetStream", &found) != cudaSuccess) return Status::kBadParam;
  if (found->device() != dnn->device()) {
    return RefuseCall(Status::kBadParamStreamMismatch,
                      "cudnnSetStream: the stream is of another device than the handle");
  }
  dnn->stream = stream;
  return Status::kSuccess;
}

Status cudnnBackendCreateDescriptor(DescriptorType type, cudnn::Descriptor* descriptor) {
  TENSORD_EMULATION_ENTER_DNN();
  *descriptor = Descriptors().Add(std::make_shared<CudnnObject>(type));
  return Status::kSuccess;
}

Status cudnnBackendDestroyDescriptor(cudnn::Descriptor descriptor) {
  const bool existed = Descriptors().Remove(descriptor, "cudnnBackendDestroyDescriptor") != nullptr;
  return existed ? Status::kSuccess : Status::kBadParam;
}

Status cudnnBackendSetAttribute(cudnn::Descriptor descriptor, Attribute attribute,
                                AttributeType type, int64_t count, const void* values) {
  TENSORD_EMULATION_ENTER_DNN();
  const auto object = Descriptors().Find(descriptor, "cudnnBackendSetAttribute");
  if (object == nullptr) return Status::kBadParam;
  if (object->finalized) {
    return RefuseCall(Status::kBadParam, "cudnnBackendSetAttribute: the descriptor is finalized");
  }
  if (values == nullptr)
    return RefuseCall(Status::kBadParamNullPointer, "cudnnBackendSetAttribute: null");
  const Status status = CheckAttribute(*object, attribute, type, count);
  if (status != Status::kSuccess) return status;
  CudnnValue value = {type, count, {}, {}};
  value.bytes.assign(static_cast<const char*>(values), static_cast<size_t>(count) * SizeOf(type));
  for (int64_t i = 0; type == AttributeType::kBackendDescriptor && i < count; ++i) {
    auto used = Descriptors().Find(static_cast<const cudnn::Descriptor*>(values)[i],
                                   "cudnnBackendSetAttribute");
    if (used == nullptr || !used->finalized) {
      return RefuseCall(Status::kBadParamNotFinalized,
                        "cudnnBackendSetAttribute: the value isn't a finalized descriptor");
    }
    value.objects.push_back(std::move(used));
  }
  if (type == AttributeType::kHandle &&
      DnnHandles().Find(*static_cast<const cudnn::Handle*>(values), "cudnnBackendSetAttribute") ==
          nullptr) {
    return Status::kBadParam;
  }
  object->values[attribute] = std::move(value);
  return Status::kSuccess;
}

// Copies `engine` to a descriptor that the caller has created.
Status FillEngine(cudnn::Descriptor descriptor, DescriptorType type, const CudnnEngine& engine) {
  const auto object = Descriptors().Find(descriptor, "cudnnBackendGetAttribute");
  if (object == nullptr || object->type != type) {
    return RefuseCall(Status::kBadParam, "cudnnBackendGetAttribute: no descriptor to fill");
  }
  object->engine = engine;
  object->finalized = true;
  return Status::kSuccess;
}

Status GetEngines(const CudnnObject& heuristics, int64_t capacity, int64_t* count, void* values) {
  const CudnnObjectRef graph = heuristics.Objects(Attribute::kHeuristicsOperationGraph)[0];
  std::vector<CudnnEngine> engines =
      RecommendEngines(*graph, heuristics.Get<cudnn::HeurMode>(Attribute::kHeuristicsMode));
  int64_t index = 0;
  for (CudnnEngine& engine : engines) {
    engine.graph = graph;
    engine.index = index++;
  }
  // As in cuDNN, the number of engines that is returned first is only an upper bound.
  constexpr int64_t kMore = 3;
  const auto all = static_cast<int64_t>(engines.size());
  *count = capacity == 0 ? all + kMore : std::min(all, capacity);
  for (int64_t i = 0; capacity > 0 && i < *count; ++i) {
    const Status status = FillEngine(static_cast<cudnn::Descriptor*>(values)[i],
                                     DescriptorType::kEngineConfig, engines[i]);
    if (status != Status::kSuccess) return status;
  }
  return Status::kSuccess;
}

Status cudnnBackendGetAttribute(cudnn::Descriptor descriptor, Attribute attribute,
                                AttributeType type, int64_t capacity, int64_t* count,
                                void* values) {
  TENSORD_EMULATION_ENTER_DNN();
  const auto object = Descriptors().Find(descriptor, "cudnnBackendGetAttribute");
  if (object == nullptr) return Status::kBadParam;
  if (!object->finalized) {
    return RefuseCall(Status::kBadParamNotFinalized,
                      "cudnnBackendGetAttribute: the descriptor isn't finalized");
  }
  const auto is = [&](DescriptorType owner, Attribute wanted, AttributeType wanted_type) {
    return object->type == owner && attribute == wanted && type == wanted_type;
  };
  if (is(DescriptorType::kEngineHeuristics, Attribute::kHeuristicsResults,
         AttributeType::kBackendDescriptor)) {
    return GetEngines(*object, capacity, count, values);
  }
  if (is(DescriptorType::kEngineConfig, Attribute::kEngineConfigEngine,
         AttributeType::kBackendDescriptor)) {
    *count = 1;
    return FillEngine(*static_cast<cudnn::Descriptor*>(values), DescriptorType::kEngine,
                      object->engine);
  }
  if (is(DescriptorType::kEngine, Attribute::kEngineGlobalIndex, AttributeType::kInt64)) {
    *count = 1;
    *static_cast<int64_t*>(values) = object->engine.index;
    return Status::kSuccess;
  }
  if (is(DescriptorType::kEngine, Attribute::kEngineNumericalNote, AttributeType::kNumericalNote)) {
    const auto& notes = object->engine.notes;
    *count = static_cast<int64_t>(notes.size());
    std::copy_n(notes.begin(), std::min(*count, capacity),
                static_cast<cudnn::NumericalNote*>(values));
    return Status::kSuccess;
  }
  if (is(DescriptorType::kExecutionPlan, Attribute::kPlanWorkspaceSize, AttributeType::kInt64)) {
    *count = 1;
    *static_cast<int64_t*>(values) = object->engine.workspace_bytes;
    return Status::kSuccess;
  }
  return RefuseCall(Status::kBadParam, absl::StrCat("cudnnBackendGetAttribute: attribute ",
                                                    static_cast<int>(attribute),
                                                    " isn't emulated, or has another type"));
}

Status cudnnBackendFinalize(cudnn::Descriptor descriptor) {
  TENSORD_EMULATION_ENTER_DNN();
  const auto object = Descriptors().Find(descriptor, "cudnnBackendFinalize");
  if (object == nullptr) return Status::kBadParam;
  if (object->finalized) {
    return RefuseCall(Status::kBadParam, "cudnnBackendFinalize: the descriptor is finalized");
  }
  return Finalize(*object);
}

// The address of a tensor in an execution.
struct Argument {
  int64_t number;
  int64_t bytes;
  void* address = nullptr;
};

// Finds the address of a tensor in a variant pack, and checks its memory. Replaces it by the
// address that a kernel gets.
Status Bind(const CudnnObject& pack, int64_t alignment, int device, Argument& argument) {
  if (argument.bytes == 0) return Status::kSuccess;  // the graph doesn't have the tensor
  const std::vector<int64_t> numbers = pack.Ints(Attribute::kVariantPackUniqueIds);
  const auto found = std::find(numbers.begin(), numbers.end(), argument.number);
  if (found == numbers.end()) {
    return RefuseCall(Status::kBadParam, absl::StrCat("cudnnBackendExecute: tensor ",
                                                      argument.number, " has no address"));
  }
  const std::string& pointers = pack.values.at(Attribute::kVariantPackDataPointers).bytes;
  void* address = nullptr;
  std::memcpy(&address, pointers.data() + (found - numbers.begin()) * sizeof(void*),
              sizeof(address));
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) != 0) {
    return RefuseCall(Status::kBadParamMisalignedPointer,
                      "cudnnBackendExecute: an address has a smaller alignment than its tensor");
  }
  if (CheckMemory(address, static_cast<size_t>(argument.bytes), Space::kDevice,
                  "cudnnBackendExecute", device) != cudaSuccess) {
    return Status::kBadParam;
  }
  argument.address = KernelAddress(address, device);
  return Status::kSuccess;
}

int64_t BytesOf(const ConvolutionTensor& tensor) {
  return tensor.elements() * static_cast<int64_t>(ElementBytes(tensor.type));
}

// Adds a number to the first element that differs in each call.
void Disturb(const ConvolutionTensor& tensor, void* data) {
  static std::atomic<int> calls = 0;
  Put(tensor.type, data, 0, Get(tensor.type, data, 0) + 1 + calls++ % 3);
}

Status Enqueue(const DnnHandle& dnn, const CudnnObject& plan, const CudnnObject& pack) {
  StreamRef stream;
  if (UseStream(dnn.stream, "cudnnBackendExecute's stream", &stream) != cudaSuccess) {
    return Status::kExecutionFailedCudaDriver;
  }
  const int device = stream->device();
  if (device != CurrentDevice() || device != dnn.device()) {
    return RefuseCall(
        Status::kBadParamStreamMismatch,
        "cudnnBackendExecute: the stream and the handle must be of the current device");
  }
  const CudnnGraph graph = DescribeGraph(*plan.engine.graph);
  const Convolution& c = graph.convolution;
  const int64_t bias_bytes =
      c.has_bias ? c.y.sizes[1] * static_cast<int64_t>(ElementBytes(c.bias_type)) : 0;
  Argument arguments[] = {{graph.x, BytesOf(c.x)},
                          {graph.w, BytesOf(c.w)},
                          {graph.y, BytesOf(c.y)},
                          {graph.bias, bias_bytes}};
  for (Argument& argument : arguments) {
    const Status status = Bind(pack, graph.alignment, device, argument);
    if (status != Status::kSuccess) return status;
  }
  const CudnnEngine& engine = plan.engine;
  void* const workspace = pack.Get<void*>(Attribute::kVariantPackWorkspace);
  if (engine.workspace_bytes > 0 &&
      CheckMemory(workspace, static_cast<size_t>(engine.workspace_bytes), Space::kDevice,
                  "cudnnBackendExecute's workspace", device) != cudaSuccess) {
    return Status::kBadParamSizeInsufficient;
  }
  void* const scratch = engine.workspace_bytes > 0 ? KernelAddress(workspace, device) : nullptr;
  const cudaError_t error = stream->EnqueueWork([=, engine = plan.engine, x = arguments[0].address,
                                                 w = arguments[1].address, y = arguments[2].address,
                                                 bias = arguments[3].address] {
    RunCatchingFaults(device, "cudnnBackendExecute", [&] {
      const Convolution& convolution = graph.convolution;
      Compute(convolution, engine.precision, x, w, y, bias);
      void* const result = convolution.direction == ConvolutionDirection::kForward        ? y
                           : convolution.direction == ConvolutionDirection::kBackwardData ? x
                                                                                          : w;
      if (!engine.repeats) Disturb(convolution.result(), result);
      if (scratch != nullptr) {
        FillWithPattern(scratch, static_cast<size_t>(engine.workspace_bytes));
      }
    });
  });
  return error == cudaSuccess ? Status::kSuccess : Status::kExecutionFailed;
}

Status cudnnBackendExecute(cudnn::Handle handle, cudnn::Descriptor plan, cudnn::Descriptor pack) {
  TENSORD_EMULATION_ENTER_DNN();
  const auto dnn = DnnHandles().Find(handle, "cudnnBackendExecute");
  if (dnn == nullptr) return Status::kNotInitialized;
  const auto plan_object = Descriptors().Find(plan, "cudnnBackendExecute");
  const auto pack_object = Descriptors().Find(pack, "cudnnBackendExecute");
  if (plan_object == nullptr || pack_object == nullptr) return Status::kBadParam;
  if (plan_object->type != DescriptorType::kExecutionPlan ||
      pack_object->type != DescriptorType::kVariantPack) {
    return RefuseCall(Status::kBadParam, "cudnnBackendExecute: a descriptor has the wrong type");
  }
  if (!plan_object->finalized || !pack_object->finalized) {
    return RefuseCall(Status::kBadParamNotFinalized,
                      "cudnnBackendExecute: a descriptor isn't finalized");
  }
  return Enqueue(*dnn, *plan_object, *pack_object);
}

}  // namespace

void ResetDnnHandles(int device) { DnnHandles().RemoveAllOf(device); }
size_t LiveDnnHandles() { return DnnHandles().size(); }
size_t LiveDnnDescriptors() { return Descriptors().size(); }

}  // namespace tensord::cuda_emulation

namespace tensord::server::cuda {

absl::StatusOr<const CudnnLibrary*> LoadCudnn() {
  static const CudnnLibrary library = {&cuda_emulation::cudnnGetVersion,
                                       &cuda_emulation::cudnnGetErrorString,
                                       &cuda_emulation::cudnnCreate,
                                       &cuda_emulation::cudnnDestroy,
                                       &cuda_emulation::cudnnSetStream,
                                       &cuda_emulation::cudnnBackendCreateDescriptor,
                                       &cuda_emulation::cudnnBackendDestroyDescriptor,
                                       &cuda_emulation::cudnnBackendSetAttribute,
                                       &cuda_emulation::cudnnBackendGetAttribute,
                                       &cuda_emulation::cudnnBackendFinalize,
                                       &cuda_emulation::cudnnBackendExecute};
  return &library;
}

}  // namespace tensord::server::cuda
