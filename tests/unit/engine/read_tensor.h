// Reads tensors of an engine in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/engine/engine.h"

namespace tensord::server {

// Blocks until the tensor can be read, and returns its elements, or its error. `T` has the size of
// an element, or of a part of one.
template <typename T>
absl::StatusOr<std::vector<T>> ReadTensor(Engine& engine, const TensorRef& tensor) {
  struct Outcome {
    Mutex mu;
    CondVar changed;
    bool set ABSL_GUARDED_BY(mu) = false;
    absl::Status status ABSL_GUARDED_BY(mu);
  };
  auto outcome = std::make_shared<Outcome>();
  engine.WhenReadable(tensor, [outcome](absl::Status status) {
    MutexLock lock(&outcome->mu);
    outcome->set = true;
    outcome->status = std::move(status);
    outcome->changed.SignalAll();
  });
  {
    MutexLock lock(&outcome->mu);
    while (!outcome->set) outcome->changed.Wait(&outcome->mu);
    TENSORD_RETURN_IF_ERROR(outcome->status);
  }
  const int64_t bytes = tensor->spec().size_bytes();
  std::vector<T> values(bytes / sizeof(T));
  if (bytes > 0) {
    TENSORD_RETURN_IF_ERROR(tensor->device().Read(*tensor->buffer(), 0, values.data(), bytes));
  }
  return values;
}

}  // namespace tensord::server
