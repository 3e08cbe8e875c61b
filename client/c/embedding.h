// The functions by which a language's runtime changes the C interface, for libraries that are a part
// of its extension module. Those of Python are in client/python/tensord/_core/embedding.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"

namespace tensord::c {

enum class WaitKind {
  kStream,         // waits for the command stream, or in Tensor::Wait
  kCalls,          // makes other calls, too
  kUninterrupted,  // a signal must not end it
};

// All functions are thread-safe. They throw no exceptions.
struct Embedding {
  // Runs `wait`, which blocks, and returns its result. May release a lock of the runtime meanwhile,
  // and end the wait by an Interruption (internal/interruption.h).
  absl::Status (*wait)(absl::FunctionRef<absl::Status()> wait, WaitKind kind);
  // Connects as TensordApi::connect does. Options have names and texts.
  absl::Status (*connect)(const std::string& addresses,
                          const std::vector<std::pair<std::string, std::string>>& options);
  // Returns the devices of the current connection. If there is none, connects.
  absl::StatusOr<std::vector<Device>> (*devices)();
  // Returns the message of an error for users of the runtime's language.
  std::string (*message)(const absl::Status& error);
  // Checks a tensor that an op or an upload has made. Returns an error that the call then returns.
  // Null: not called.
  absl::Status (*observe)(const Tensor& made);
  // TensordApi::set_wait_hooks.
  void (*set_wait_hooks)(void* (*before)(), void (*after)(void* state));
  // TensordApi::raised.
  bool (*raised)();
  // TensordApi::to_python and from_python. The second returns false for other objects. Null: there
  // are no objects.
  void* (*to_object)(const Tensor& tensor);
  bool (*from_object)(void* object, Tensor* value);
};

// The embedding of programs without a runtime, such as programs in C. The process has one current
// connection.
extern const Embedding kPlainEmbedding;

// Sets the embedding of this copy of the library. It must exist until the process ends. Call this
// before the first call of a function of the table. Without a call, kPlainEmbedding is used.
void SetEmbedding(const Embedding& embedding);
const Embedding& TheEmbedding();

}  // namespace tensord::c
