// Host memory registered with CUDA, from which GPUs copy directly.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tensord/server/device/host_memory.h"

namespace tensord::server::cuda {

// Registers memory at its first use, for all GPUs. A reset of the GPU that was current then undoes
// that, and the next use registers the memory anew. Thread-safe.
class HostRegistration final : public HostMemory::Preparation {
 public:
  HostRegistration(void* data, int64_t size_bytes);
  // Unregisters the memory. There is no Use.
  ~HostRegistration() override;

  static HostRegistration& Of(HostMemory& memory);

  // While it lives, the memory stays registered. Make a GPU current before.
  class Use {
   public:
    Use(HostRegistration* registration, int physical_index);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    // False if the memory isn't registered: CUDA has refused it, or its GPU is being reset. The
    // first refusal of a process is logged.
    bool registered() const { return registered_; }

   private:
    HostRegistration* const registration_;
    const bool registered_;
  };

  // Calls `reset`, which resets a GPU, while nothing uses memory that was registered when that GPU
  // was current. Later uses register such memory anew.
  static absl::Status Reset(int physical_index, absl::FunctionRef<absl::Status()> reset);

 private:
  enum class State { kNone, kRegistered, kRefused, kResetting };
  struct Registry;

  static Registry& TheRegistry();
  bool BeginUse(int physical_index);
  void EndUse();

  void* const data_;
  const int64_t size_bytes_;
  // Guarded by the registry's mutex.
  State state_ = State::kNone;
  int physical_index_ = 0;  // of the GPU that was current
  int uses_ = 0;
};

}  // namespace tensord::server::cuda
