// Launches kernels without a session.
#pragma once

#include "tensord/server/device/device.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// The context of launches on `device`, with an account without limits.
class TestLaunch {
 public:
  explicit TestLaunch(Device& device, const CheckCell& check = {})
      : account_(MemoryAccount::Open({.device = device.name().ToString()})),
        context_{*account_, device, check} {}

  const LaunchContext& context() const { return context_; }

 private:
  const MemoryAccount::Ref account_;
  const LaunchContext context_;
};

}  // namespace tensord::server
