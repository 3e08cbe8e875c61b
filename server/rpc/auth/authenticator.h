// Authentication: the principal of each call.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/token_file.h"
#include "tensord/server/budget.h"
#include "tensord/server/rpc/auth/certificates.h"
#include "tensord/server/rpc/auth/file_watch.h"
#include "tensord/server/rpc/auth/listeners.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/session_log.h"

namespace tensord::server {

struct AuthenticationOptions {
  std::string token_file;  // common/util/token_file.h; empty: the authenticator accepts no tokens
  TlsOptions tls;
  // True if calls from this machine need no credentials.
  bool allow_anonymous_local = false;

  // Returns whether callers must authenticate. If not, all calls are made by one anonymous
  // principal. The server then listens only on local addresses, unless its flags allow others.
  bool authenticates() const { return !token_file.empty() || !tls.client_ca_file.empty(); }
};

class Authenticator;

// The admission of one call by the authenticator. ServerCall owns it: calls Admit() before it reads
// a request, and Release() when gRPC is done with the call.
class Admission {
 public:
  Admission() = default;
  // Calls Release(), and reports to the connection that the call has ended. If Admit() returned
  // UNAUTHENTICATED and ServedAsPublic() was not called, adds 1 to a counter of
  // Authenticator::failures().
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Authenticates the caller. On failure, returns UNAUTHENTICATED; the message says what to do, and
  // repeats nothing of what the client sent. If the headers are too large, returns
  // INVALID_ARGUMENT. If the caller has too many connections, or the connection too many open
  // calls, returns RESOURCE_EXHAUSTED. If the credentials expire or are revoked before Release(),
  // or a message is too large, or the caller's unfinished requests take too many bytes, another
  // thread calls `ended` with the reason: at most once for the credentials, and once for the
  // others. `ended` must end the call, and must not block.
  absl::Status Admit(Authenticator* authenticator, grpc::ServerContext* call,
                     std::function<void(const absl::Status&)> ended);

  // If the authenticator is calling `ended`, blocks until `ended` has returned. After Release(),
  // the authenticator no longer calls `ended`. The connection may call `ended` until this object is
  // destroyed.
  void Release();

  // Returns RESOURCE_EXHAUSTED if a message of `bytes` bytes is larger than a message may be.
  absl::Status CheckMessageSize(size_t bytes) const;
  // Report events of an admitted call: a received message of `bytes` bytes no longer counts as
  // unread; a message of `bytes` bytes is being sent. Thread-safe.
  void MessageReleased(size_t bytes);
  void MessageSent(size_t bytes);
  // Reports that the handler holds a message (Connection::HoldMessage).
  void HoldMessage(int64_t bytes) {
    if (connection_ != nullptr) connection_->HoldMessage(&connection_call_, bytes);
  }
  // Report the state of the call: the handler begins to read a message; it is at work; it can't
  // process the message that it holds, and doesn't read; it has received all messages.
  void ReadBegins() { SetState(Connection::CallState::kReading); }
  void SetAtWork() { SetState(Connection::CallState::kAtWork); }
  void SetBlocked() { SetState(Connection::CallState::kBlocked); }
  void RequestComplete() { SetState(Connection::CallState::kComplete); }
  // Reports that a refused call has been served, because its request is public.
  void ServedAsPublic();
  // Reports that the call has an answer, which gRPC sends.
  void Answered() {
    if (refused_ && connection_ != nullptr) connection_->RefusedCallAnswered(&connection_call_);
  }
  // Reports that the client has cancelled the call.
  void Cancelled();

  // Returns the caller. If it hasn't been authenticated, returns null.
  const PrincipalRef& principal() const { return credentials_.principal; }
  // Returns whether the caller presented the token of an administrator.
  bool is_admin() const { return credentials_.is_admin; }

 private:
  friend class Authenticator;

  // The verified credentials of a call.
  struct Credentials {
    PrincipalRef principal;
    absl::Time expires = absl::InfiniteFuture();
    bool is_admin = false;    // the token has the flag "admin"
    TokenHash token;          // set if the principal's kind is kToken
    std::string certificate;  // a chain in PEM; set if the principal's kind is kCertificate
  };

  absl::Status Authenticate(Authenticator* authenticator, grpc::ServerContext* call,
                            std::function<void(const absl::Status&)> ended);
  // Adds the call to its connection, and charges it to its caller.
  absl::Status Add(Authenticator* authenticator, std::function<void(const absl::Status&)> ended);

  void AddCredit(int64_t bytes);
  void SetState(Connection::CallState state) {
    if (connection_ != nullptr) connection_->SetState(&connection_call_, state);
  }

  Authenticator* authenticator_ = nullptr;  // set if the credentials may end
  grpc::ServerContext* call_ = nullptr;
  std::chrono::steady_clock::time_point began_at_;  // when Admit() was called
  Listeners* listeners_ = nullptr;
  ConnectionRef connection_;  // null if the connection isn't limited
  Connection::Call connection_call_;
  // The credit that hasn't been added to the connection yet.
  std::atomic<int64_t> credit_bytes_ = 0;
  std::atomic<int64_t> credit_messages_ = 0;
  std::function<void(const absl::Status&)> ended_;
  // The counter that the destructor increments. Null means that it increments none.
  std::atomic<int64_t>* failures_ = nullptr;
  Credentials credentials_;
  bool refused_ = false;
  Charge counted_;  // as an open call of the principal
  Charge charge_;
  // The time when the authenticator called `ended_`. If it hasn't called it, there is no value.
  // Guarded by Authenticator::mu_.
  std::optional<std::chrono::steady_clock::time_point> ended_at_;
};

// Authenticates calls by tokens and certificates, and makes the principals. A thread watches the
// files of tokens and certificates, and reloads changed ones. If a file is invalid, the
// authenticator keeps the previous content and logs the error on standard error. Thread-safe.
// Outlives the calls.
class Authenticator {
 public:
  // `limits` are those of the principals (PrincipalTable).
  static absl::StatusOr<std::unique_ptr<Authenticator>> Make(const AuthenticationOptions& options,
                                                             const Limits& limits);
  ~Authenticator();

  // Sets the listeners to which the authenticator reports admitted, refused and cancelled calls.
  // Call it before the first call. The listeners outlive the calls.
  void SetListeners(Listeners* listeners) { listeners_ = listeners; }
  // Sets the log of refused callers. Call it before the first call.
  void SetLog(SessionLog* log) { log_ = log; }

  // Returns the credentials of a listener: TLS if it is configured and the address isn't a Unix
  // socket.
  std::shared_ptr<grpc::ServerCredentials> CredentialsFor(absl::string_view address);

  // Has the authenticator's thread reload the files. Doesn't wait for it.
  void Reload();

  // Returns the principals that exist.
  std::vector<PrincipalRef> principals() { return principals_.All(); }
  // Returns the budget of the host memory of all principals together.
  const BudgetRef& host_budget() const { return principals_.host_budget(); }
  // Returns the counters of the principals, also of those that no longer exist.
  std::vector<PrincipalCountersRef> principal_counters() { return principals_.counters().All(); }

  // The number of calls that were refused without valid credentials, by cause. Calls that were
  // served as public don't count.
  struct Failures {
    int64_t missing;
    int64_t invalid;
    int64_t expired;
  };
  Failures failures() const { return {missing_, invalid_, expired_}; }

 private:
  friend class Admission;
  // The content of the files. Immutable; after a change, another object replaces it.
  struct Files {
    std::shared_ptr<const TokenFile> tokens;
    std::shared_ptr<const Certificates> certificates;
  };
  using FilesRef = std::shared_ptr<const Files>;

  Authenticator(const AuthenticationOptions& options, const Limits& limits);

  FilesRef files() const;
  // `connection` is that of the call. It is null if the connection isn't limited.
  absl::StatusOr<Admission::Credentials> Authenticate(const Files& files,
                                                      const grpc::ServerContext& call,
                                                      const ConnectionRef& connection);
  absl::StatusOr<Admission::Credentials> AuthenticateToken(const TokenFile& tokens,
                                                           absl::string_view header);
  absl::StatusOr<Admission::Credentials> AuthenticateCertificate(const Certificates& certificates,
                                                                 const std::string& chain);
  // Returns the error of a call without credentials. It names those that the authenticator accepts.
  absl::Status CredentialsMissing() const;

  // Checks credentials that were accepted before. If `files` don't accept them any more, returns
  // UNAUTHENTICATED. Otherwise returns the time at which the credentials expire. If they are a
  // token, also sets the principal's weight and limits to those of the token in `files`.
  absl::StatusOr<absl::Time> Recheck(const Files& files, const Admission::Credentials& credentials);
  void Run();
  void LoadTokens();
  void LoadCertificates();
  // Replaces the files. Ends the calls whose credentials the new files don't accept.
  void SetFiles(Files files);
  // Ends the calls whose credentials have expired. Cancels calls that don't end.
  void EndExpired();
  void EndLocked(Admission* admission, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the counter of calls that are refused with this error.
  std::atomic<int64_t>* FailureCounter(const absl::Status& refused);

  const AuthenticationOptions options_;
  Listeners* listeners_ = nullptr;
  SessionLog* log_ = nullptr;
  PrincipalTable principals_;
  const PrincipalRef anonymous_;
  std::atomic<int64_t> missing_{0}, invalid_{0}, expired_{0};

  mutable Mutex mu_;
  CondVar wake_;
  FilesRef files_ ABSL_GUARDED_BY(mu_);
  // The admitted calls whose credentials may end.
  absl::flat_hash_set<Admission*> admitted_ ABSL_GUARDED_BY(mu_);
  bool reload_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Only the thread uses these.
  FileWatch token_watch_;
  FileWatch certificate_watch_;
  std::thread thread_;
};

}  // namespace tensord::server
