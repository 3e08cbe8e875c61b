// Keeps track of the calls under way on a connection, to cancel all of them.
#pragma once

#include <grpcpp/client_context.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// Thread-safe. Must outlive its Calls.
class CallRegistry {
 public:
  explicit CallRegistry(Credentials credentials) : credentials_(std::move(credentials)) {}

  const Credentials& credentials() const { return credentials_; }

  // The context of a call, with credentials. It is registered while this object exists.
  class Call {
   public:
    explicit Call(CallRegistry* registry) : registry_(registry) {
      registry_->credentials_.AddTo(&context_);
      registry_->Add(&context_);
    }
    ~Call() { registry_->Remove(&context_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

    // Marks whether the call's transfer has begun, so that it no longer waits for commands of the
    // session's stream. CancelWaiting doesn't cancel such a call.
    void SetUnderWay(bool under_way) { registry_->SetUnderWay(&context_, under_way); }

   private:
    CallRegistry* registry_;
    grpc::ClientContext context_;
  };

  // Cancels every call, and every later one.
  void CancelAll() {
    MutexLock lock(&mu_);
    cancelled_ = true;
    for (const auto& [context, under_way] : contexts_) context->TryCancel();
  }
  // Cancels every call that isn't marked as under way, and every later call. A server that shuts
  // down finishes the calls that are under way.
  void CancelWaiting() {
    MutexLock lock(&mu_);
    cancelled_ = true;
    for (const auto& [context, under_way] : contexts_) {
      if (!under_way) context->TryCancel();
    }
  }

 private:
  void Add(grpc::ClientContext* context) {
    MutexLock lock(&mu_);
    contexts_.emplace(context, false);
    if (cancelled_) context->TryCancel();
  }
  void Remove(grpc::ClientContext* context) {
    MutexLock lock(&mu_);
    contexts_.erase(context);
  }
  void SetUnderWay(grpc::ClientContext* context, bool under_way) {
    MutexLock lock(&mu_);
    contexts_[context] = under_way;
  }

  const Credentials credentials_;
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The calls, and whether each is under way.
  absl::flat_hash_map<grpc::ClientContext*, bool> contexts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
