#include "tensord/client/internal/reply_table.h"

#include <algorithm>

#include "tensord/client/internal/interruption.h"
#include "tensord/common/status_details.h"

namespace tensord::internal {

uint64_t ReplyTable::Expect() {
  MutexLock lock(&mu_);
  const uint64_t id = ++last_id_;
  slots_.emplace(id, std::make_shared<Slot>());
  return id;
}

void ReplyTable::Remove(uint64_t id) {
  MutexLock lock(&mu_);
  slots_.erase(id);
}

absl::StatusOr<v1::Elements> ReplyTable::Await(uint64_t id, Clock::time_point* arrival) {
  MutexLock lock(&mu_);
  const std::shared_ptr<Slot> slot = slots_.at(id);
  while (!slot->done && failure_.ok() && !Interruption::Interrupted()) {
    WaitOrCheck(&slot->arrived, &mu_);
  }
  slots_.erase(id);
  if (!slot->done) return failure_.ok() ? InterruptedError() : failure_;
  if (slot->elements.code() != 0) {
    absl::Status error = StatusFromCode(slot->elements.code(), slot->elements.message(),
                                        slot->elements.status_details());
    MarkReportedLocked(error);
    return error;
  }
  if (arrival != nullptr) *arrival = slot->arrival;
  return std::move(slot->elements);
}

bool ReplyTable::Arrived(uint64_t id) const {
  MutexLock lock(&mu_);
  return slots_.at(id)->done || !failure_.ok();
}

bool ReplyTable::AnyAwaited() const {
  MutexLock lock(&mu_);
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return !slot.second->done; });
}

void ReplyTable::FinishLocked(uint64_t id, v1::Elements* elements) {
  const auto it = slots_.find(id);
  if (it == slots_.end()) return;
  if (elements != nullptr) it->second->elements.Swap(elements);
  it->second->arrival = Clock::now();
  it->second->done = true;
  it->second->arrived.Signal();
}

void ReplyTable::Deliver(v1::SessionStreamResponse* response) {
  MutexLock lock(&mu_);
  for (const v1::HandleError& error : response->errors()) {
    if (errors_.size() >= kMaxErrors) break;
    absl::Status status = StatusFromCode(error.code(), error.message(), error.status_details());
    const bool was_reported =
        std::find(reported_.begin(), reported_.end(), status) != reported_.end();
    if (!status.ok() && !was_reported) errors_.push_back(std::move(status));
  }
  for (v1::Elements& elements : *response->mutable_elements()) {
    FinishLocked(elements.request_id(), &elements);
  }
  for (const v1::BarrierDone& barrier : response->barriers()) {
    FinishLocked(barrier.barrier_id(), nullptr);
  }
}

void ReplyTable::Fail(absl::Status reason) {
  MutexLock lock(&mu_);
  if (!failure_.ok()) return;
  failure_ = std::move(reason);
  for (auto& [id, slot] : slots_) slot->arrived.SignalAll();
}

absl::Status ReplyTable::TakeError() {
  MutexLock lock(&mu_);
  if (errors_.empty()) return absl::OkStatus();
  absl::Status first = errors_.front();
  MarkReportedLocked(first);
  return first;
}

void ReplyTable::MarkReported(const absl::Status& error) {
  MutexLock lock(&mu_);
  MarkReportedLocked(error);
}

void ReplyTable::MarkReportedLocked(const absl::Status& error) {
  errors_.erase(std::remove(errors_.begin(), errors_.end(), error), errors_.end());
  if (std::find(reported_.begin(), reported_.end(), error) != reported_.end()) return;
  reported_.push_back(error);
  if (reported_.size() > kMaxReported) reported_.pop_front();
}

}  // namespace tensord::internal
