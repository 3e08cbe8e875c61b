#include "tensord/server/rpc/wait_for_tensor.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {

void WaitForTensor(const SessionRef& session, uint64_t after_command, Handle handle,
                   std::function<void(const absl::StatusOr<TensorRef>&)> ready) {
  auto look_up = [session, handle, ready](const absl::Status& received) {
    if (!received.ok()) {
      ready(received);
      return;
    }
    absl::StatusOr<TensorRef> found = session->Find(handle);
    if (!found.ok()) {
      ready(found);
      return;
    }
    const absl::Status waits = session->waits().Begin(InFlight::kCallBytes);
    if (!waits.ok()) {
      ready(waits);
      return;
    }
    const TensorRef tensor = *found;
    tensor->WhenDone([session, tensor, ready] {
      session->waits().End(InFlight::kCallBytes);
      if (tensor->status().ok()) {
        ready(tensor);
      } else {
        ready(tensor->status());
      }
    });
  };
  absl::Status waiting = session->WhenReceived(after_command, std::move(look_up));
  if (!waiting.ok()) ready(waiting);
}

void WaitUntilReadable(Engine* engine, const SessionRef& session, uint64_t after_command,
                       Handle handle, std::function<void(const absl::StatusOr<TensorRef>&)> ready) {
  WaitForTensor(session, after_command, handle,
                [engine, ready = std::move(ready)](const absl::StatusOr<TensorRef>& tensor) {
                  if (!tensor.ok()) {
                    ready(tensor);
                    return;
                  }
                  engine->WhenReadable(*tensor,
                                       [ready, tensor = *tensor](const absl::Status& status) {
                                         if (status.ok()) {
                                           ready(tensor);
                                         } else {
                                           ready(status);
                                         }
                                       });
                });
}

absl::StatusOr<int64_t> ReadEnd(const Tensor& tensor, int64_t offset, int64_t limit) {
  const int64_t size = tensor.spec().size_bytes();
  if (offset < 0 || limit < 0 || offset > size || limit > size - offset) {
    return absl::OutOfRangeError(absl::StrCat("tensor ", tensor.handle(), " has ", size,
                                              " bytes; the request is for ", limit, " from offset ",
                                              offset));
  }
  return limit == 0 ? size : offset + limit;
}

}  // namespace tensord::server
