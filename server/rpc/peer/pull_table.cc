#include "tensord/server/rpc/peer/pull_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {

absl::StatusOr<TensorRef> PullTable::FindTensor(Session& session, const v1::WriteSpec& wanted,
                                                bool* made) {
  absl::StatusOr<TensorRef> found = session.Find(wanted.handle());
  *made = absl::IsNotFound(found.status());
  if (!*made) return found;
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(wanted.spec()));
  return context_->engine->Promise(session, wanted.handle(), spec, wanted.device());
}

void PullTable::Pull(const SessionRef& session, const v1::PullTensorRequest& request,
                     Waiter waiter) {
  Outcome known;
  RecordRef record;
  TensorRef tensor;
  bool made = false;
  {
    MutexLock lock(&mu_);
    absl::StatusOr<TensorRef> found = FindTensor(*session, request.tensor(), &made);
    known.status = found.status();
    if (found.ok()) {
      tensor = *std::move(found);
      RecordRef& known_record = records_[tensor.get()];
      const bool same = known_record != nullptr && known_record->tensor.lock() == tensor;
      if (same && !known_record->done) {
        known_record->waiters.push_back(std::move(waiter));
        return;
      }
      if (same) {
        known = known_record->outcome;
        known.tensor = tensor;
        known.status = tensor->status();
      } else {
        record = known_record = std::make_shared<Record>();
        record->tensor = tensor;
        record->waiters.push_back(std::move(waiter));
        SweepLocked();
      }
    }
  }
  if (record == nullptr) return waiter(known);
  Start(session, request, tensor, made, record);
}

void PullTable::Start(const SessionRef& session, const v1::PullTensorRequest& request,
                      const TensorRef& tensor, bool made, const RecordRef& record) {
  // A tensor that has failed already isn't pulled. The waiters get its error.
  if (tensor->done() && !tensor->status().ok()) {
    return OnPullEnded(tensor.get(), record, {.status = tensor->status()});
  }
  absl::StatusOr<Charge> counted = ChargeTo(session->principal(), PrincipalLimit::kPulls);
  if (!counted.ok()) {
    if (made) session->Remove(tensor);
    if (tensor->upload() != nullptr) tensor->upload()->Fail(counted.status());
    return OnPullEnded(tensor.get(), record, {.status = counted.status()});
  }
  const auto pull =
      std::make_shared<PeerPull>(context_, peers_, session, request, made, *std::move(counted));
  pull->Start(tensor, [this, raw = tensor.get(), record](Outcome outcome) {
    OnPullEnded(raw, record, std::move(outcome));
  });
}

void PullTable::OnPullEnded(const Tensor* tensor, const RecordRef& record, Outcome outcome) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mu_);
    waiters.swap(record->waiters);
    record->done = true;
    record->outcome = outcome;
    record->outcome.tensor = nullptr;
    const auto found = records_.find(tensor);
    // After a failure, a later Pull() either starts another pull or gets the tensor's error.
    if (!outcome.status.ok() && found != records_.end() && found->second == record) {
      records_.erase(found);
    }
  }
  for (const Waiter& waiter : waiters) waiter(outcome);
}

void PullTable::SweepLocked() {
  if (records_.size() < sweep_at_) return;
  for (auto it = records_.begin(); it != records_.end();) {
    const auto at = it++;
    if (at->second->done && at->second->tensor.expired()) records_.erase(at);
  }
  sweep_at_ = std::max<size_t>(64, 2 * records_.size());
}

}  // namespace tensord::server
