#include "tensord/server/rpc/unary/finish.h"

#include <atomic>
#include <utility>

#include "tensord/server/engine/resolve_checks.h"

namespace tensord::server {
namespace {

// `call` is null if the call has ended.
void Finish(UnaryCallBase* call, Session& session, const TensorRef& tensor,
            const std::function<void(const Tensor&)>& describe) {
  if (!tensor->status().ok()) session.Remove(tensor);
  if (call == nullptr) return;
  if (tensor->status().ok()) describe(*tensor);
  call->Finish(tensor->status());
}

}  // namespace

void FinishWhenDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                    const absl::StatusOr<TensorRef>& tensor, EarlyEnd early_end,
                    std::function<void(const Tensor&)> describe) {
  if (!tensor.ok()) {
    call->Finish(tensor.status());
    return;
  }
  const CheckListRef checks = (*tensor)->done() ? (*tensor)->checks() : nullptr;
  if ((*tensor)->done() && (checks == nullptr || checks->resolved())) {
    Finish(call.get(), *session, *tensor, describe);
    return;
  }
  const SessionRef owner = session.ref();
  // The callback remains until the tensor is done, even if the call is cancelled.
  const absl::Status wait = owner->waits().Begin(InFlight::kCallBytes);
  if (!wait.ok()) {
    if (early_end == EarlyEnd::kStopsOp) owner->Remove(*tensor);
    call->Finish(wait);
    return;
  }
  call->Use(std::move(session), early_end == EarlyEnd::kStopsOp ? *tensor : nullptr);
  WhenChecked(*tensor, [weak = call->weak_from_this(), owner, tensor = *tensor,
                        describe = std::move(describe)] {
    owner->waits().End(InFlight::kCallBytes);
    Finish(weak.lock().get(), *owner, tensor, describe);
  });
}

void FinishWhenAllDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                       std::vector<TensorRef> tensors,
                       std::function<void(const Tensor&)> describe) {
  const SessionRef owner = session.ref();
  const absl::Status wait = owner->waits().Begin(InFlight::kCallBytes);
  if (!wait.ok()) return call->Finish(wait);
  call->Use(std::move(session), nullptr);
  struct Waiting {
    std::weak_ptr<UnaryCallBase> call;
    SessionRef owner;
    std::vector<TensorRef> tensors;
    std::function<void(const Tensor&)> describe;
    std::atomic<size_t> left;
  };
  const auto finish = [](Waiting& waiting) {
    waiting.owner->waits().End(InFlight::kCallBytes);
    absl::Status status;
    for (const TensorRef& tensor : waiting.tensors) {
      status.Update(tensor->status());
      if (!tensor->status().ok()) waiting.owner->Remove(tensor);
    }
    const std::shared_ptr<UnaryCallBase> call = waiting.call.lock();
    if (call == nullptr) return;
    for (const TensorRef& tensor : waiting.tensors) {
      if (status.ok()) waiting.describe(*tensor);
    }
    call->Finish(status);
  };
  const auto waiting = std::make_shared<Waiting>();
  waiting->call = call->weak_from_this();
  waiting->owner = owner;
  waiting->tensors = std::move(tensors);
  waiting->describe = std::move(describe);
  waiting->left = waiting->tensors.size() + 1;
  const auto one_done = [waiting, finish] {
    if (waiting->left.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(*waiting);
  };
  for (const TensorRef& tensor : waiting->tensors) WhenChecked(tensor, one_done);
  one_done();
}

}  // namespace tensord::server
