// The methods that share tensors with other principals under names.
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
  const auto opened = Tensor::Make(request.output(), (*published)->spec(), (*published)->slot(),
                                   (*published)->buffer(), (*published)->checks());
  absl::Status inserted = (*use)->Insert(opened);
  if (absl::IsAlreadyExists(inserted)) {
    // A client that has lost the answer repeats the call. The handle then has this tensor already.
    const absl::StatusOr<TensorRef> existing = (*use)->Find(request.output());
    const bool same = existing.ok() && (*existing)->done() && (*existing)->status().ok() &&
                      (*existing)->buffer() == opened->buffer() &&
                      (*existing)->spec() == opened->spec();
    if (same) inserted = absl::OkStatus();
  }
  if (inserted.ok()) ToProto(*opened, call->response());
  call->Finish(inserted);
}

void UnaryMethods::UnpublishTensor(
    const UnaryRef<v1::UnpublishTensorRequest, v1::UnpublishTensorResponse>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  call->Finish(
      context_->sessions->publications().Unpublish(call->principal(), call->request().name()));
}

}  // namespace tensord::server
