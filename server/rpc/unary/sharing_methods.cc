// Tensors lent to other principals under names.
#include <string>
#include <vector>

#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/unary/unary_methods.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {

void UnaryMethods::PublishTensor(
    const UnaryRef<v1::PublishTensorRequest, v1::PublishTensorResponse>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const SessionRef session = use->ref();
  call->Use(*std::move(use));
  const v1::PublishTensorRequest& request = call->request();
  WaitForTensor(session, request.after_command(), request.handle(),
                [this, weak = call->weak_from_this(), session, name = request.name(),
                 readers = std::vector<std::string>(request.principals().begin(),
                                                    request.principals().end())](
                    const absl::StatusOr<TensorRef>& tensor) {
                  const std::shared_ptr<UnaryCallBase> waiting = weak.lock();
                  if (waiting == nullptr) return;
                  waiting->Finish(tensor.ok() ? context_->sessions->publications().Publish(
                                                    session, name, *tensor, readers)
                                              : tensor.status());
                });
}

void UnaryMethods::OpenPublished(const UnaryRef<v1::OpenPublishedRequest, v1::Tensor>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const v1::OpenPublishedRequest& request = call->request();
  const absl::StatusOr<TensorRef> published =
      context_->sessions->publications().Find(call->principal(), request.owner(), request.name());
  if (!published.ok()) return call->Finish(published.status());
  if (!(*published)->status().ok()) return call->Finish((*published)->status());
  const auto opened = std::make_shared<Tensor>(request.output(), (*published)->spec(),
                                               (*published)->slot(), (*published)->buffer());
  absl::Status taken = (*use)->Insert(opened);
  if (absl::IsAlreadyExists(taken)) {
    // Asked again, since the answer was lost: the handle is this tensor's.
    const absl::StatusOr<TensorRef> there = (*use)->Find(request.output());
    const bool same = there.ok() && (*there)->done() && (*there)->status().ok() &&
                      (*there)->buffer() == opened->buffer() && (*there)->spec() == opened->spec();
    if (same) taken = absl::OkStatus();
  }
  if (taken.ok()) ToProto(*opened, call->response());
  call->Finish(taken);
}

void UnaryMethods::UnpublishTensor(
    const UnaryRef<v1::UnpublishTensorRequest, v1::UnpublishTensorResponse>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  call->Finish(
      context_->sessions->publications().Unpublish(call->principal(), call->request().name()));
}

}  // namespace tensord::server
