#include "tensord/server/rpc/unary/finish.h"

#include <utility>

namespace tensord::server {
namespace {

void Finish(UnaryCallBase& call, Session& session, const TensorRef& tensor,
            const std::function<void(const Tensor&)>& describe) {
  if (tensor->status().ok()) {
    describe(*tensor);
  } else {
    session.Remove(tensor);
  }
  call.Finish(tensor->status());
}

}  // namespace

void FinishWhenDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                    const absl::StatusOr<TensorRef>& tensor,
                    std::function<void(const Tensor&)> describe) {
  if (!tensor.ok()) {
    call->Finish(tensor.status());
    return;
  }
  if ((*tensor)->done()) {
    Finish(*call, *session, *tensor, describe);
    return;
  }
  const SessionRef owner = session.ref();
  call->Use(std::move(session));
  (*tensor)->WhenDone(
      [weak = call->weak_from_this(), owner, tensor = *tensor, describe = std::move(describe)] {
        const std::shared_ptr<UnaryCallBase> waiting = weak.lock();
        if (waiting != nullptr) Finish(*waiting, *owner, tensor, describe);
      });
}

}  // namespace tensord::server
