#include "tensord/client/internal/command_queue.h"

#include <algorithm>
#include <optional>

namespace tensord::internal {

bool CommandQueue::FullLocked() const {
  return static_cast<int64_t>(pushed_ - acknowledged_) >= max_pending_commands_ ||
         pending_bytes_ >= max_pending_bytes_;
}

void CommandQueue::AppendLocked(v1::Command command, int64_t size_bytes) {
  const bool fits = !messages_.empty() &&
                    messages_.back().request.commands_size() < kMaxCommandsPerMessage &&
                    messages_.back().size_bytes + size_bytes <= kMaxMessageBytes;
  if (!fits) messages_.emplace_back();
  // Also where a server has acknowledged what it can't have got yet.
  if (!fits || sizes_.empty()) sizes_.emplace_back(pushed_, 0);
  Message& message = messages_.back();
  *message.request.add_commands() = std::move(command);
  message.size_bytes += size_bytes;
  ++pushed_;
  sizes_.back().first = pushed_;
  sizes_.back().second += size_bytes;
  pending_bytes_ += size_bytes;
  counters_->commands.fetch_add(1, std::memory_order_relaxed);
}

absl::Status CommandQueue::Push(v1::Command command) {
  const auto size_bytes = static_cast<int64_t>(command.ByteSizeLong());
  {
    MutexLock lock(&mu_);
    if (status_.ok() && FullLocked()) {
      WaitTimer timer(counters_);
      while (status_.ok() && FullLocked()) space_.Wait(&mu_);
    }
    if (!status_.ok()) return status_;
    AppendLocked(std::move(command), size_bytes);
  }
  work_.Signal();
  return absl::OkStatus();
}

void CommandQueue::PushDrop(uint64_t handle) {
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    if (!messages_.empty()) {
      v1::SessionStreamRequest& request = messages_.back().request;
      v1::Command* last = request.mutable_commands(request.commands_size() - 1);
      if (last->has_drop() && last->drop().handles_size() < kMaxHandlesPerDrop) {
        last->mutable_drop()->add_handles(handle);
        return;
      }
    }
    v1::Command command;
    command.mutable_drop()->add_handles(handle);
    AppendLocked(std::move(command), 16);
  }
  work_.Signal();
}

bool CommandQueue::Take(v1::SessionStreamRequest* message) {
  std::optional<Message> taken;
  {
    MutexLock lock(&mu_);
    while (messages_.empty() && status_.ok() && !stopped_) work_.Wait(&mu_);
    if (stopped_ || !status_.ok()) return false;
    taken = std::move(messages_.front());
    messages_.pop_front();
  }
  counters_->messages.fetch_add(1, std::memory_order_relaxed);
  message->Swap(&taken->request);
  return true;
}

void CommandQueue::StopTaking() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  work_.SignalAll();
}

void CommandQueue::Acknowledge(uint64_t received) {
  {
    MutexLock lock(&mu_);
    acknowledged_ = std::max(acknowledged_, std::min(received, pushed_));
    while (!sizes_.empty() && sizes_.front().first <= acknowledged_) {
      pending_bytes_ -= sizes_.front().second;
      sizes_.pop_front();
    }
  }
  space_.SignalAll();
}

void CommandQueue::Close(absl::Status reason) {
  std::deque<Message> dropped;
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = std::move(reason);
    dropped.swap(messages_);
  }
  work_.SignalAll();
  space_.SignalAll();
}

absl::Status CommandQueue::status() const {
  MutexLock lock(&mu_);
  return status_;
}

uint64_t CommandQueue::pushed() const {
  MutexLock lock(&mu_);
  return pushed_;
}

}  // namespace tensord::internal
