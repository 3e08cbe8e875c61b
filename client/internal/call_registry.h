// The calls under way, so that all of them can be ended at once.
#pragma once

#include <grpcpp/client_context.h>

#include "absl/container/flat_hash_set.h"
#include "tensord/common/mutex.h"

namespace tensord::internal {

// Thread-safe.
class CallRegistry {
 public:
  // A call's context, registered for as long as this object lives.
  class Call {
   public:
    explicit Call(CallRegistry* registry) : registry_(registry) { registry_->Add(&context_); }
    ~Call() { registry_->Remove(&context_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    grpc::ClientContext* context() { return &context_; }

   private:
    CallRegistry* registry_;
    grpc::ClientContext context_;
  };

  // Cancels what is under way, and from now on whatever begins.
  void CancelAll() {
    MutexLock lock(&mu_);
    cancelled_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }

 private:
  void Add(grpc::ClientContext* context) {
    MutexLock lock(&mu_);
    contexts_.insert(context);
    if (cancelled_) context->TryCancel();
  }
  void Remove(grpc::ClientContext* context) {
    MutexLock lock(&mu_);
    contexts_.erase(context);
  }

  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
