// What a language's runtime adds to the C interface if the library is a part of its extension
// module. Python's is in client/python/tensord/_core/embedding.cc.
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
  kUninterrupted,  // no signal may end it
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
  // Looks at a tensor that an op has made, for debugging. Null: nothing looks.
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

// That of programs without a runtime, such as those in C. The process has one connection.
extern const Embedding kPlainEmbedding;

// Makes `embedding`, which must exist until the process ends, the embedding of this copy of the
// library. Call it before the first call of another function of the table. Without a call it is
// kPlainEmbedding.
void SetEmbedding(const Embedding& embedding);
const Embedding& TheEmbedding();

}  // namespace tensord::c
