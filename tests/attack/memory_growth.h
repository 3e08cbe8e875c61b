// The growth of a daemon's memory during an attack.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/sanitized.h"

namespace tensord::attack {

// Compares the peak of a daemon's resident memory with a base.
class MemoryGrowth {
 public:
  // The base is the present value of `field`: "VmRSS", the resident memory, or "VmHWM", its peak.
  // `daemon` must outlive this object.
  MemoryGrowth(const integration::DaemonProcess& daemon, const std::string& field)
      : daemon_(daemon), base_bytes_(daemon.MemoryBytes(field)) {}

  // Records the growth as the property growth_bytes. Expects that it is less than `max_bytes`. Does
  // nothing under a sanitizer, because its shadow memory counts as the daemon's.
  void ExpectBelow(int64_t max_bytes) const {
    if (kSanitized) return;
    const int64_t growth_bytes = daemon_.MemoryBytes("VmHWM") - base_bytes_;
    testing::Test::RecordProperty("growth_bytes", std::to_string(growth_bytes));
    EXPECT_LT(growth_bytes, max_bytes);
  }

 private:
  const integration::DaemonProcess& daemon_;
  const int64_t base_bytes_;
};

}  // namespace tensord::attack
