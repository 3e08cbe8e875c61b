#include "tensord/server/rpc/wait_for_tensor.h"

#include <utility>

namespace tensord::server {

void WaitForTensor(const SessionRef& session, uint64_t after_command, Handle handle,
                   std::function<void(const TensorRef&)> ready,
                   std::function<void(const absl::Status&)> failed) {
  auto look_up = [session, handle, ready = std::move(ready), failed](const absl::Status& received) {
    if (!received.ok()) {
      failed(received);
      return;
    }
    absl::StatusOr<TensorRef> found = session->Find(handle);
    if (!found.ok()) {
      failed(found.status());
      return;
    }
    const TensorRef& tensor = *found;
    tensor->WhenDone([tensor, ready, failed] {
      if (tensor->status().ok()) {
        ready(tensor);
      } else {
        failed(tensor->status());
      }
    });
  };
  absl::Status waiting = session->WhenReceived(after_command, std::move(look_up));
  if (!waiting.ok()) failed(waiting);
}

}  // namespace tensord::server
