#include "tensord/server/device/cuda/host_registration.h"

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/log.h"

namespace tensord::server::cuda {

struct HostRegistration::Registry {
  Mutex mu;
  CondVar changed;  // a registration lost its last Use, or `unregistering` decreased
  int unregistering ABSL_GUARDED_BY(mu) = 0;
  absl::flat_hash_set<HostRegistration*> all ABSL_GUARDED_BY(mu);
  bool logged ABSL_GUARDED_BY(mu) = false;
};

HostRegistration::Registry& HostRegistration::GlobalRegistry() {
  static auto* registry = new Registry;  // outlives every static
  return *registry;
}

HostRegistration& HostRegistration::Of(HostMemory& memory) {
  return static_cast<HostRegistration&>(memory.Prepare(
      [&] { return std::make_unique<HostRegistration>(memory.data(), memory.size_bytes()); }));
}

HostRegistration::HostRegistration(void* data, int64_t size_bytes)
    : data_(data), size_bytes_(size_bytes) {
  Registry& registry = GlobalRegistry();
  MutexLock lock(&registry.mu);
  registry.all.insert(this);
}

HostRegistration::~HostRegistration() {
  Registry& registry = GlobalRegistry();
  {
    MutexLock lock(&registry.mu);
    registry.all.erase(this);
    if (state_ != State::kRegistered) return;
    ++registry.unregistering;
  }
  {
    // Doesn't hold the lock, because the call may block until the GPU has finished its current
    // work. The call fails if the context is lost. The reset of the GPU then undoes the
    // registration.
    const DeviceGuard guard(physical_index_);
    if (cudaHostUnregister(data_) != cudaSuccess) cudaGetLastError();
  }
  MutexLock lock(&registry.mu);
  --registry.unregistering;
  registry.changed.SignalAll();
}

HostRegistration::Use::Use(HostRegistration* registration, int physical_index)
    : registration_(registration), registered_(registration->BeginUse(physical_index)) {}

HostRegistration::Use::~Use() {
  if (registered_) registration_->EndUse();
}

bool HostRegistration::BeginUse(int physical_index) {
  Registry& registry = GlobalRegistry();
  MutexLock lock(&registry.mu);
  if (state_ == State::kNone) {
    const cudaError_t error =
        cudaHostRegister(data_, static_cast<size_t>(size_bytes_), cudaHostRegisterPortable);
    state_ = error == cudaSuccess ? State::kRegistered : State::kRefused;
    physical_index_ = physical_index;
    if (error != cudaSuccess) {
      cudaGetLastError();  // clears the error, which is handled here
      if (!registry.logged) {
        LogLine(absl::StrCat("cudaHostRegister failed: ", cudaGetErrorName(error), ": ",
                             cudaGetErrorString(error),
                             "; transfers through shared memory need one more copy"));
      }
      registry.logged = true;
    }
  }
  if (state_ != State::kRegistered) return false;
  ++uses_;
  return true;
}

void HostRegistration::EndUse() {
  Registry& registry = GlobalRegistry();
  MutexLock lock(&registry.mu);
  if (--uses_ == 0) registry.changed.SignalAll();
}

absl::Status HostRegistration::Reset(int physical_index, absl::FunctionRef<absl::Status()> reset) {
  Registry& registry = GlobalRegistry();
  MutexLock lock(&registry.mu);
  for (HostRegistration* registration : registry.all) {
    if (registration->state_ == State::kRegistered &&
        registration->physical_index_ == physical_index) {
      registration->state_ = State::kResetting;
    }
  }
  // Waits for copies to other GPUs. Copies to this GPU have already ended.
  for (bool in_use = true; in_use;) {
    in_use = registry.unregistering > 0;
    for (const HostRegistration* registration : registry.all) {
      in_use |= registration->state_ == State::kResetting && registration->uses_ > 0;
    }
    if (in_use) registry.changed.Wait(&registry.mu);
  }
  absl::Status status = reset();
  for (HostRegistration* registration : registry.all) {
    // The cause of a refusal may have been the fault that led to the reset.
    if (registration->state_ == State::kRefused) registration->state_ = State::kNone;
    if (registration->state_ != State::kResetting) continue;
    // The driver may have kept the registration.
    if (cudaHostUnregister(registration->data_) != cudaSuccess) cudaGetLastError();
    registration->state_ = State::kNone;
  }
  return status;
}

}  // namespace tensord::server::cuda
