#include "tensord/server/engine/loop_kernel.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server {

LoopKernel::LoopKernel(std::shared_ptr<const CompositionLoop> loop,
                       std::unique_ptr<PreparedKernel> body)
    : loop_(std::move(loop)), body_(std::move(body)), spare_(loop_->num_states()) {}

absl::StatusOr<Buffer*> LoopKernel::NextOf(const LaunchContext& context, uint32_t state,
                                           int64_t round, Buffer* result) {
  if ((loop_->length - 1 - round) % 2 == 0) return result;
  BufferRef& spare = spare_[state];
  if (spare == nullptr) {
    TENSORD_ASSIGN_OR_RETURN(spare,
                             AllocateFor(context.account, context.device, result->size_bytes()));
    if (context.kept != nullptr) context.kept->push_back(spare);
  }
  return spare.get();
}

absl::Status LoopKernel::Launch(const LaunchContext& context,
                                absl::Span<const Buffer* const> operands,
                                absl::Span<Buffer* const> results) {
  const bool is_empty =
      absl::c_all_of(results, [](const Buffer* result) { return result->size_bytes() == 0; });
  if (is_empty) return absl::OkStatus();
  const absl::Cleanup free_spare = [this] { absl::c_fill(spare_, nullptr); };
  const uint32_t num_states = loop_->num_states();
  std::vector<const Buffer*> inputs(operands.begin(), operands.end());
  std::vector<Buffer*> outputs(results.size());
  // The views that the round reads and writes. Stacked states of the round before are read, too.
  std::vector<BufferRef> views, states(num_states);
  for (int64_t round = 0; round < loop_->length; ++round) {
    TENSORD_RETURN_IF_ERROR(CheckStop());
    const int64_t index = loop_->reverse ? loop_->length - 1 - round : round;
    views.clear();
    const auto part_of = [&](const Buffer& whole) {
      const int64_t bytes = whole.size_bytes() / loop_->length;
      return views.emplace_back(BufferView::MakeUnowned(whole, index * bytes, bytes)).get();
    };
    for (uint32_t i = num_states; i < num_states + loop_->num_sequences; ++i) {
      inputs[i] = part_of(*operands[i]);
    }
    for (uint32_t i = 0; i < outputs.size(); ++i) {
      if (i < num_states && !loop_->stacked[i]) {
        TENSORD_ASSIGN_OR_RETURN(outputs[i], NextOf(context, i, round, results[i]));
      } else {
        outputs[i] = part_of(*results[i]);
        if (i < num_states) std::swap(states[i], views.back());  // views keeps the old one
      }
    }
    TENSORD_RETURN_IF_ERROR(body_->Launch(context, inputs, outputs));
    for (uint32_t i = 0; i < num_states; ++i) inputs[i] = outputs[i];
  }
  return absl::OkStatus();
}

}  // namespace tensord::server
