// The loops of compositions (common/ops/composition.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/ops/composition.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// A loop of a composition. One thread at a time may use it.
class LoopKernel {
 public:
  LoopKernel(std::shared_ptr<const CompositionLoop> loop, std::unique_ptr<PreparedKernel> body);

  // Runs all rounds. The operands and results are those of the loop's step.
  absl::Status Launch(const LaunchContext& context, absl::Span<const Buffer* const> operands,
                      absl::Span<Buffer* const> results);
  PreparedKernel& body() const { return *body_; }
  int64_t num_launches() const {
    constexpr int64_t kMany = int64_t{1} << 40;  // so that sums don't overflow
    const int64_t of_round = body_->num_launches();
    return loop_->length > kMany / std::max<int64_t>(of_round, 1) ? kMany
                                                                  : loop_->length * of_round;
  }

 private:
  // Returns where a round writes the next value of a state that isn't stacked. Two buffers
  // alternate, so that the last round writes to the result.
  absl::StatusOr<Buffer*> NextOf(const LaunchContext& context, uint32_t state, int64_t round,
                                 Buffer* result);

  const std::shared_ptr<const CompositionLoop> loop_;
  const std::unique_ptr<PreparedKernel> body_;
  std::vector<BufferRef> spare_;  // during a launch: by state, the other buffer, or null
};

}  // namespace tensord::server
