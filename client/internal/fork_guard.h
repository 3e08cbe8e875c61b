// Keeps a forked child from using connections that its parent made.
#pragma once

#include <atomic>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/status/status.h"

namespace tensord::internal {

// A child inherits the memory of its parent, but only the thread that forked. Locks that another
// thread held stay locked in the child. Sockets and gRPC's epoll sets are shared with the parent:
// what the child writes to them, or registers with them, reaches the parent. So the library uses
// none of them in the child: each entry to the library checks here first, before it takes a lock.

extern std::atomic<bool> in_forked_child;

// Returns true if this process was forked after an ancestor called NoteConnect. Costs one load.
inline bool InForkedChild() {
  return ABSL_PREDICT_FALSE(in_forked_child.load(std::memory_order_relaxed));
}

// Returns FAILED_PRECONDITION with a message that says what to do instead.
ABSL_ATTRIBUTE_COLD absl::Status ForkedError();

// Call it before this process first uses gRPC. In children that are forked later, InForkedChild()
// returns true.
void NoteConnect();

// Keeps `object` until the process ends and never destroys it. It stays reachable for leak
// checkers. Thread-safe. Takes no lock of its own.
template <typename T>
void KeepForever(T object) {
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
