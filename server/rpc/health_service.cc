#include "tensord/server/rpc/health_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {

namespace health_v1 = grpc::health::v1;

namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

}  // namespace

// A call of Watch. Sends what is news; where more of it comes while a message is on its way, the
// last of it.
class HealthService::Watch final : public std::enable_shared_from_this<Watch> {
 public:
  static void Await(HealthService* health, CallQueue* queue) {
    const std::shared_ptr<Watch> watch(new Watch(health, queue));
    watch->context_.AsyncNotifyWhenDone(watch->done_.Begin(nullptr));
    health->rpc_.RequestWatch(&watch->context_, &watch->stream_, queue->get(),
                              watch->called_.Begin(watch));
  }

  const std::string& service() const { return request_.service(); }

  // Thread-safe.
  void Tell(ServingStatus status) {
    MutexLock lock(&mu_);
    news_ = status;
    GoOnLocked();
  }
  void End(const absl::Status& reason) {
    MutexLock lock(&mu_);
    if (!ending_) reason_ = reason;
    ending_ = true;
    GoOnLocked();
  }

 private:
  friend class CallEvent<Watch>;
  using Event = CallEvent<Watch>;

  Watch(HealthService* health, CallQueue* queue)
      : health_(health), queue_(queue), stream_(&context_) {}

  void OnCalled(bool ok) {
    if (!ok) return;  // the server shuts down; there is no call
    queue_->CallBegan();
    done_.Begin(shared_from_this());
    Await(health_, queue_);
    const absl::Status admitted = admission_.Enter(
        queue_->gate(), &context_, [this](const absl::Status& status) { End(status); });
    if (!admitted.ok()) return End(admitted);
    stream_.Read(&request_, read_.Begin(shared_from_this()));
  }

  void OnRead(bool ok) {
    if (!ok) return End(absl::InvalidArgumentError("the call has no request"));
    admission_.RequestReceived(request_.ByteSizeLong());
    MutexLock lock(&health_->mu_);
    if (health_->ended_) {
      End(ShuttingDown());
    } else {
      health_->watches_.insert(shared_from_this());
    }
    Tell(health_->StatusLocked(service()));
  }

  void OnWritten(bool ok) {
    MutexLock lock(&mu_);
    writing_ = false;
    ending_ = ending_ || !ok;
    GoOnLocked();
  }

  void OnFinished(bool /*ok*/) {}

  void OnDone(bool /*ok*/) {
    admission_.Leave();
    {
      MutexLock lock(&health_->mu_);
      health_->watches_.erase(shared_from_this());
    }
    End(absl::CancelledError("the client has gone"));
    queue_->CallEnded();
  }

  void AfterEvent() {}

  void GoOnLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return;
    if (news_ != told_ && !context_.IsCancelled()) {
      writing_ = true;
      told_ = news_;
      health_v1::HealthCheckResponse response;
      response.set_status(news_);
      stream_.Write(response, written_.Begin(shared_from_this()));
    } else if (ending_) {
      finished_ = true;
      stream_.Finish(ToGrpc(reason_), finish_.Begin(shared_from_this()));
    }
  }

  HealthService* const health_;
  CallQueue* const queue_;
  grpc::ServerContext context_;
  health_v1::HealthCheckRequest request_;
  grpc::ServerAsyncReaderWriter<health_v1::HealthCheckResponse, health_v1::HealthCheckRequest>
      stream_;
  Event called_{&Watch::OnCalled};
  Event read_{&Watch::OnRead};
  Event written_{&Watch::OnWritten};
  Event finish_{&Watch::OnFinished};
  Event done_{&Watch::OnDone};

  Admission admission_;
  Mutex mu_;  // after the service's
  ServingStatus news_ ABSL_GUARDED_BY(mu_) = health_v1::HealthCheckResponse::UNKNOWN;
  ServingStatus told_ ABSL_GUARDED_BY(mu_) = health_v1::HealthCheckResponse::UNKNOWN;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mu_);  // why it ends
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

HealthService::HealthService(grpc::ServerBuilder* builder, UnaryDispatcher* dispatcher) {
  builder->RegisterService(&rpc_);
  using Request = health_v1::HealthCheckRequest;
  dispatcher->Add<Request, health_v1::HealthCheckResponse>(
      absl::StrCat("/", Rpc::service_full_name(), "/Check"),
      {.handle = [this](const std::shared_ptr<CheckCall>& call) { Check(call); },
       // Probes have no credentials. Only admitted callers learn whether a device exists.
       .is_public = [](const Request& request) { return request.service().empty(); }});
}

void HealthService::Await(CallQueue* queue) { Watch::Await(this, queue); }

void HealthService::Check(const std::shared_ptr<CheckCall>& call) {
  const std::string& service = call->request().service();
  {
    MutexLock lock(&mu_);
    call->response()->set_status(StatusLocked(service));
  }
  if (call->response()->status() == health_v1::HealthCheckResponse::SERVICE_UNKNOWN) {
    call->Finish(absl::NotFoundError(absl::StrCat("there is no service \"", service, "\"")));
  } else {
    call->Finish(absl::OkStatus());
  }
}

HealthService::ServingStatus HealthService::StatusLocked(const std::string& service) const {
  const auto it = serving_.find(service);
  if (it == serving_.end()) return health_v1::HealthCheckResponse::SERVICE_UNKNOWN;
  return it->second ? health_v1::HealthCheckResponse::SERVING
                    : health_v1::HealthCheckResponse::NOT_SERVING;
}

void HealthService::Set(const std::string& service, bool serving) {
  MutexLock lock(&mu_);
  serving_[service] = serving;
  for (const std::shared_ptr<Watch>& watch : watches_) {
    if (watch->service() == service) watch->Tell(StatusLocked(service));
  }
}

void HealthService::EndWatches() {
  MutexLock lock(&mu_);
  ended_ = true;
  for (const std::shared_ptr<Watch>& watch : watches_) watch->End(ShuttingDown());
}

}  // namespace tensord::server
