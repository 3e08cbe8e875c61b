// Keeps a forked child from using connections that its parent made.
#pragma once

#include <atomic>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/status/status.h"

namespace tensord::internal {

// A forked child inherits the memory of its parent, but only the thread that forked. Locks that
// other threads held stay locked in the child. The child shares the parent's sockets and gRPC's
// epoll sets: everything that the child writes or registers there reaches the parent. So the
// library uses none of them in the child: every entry point that would use a connection calls
// InForkedChild() before it takes a lock.

// Set by the fork handler. Use InForkedChild() to read it.
extern std::atomic<bool> in_forked_child;

// Returns whether this process was forked after an ancestor called RecordConnect(). Costs one load.
inline bool InForkedChild() {
  return ABSL_PREDICT_FALSE(in_forked_child.load(std::memory_order_relaxed));
}

// Returns FAILED_PRECONDITION with a message that says what to do instead.
ABSL_ATTRIBUTE_COLD absl::Status ForkedError();

// Records that this process uses gRPC: in children that are forked later, InForkedChild() returns
// true. Call it before the first use of gRPC. Thread-safe.
void RecordConnect();

// Takes ownership of `object` and never destroys it. The object stays reachable, so leak checkers
// don't report it. Thread-safe. Takes no lock of its own, so a forked child may call it.
template <typename T>
void LeakObject(T object) {
  struct Node {
    T object;
    Node* next;
  };
  static std::atomic<Node*> kept{nullptr};
  Node* const node = new Node{std::move(object), kept.load()};
  while (!kept.compare_exchange_weak(node->next, node)) {
  }
}

}  // namespace tensord::internal
