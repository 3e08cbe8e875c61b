// Who calls, and whether they may.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <functional>
#include <memory>
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
#include "tensord/server/rpc/auth/certificates.h"
#include "tensord/server/rpc/auth/file_watch.h"
#include "tensord/server/rpc/auth/listeners.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/session_log.h"

namespace tensord::server {

struct GateOptions {
  std::string token_file;  // common/util/token_file.h; empty: no tokens are taken
  TlsOptions tls;
  // Calls from this machine need no credentials, though others do.
  bool allow_anonymous_local = false;

  // Whether anybody is asked who they are. Otherwise everybody is let in as the one anonymous
  // principal: the server then listens where this machine alone reaches it, or was told otherwise.
  bool authenticates() const { return !token_file.empty() || !tls.client_ca_file.empty(); }
};

class Gate;

// The admission of one call by the gate: a member of ServerCall, which enters before it looks at
// anything that the call brings, and leaves when gRPC is done with the call.
class Admission {
 public:
  Admission() = default;
  // Calls Leave(), and reports to the listeners that the call has ended.
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // UNAUTHENTICATED, in words that say what to do and repeat nothing of what was sent, where the
  // caller is nobody. Where what it has shown ends before Leave() (a token expires, or is taken out
  // of the file) `ended` is called once with the reason, from the gate's thread: it ends the call
  // and doesn't wait for anything.
  absl::Status Enter(Gate* gate, grpc::ServerContext* call,
                     std::function<void(const absl::Status&)> ended);

  // If `ended` is running, blocks until it has returned. It isn't called from then on.
  void Leave();

  // Reports that the first or only request of an admitted call has been received. `bytes`: its
  // encoded size. Later calls have no effect.
  void RequestReceived(size_t bytes);
  // Reports that an admitted call uses a session. The server trusts its connection from now on.
  void SessionUsed();
  // Reports that a refused call has been served, because its request is public.
  void ServedAsPublic();
  // Reports that the client has cancelled the call.
  void Cancelled();

  // Who calls; null where the call wasn't let in.
  const PrincipalRef& principal() const { return pass_.principal; }

 private:
  friend class Gate;

  // What somebody is let in by.
  struct Pass {
    PrincipalRef principal;
    absl::Time expires = absl::InfiniteFuture();
    bool by_token = false;
    TokenHash token;          // where it is by one
    std::string certificate;  // a chain in PEM; empty where it isn't by one
  };

  absl::Status ShowPass(Gate* gate, grpc::ServerContext* call,
                        std::function<void(const absl::Status&)> ended);

  Gate* gate_ = nullptr;  // where it has to be told of an end
  grpc::ServerContext* call_ = nullptr;
  Listeners* listeners_ = nullptr;
  Listeners::CallState state_ = Listeners::CallState::kNotCounted;
  Listeners::Clock::time_point began_at_;
  std::function<void(const absl::Status&)> ended_;
  Pass pass_;
  bool told_ = false;                              // the gate's, under its lock
  std::chrono::steady_clock::time_point told_at_;  // likewise
};

// Knows the tokens and certificates, looks after changes of their files with a thread of its own,
// and makes the principals. A bad file changes nothing, and is told on standard error. Thread-safe;
// outlives the calls.
class Gate {
 public:
  static absl::StatusOr<std::unique_ptr<Gate>> Make(const GateOptions& options);
  ~Gate();

  // Sets the listeners to which the gate reports admitted, refused and cancelled calls. Call it
  // before the first call. The listeners outlive the calls.
  void SetListeners(Listeners* listeners) { listeners_ = listeners; }
  // Sets the log of refused callers. Call it before the first call.
  void SetLog(SessionLog* log) { log_ = log; }

  // For a listener on "HOST:PORT": TLS where it is configured. None on a Unix socket.
  std::shared_ptr<grpc::ServerCredentials> CredentialsFor(absl::string_view address);

  // Reads the files now.
  void Reload();

 private:
  friend class Admission;
  // What the files say. Immutable; a change makes another.
  struct Files {
    std::shared_ptr<const TokenFile> tokens;
    std::shared_ptr<const Certificates> certificates;
  };
  using FilesRef = std::shared_ptr<const Files>;

  explicit Gate(const GateOptions& options);

  FilesRef files() const;
  absl::StatusOr<Admission::Pass> Identify(const Files& files, const grpc::ServerContext& call);
  absl::StatusOr<Admission::Pass> ByToken(const TokenFile& tokens, absl::string_view header);
  absl::StatusOr<Admission::Pass> ByCertificate(const Certificates& certificates,
                                                const std::string& chain);
  absl::Status NobodyCalls() const;

  // Whether who was let in by `pass` would be now: until when.
  absl::StatusOr<absl::Time> Judge(const Files& files, const Admission::Pass& pass);
  void Run();
  void LoadTokens();
  void LoadCertificates();
  void TakeOver(Files files);
  void EndThoseThatExpired();
  void TellLocked(Admission* admission, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const GateOptions options_;
  Listeners* listeners_ = nullptr;
  SessionLog* log_ = nullptr;
  PrincipalTable principals_;
  const PrincipalRef anonymous_;

  mutable Mutex mu_;
  CondVar wake_;
  FilesRef files_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<Admission*> inside_ ABSL_GUARDED_BY(mu_);  // those that may have to be told
  bool reload_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // The thread's.
  FileWatch token_watch_;
  FileWatch certificate_watch_;
  std::thread thread_;
};

}  // namespace tensord::server
