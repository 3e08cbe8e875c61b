#include "tensord/server/device/cuda/fused_kernels.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/fused_source.h"
#include "tensord/server/device/cuda/kernels/grid.h"
#include "tensord/server/device/cuda/nvrtc.h"

namespace tensord::server::cuda {
namespace {

// Only the runtime of CUDA 12.8 and later can load code.
#if CUDART_VERSION >= 12080
absl::Status Load(const std::string& code, const char* name, cudaLibrary_t* library,
                  cudaKernel_t* kernel) {
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaLibraryLoadData(library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  TENSORD_CUDA_RETURN_IF_ERROR(cudaLibraryGetKernel(kernel, *library, name));
  return absl::OkStatus();
}

void Unload(cudaLibrary_t library) { cudaLibraryUnload(library); }
#else
absl::Status Load(const std::string& /*code*/, const char* /*name*/, cudaLibrary_t* /*library*/,
                  cudaKernel_t* /*kernel*/) {
  return absl::UnimplementedError("built with a CUDA toolkit older than 12.8");
}

void Unload(cudaLibrary_t /*library*/) {}
#endif

// Returns whether Load() fails again for the same code: the driver rejects it, or this build can't
// load code.
bool IsPermanent(const absl::Status& error) {
  return absl::IsUnimplemented(error) || absl::IsFailedPrecondition(error);
}

class FusedElementwise final : public PreparedKernel {
 public:
  FusedElementwise(CudaDevice* device, FusedCodeRef code, FusedSource source, const FusedSpec& spec)
      : device_(device),
        code_(std::move(code)),
        pack_width_(source.pack_width),
        single_(std::move(source.single)),
        size_(spec.output->num_elements()) {
    // A thread reads its pack of each input before it writes the output's pack.
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      if (HasElementsOf(spec.inputs[i], *spec.output)) SetInPlace(static_cast<int>(i));
    }
  }

  absl::Status Launch(const LaunchContext& /*context*/, absl::Span<const Buffer* const> inputs,
                      absl::Span<Buffer* const> outputs) override {
    Buffer* const output = outputs[0];
    if (size_ == 0) return absl::OkStatus();
    bool aligned = IsAligned(output->data());
    absl::InlinedVector<const void*, 8> addresses;
    for (size_t i = 0; i < inputs.size(); ++i) {
      addresses.push_back(inputs[i]->data());
      aligned = aligned && (single_[i] || IsAligned(inputs[i]->data()));
    }
    void* out = output->data();
    int64_t size = size_, packs = aligned ? size_ / pack_width_ : 0;
    absl::InlinedVector<void*, 12> arguments;
    for (const void*& address : addresses) arguments.push_back(&address);
    arguments.insert(arguments.end(), {&out, &size, &packs});
    const int64_t items = std::max(packs, size - packs * pack_width_);
    return device_->LaunchCompiled(*code_->kernel, dim3(GridSize(items)), dim3(kThreads),
                                   arguments.data(), inputs);
  }

 private:
  static bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

  CudaDevice* const device_;
  const FusedCodeRef code_;
  const int pack_width_;
  const std::vector<bool> single_;
  const int64_t size_;
};

}  // namespace

FusedKernels::~FusedKernels() {
  MutexLock lock(&mu_);
  for (const Entry& entry : entries_) {
    if (entry.code->cuda_library != nullptr) Unload(entry.code->cuda_library);
  }
}

absl::StatusOr<FusedCode> FusedKernels::Make(const std::string& source, const char* name) const {
  // UNIMPLEMENTED makes the caller run the ops one by one.
  FusedCode made{absl::UnimplementedError("")};
  const absl::StatusOr<std::string> code = CompileForGpu(source, major_, minor_);
  if (!code.ok()) {
    made.kernel = absl::UnimplementedError(code.status().message());
    return made;
  }
  cudaKernel_t kernel = nullptr;
  const absl::Status loaded = Load(*code, name, &made.cuda_library, &kernel);
  if (!loaded.ok()) {
    if (made.cuda_library != nullptr) Unload(made.cuda_library);
    const absl::Status error = absl::UnimplementedError(loaded.message());
    if (!IsPermanent(loaded)) return error;
    return FusedCode{error};
  }
  made.kernel = kernel;
  return made;
}

bool FusedKernels::Evict() {
  for (auto entry = entries_.end(); entry != entries_.begin();) {
    --entry;
    if (entry->code.use_count() > 1) continue;
    // Waits for launches of the kernel that have not ended.
    if (entry->code->cuda_library != nullptr) {
      if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaGetLastError();
      Unload(entry->code->cuda_library);
    }
    by_source_.erase(entry->source);
    entries_.erase(entry);
    return true;
  }
  return false;
}

absl::StatusOr<FusedCodeRef> FusedKernels::Use(Entries::iterator entry) {
  entries_.splice(entries_.begin(), entries_, entry);
  if (!entry->code->kernel.ok()) return entry->code->kernel.status();
  return entry->code;
}

absl::StatusOr<FusedCodeRef> FusedKernels::Find(const std::string& source, const char* name) {
  {
    MutexLock lock(&mu_);
    if (const auto found = by_source_.find(source); found != by_source_.end()) {
      return Use(found->second);
    }
  }
  // Compiles without the lock, because it takes long. If two threads compile the same source, the
  // first result is kept.
  TENSORD_ASSIGN_OR_RETURN(FusedCode made, Make(source, name));
  MutexLock lock(&mu_);
  const auto found = by_source_.find(source);
  const bool is_new = found == by_source_.end();
  if (!is_new || (entries_.size() >= kMaxKernels && !Evict())) {
    if (made.cuda_library != nullptr) Unload(made.cuda_library);
    if (!is_new) return Use(found->second);
    return absl::UnimplementedError("cuda: too many different fused kernels are in use");
  }
  entries_.push_front({source, std::make_shared<const FusedCode>(std::move(made))});
  by_source_[entries_.front().source] = entries_.begin();
  return Use(entries_.begin());
}

absl::StatusOr<std::unique_ptr<PreparedKernel>> CudaDevice::PrepareFused(const FusedSpec& spec) {
  TENSORD_ASSIGN_OR_RETURN(FusedSource source, MakeFusedSource(spec));
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) return *loss();
  const DeviceGuard guard(info_.physical_index);
  TENSORD_ASSIGN_OR_RETURN(FusedCodeRef code, fused_kernels_->Find(source.text, kFusedName));
  return std::make_unique<FusedElementwise>(this, std::move(code), std::move(source), spec);
}

absl::Status CudaDevice::LaunchCompiled(cudaKernel_t kernel, dim3 grid, dim3 block,
                                        void** arguments, absl::Span<const Buffer* const> inputs) {
  const CallTracker::Call call(&calls_);
  if (!call.admitted()) return *loss();
  const DeviceGuard guard(info_.physical_index);
  for (const Buffer* input : inputs) {
    TENSORD_RETURN_IF_ERROR(OrderInput(input->data(), input->size_bytes()));
  }
  TENSORD_CUDA_RETURN_IF_ERROR(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block,
                                                arguments, 0, context_.stream));
  return absl::OkStatus();
}

}  // namespace tensord::server::cuda
