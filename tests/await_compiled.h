// Waits until an engine has compiled its fused kernels.
#pragma once

#include <chrono>
#include <thread>

#include "absl/status/status.h"
#include "tensord/server/engine/engine.h"

namespace tensord {

// Blocks until no kernel for a chain of ops waits to be compiled. If that takes more than two
// minutes, returns DEADLINE_EXCEEDED.
inline absl::Status AwaitCompiled(const server::Engine& engine) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (engine.kernels_to_compile() > 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError("kernels still wait to be compiled after two minutes");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::OkStatus();
}

}  // namespace tensord
