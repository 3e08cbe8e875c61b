// Host memory registered with CUDA, from which GPUs copy directly.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tensord/server/device/host_memory.h"

namespace tensord::server::cuda {

// Registers memory for all GPUs at its first use. A reset of the GPU that was current at that time
// undoes the registration. The next use then registers the memory again. Thread-safe.
class HostRegistration final : public HostMemory::Preparation {
 public:
  HostRegistration(void* data, int64_t size_bytes);
  // Unregisters the memory. No Use of it may exist.
  ~HostRegistration() override;

  // Returns the registration of `memory`, which owns it. The first call creates it.
  static HostRegistration& Of(HostMemory& memory);

  // The memory stays registered while a Use exists. GPU `physical_index` must be current for the
  // constructor.
  class Use {
   public:
    Use(HostRegistration* registration, int physical_index);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    // Returns false if the memory isn't registered, because CUDA refused it or because the GPU that
    // was current at the registration is being reset. The first refusal in a process is logged.
    bool registered() const { return registered_; }

   private:
    HostRegistration* const registration_;
    const bool registered_;
  };

  // Calls `reset`, which must reset GPU `physical_index`, and returns its status. First blocks
  // until there is no Use of memory that was registered while that GPU was current. Later uses
  // register this memory again.
  static absl::Status Reset(int physical_index, absl::FunctionRef<absl::Status()> reset);

 private:
  enum class State { kNone, kRegistered, kRefused, kResetting };
  struct Registry;

  static Registry& GlobalRegistry();
  bool BeginUse(int physical_index);
  void EndUse();

  void* const data_;
  const int64_t size_bytes_;
  // Guarded by the registry's mutex.
  State state_ = State::kNone;
  int physical_index_ = 0;  // of the GPU that was current at the registration
  int uses_ = 0;
};

}  // namespace tensord::server::cuda
