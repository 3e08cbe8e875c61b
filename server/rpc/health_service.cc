#include "tensord/server/rpc/health_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/chunk_codec.h"

namespace tensord::server {

namespace health_v1 = grpc::health::v1;

// A call of Watch. Sends each status that is set. If several are set during one write, sends only
// the last of them.
class HealthService::Watch final : public ServerCall {
 public:
  Watch(HealthService* health, std::unique_ptr<GrpcCall> grpc_call)
      : ServerCall(std::move(grpc_call)), health_(health) {}

  const std::string& service() const { return request_.service(); }

  // Sends `status` unless the client has it. Thread-safe.
  void Report(ServingStatus status) {
    MutexLock lock(&mu_);
    status_ = status;
    ProceedLocked();
  }

 private:
  void OnAdmitted() override { StartRead(&request_bytes_); }

  void OnRead(bool ok) override {
    if (done()) return;
    if (!ok || !DecodeMessage(&request_bytes_, &request_).ok()) {
      return End(absl::InvalidArgumentError("the call has no request"));
    }
    {
      MutexLock lock(&health_->mu_);
      health_->watches_.insert(std::static_pointer_cast<Watch>(shared_from_this()));
      Report(health_->StatusLocked(service()));
    }
    if (!Join(health_->streams_)) OnDrain();
  }

  void OnWritten(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    ending_ = ending_ || !ok;
    ProceedLocked();
  }

  void OnRevoked(const absl::Status& status) override { End(status); }

  void OnDrain() override { End(absl::UnavailableError("the server is shutting down")); }

  void OnDone() override {
    {
      MutexLock lock(&health_->mu_);
      health_->watches_.erase(std::static_pointer_cast<Watch>(shared_from_this()));
    }
    {
      MutexLock lock(&mu_);
      client_gone_ = true;
    }
    End(ClientDisconnected());
  }

  // Ends the call with `reason` after it has sent the last status.
  void End(const absl::Status& reason) {
    MutexLock lock(&mu_);
    if (!ending_) reason_ = reason;
    ending_ = true;
    ProceedLocked();
  }

  void ProceedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished()) return;
    if (status_ != sent_ && !client_gone_) {
      writing_ = true;
      sent_ = status_;
      health_v1::HealthCheckResponse response;
      response.set_status(status_);
      StartWrite(EncodeMessage(response));
    } else if (ending_) {
      Finish(reason_);
    }
  }

  HealthService* const health_;
  grpc::ByteBuffer request_bytes_;
  health_v1::HealthCheckRequest request_;

  Mutex mu_;  // locked after HealthService::mu_
  ServingStatus status_ ABSL_GUARDED_BY(mu_) = health_v1::HealthCheckResponse::UNKNOWN;
  ServingStatus sent_ ABSL_GUARDED_BY(mu_) = health_v1::HealthCheckResponse::UNKNOWN;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mu_);  // why the call ends
};

CallFactory HealthService::MakeWatchFactory() { return MakeCallFactory<Watch>(this); }

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
    if (watch->service() == service) watch->Report(StatusLocked(service));
  }
}

}  // namespace tensord::server
