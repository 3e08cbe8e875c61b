// Other servers (peers): which ones this server may call, how, and which callers count as servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/auth/authenticator.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// A Fetch that ends with the tensor's own error has this trailing metadata.
inline constexpr char kTensorErrorKey[] = "tensord-tensor-error";

struct PeerOptions {
  // The servers that this server may call, "HOST:PORT". The port "*" matches any port, and the host
  // "*.DOMAIN" any host in the domain. This server calls no server that isn't listed.
  std::vector<std::string> peers;
  // "HOST:PORT" by which other servers reach this one. If it is empty, PeerAddress() determines it.
  std::string advertise;
  // The principals that may call PeerService, if this server authenticates callers.
  std::vector<std::string> principals;
  std::string token_file;  // with the token for calls to peers; empty: no token
  // PEM files. If `ca_file` is set or this server serves TLS, calls to peers use TLS. If
  // `cert_file` and `key_file` are empty, the calls present this server's own certificate.
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  // How long a peer may be unreachable before a pull from it fails.
  std::chrono::seconds timeout{10};
  // The maximum number of connections of one pull. A pull uses more than one only if one is slow.
  int connections = 4;
};

// The method Fetch of PeerService.
inline constexpr char kFetchMethod[] = "/tensord.v1.PeerService/Fetch";

// A call to a peer, or a sequence of calls, that PeerQueue can cancel.
class PeerOperation {
 public:
  // Makes the operation end soon. Thread-safe. Must not call the queue.
  virtual void Cancel() = 0;

 protected:
  ~PeerOperation() = default;
};

// A completion queue for calls to peers, and its thread. The thread polls only while there is an
// operation, like that of a CallQueue with an accept queue. The tags are QueueEvents.
class PeerQueue {
 public:
  PeerQueue() : thread_([this] { Run(); }) {}
  ~PeerQueue();  // calls Stop()

  grpc::CompletionQueue* get() { return &queue_; }

  // Call BeginOperation() before an operation's first event, and EndOperation() after its last.
  // Thread-safe.
  void BeginOperation(PeerOperation* operation);
  void EndOperation(PeerOperation* operation);
  // Returns whether an operation is under way. Thread-safe.
  bool Any() const;
  // Cancels all operations, including those that begin later, and blocks until none is under way.
  // Don't call it on the queue's thread.
  void Stop();

 private:
  void Run();

  grpc::CompletionQueue queue_;
  mutable Mutex mu_;
  CondVar changed_;
  absl::flat_hash_set<PeerOperation*> operations_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Thread-safe.
class Peers {
 public:
  // Reads the files. If the options contradict each other, or a token would be sent unencrypted to
  // another machine, returns INVALID_ARGUMENT. If a file can't be read, returns its error.
  static absl::StatusOr<std::unique_ptr<Peers>> Make(const PeerOptions& options,
                                                     const AuthenticationOptions& authentication);

  // Returns whether any peer is listed.
  bool any() const { return !options_.peers.empty(); }
  std::chrono::seconds timeout() const { return options_.timeout; }
  int connections() const { return options_.connections; }

  // If the operator hasn't listed the address, returns PERMISSION_DENIED.
  absl::Status CheckListed(absl::string_view address) const;

  // If this server authenticates callers, and `caller` isn't in PeerOptions::principals, returns
  // PERMISSION_DENIED.
  absl::Status CheckCaller(const Principal& caller) const;

  // If `status` of a call to a peer suggests that the peer rejected this server's certificate,
  // returns a message that says so and what to do. Otherwise returns an empty string.
  std::string CertificateHint(const grpc::Status& status) const;

  // Returns the channel to a server, which must be listed. Each `number` has its own connection.
  std::shared_ptr<grpc::Channel> Connect(const std::string& address, int number = 0);
  // Adds this server's token to a call that has not begun.
  void Authorize(grpc::ClientContext* call);

  // Returns whether to request shared memory from a server. Returns false for a minute after
  // DisableSharingWith(), which records that the server's memory couldn't be mapped.
  bool MayShareWith(const std::string& address);
  void DisableSharingWith(const std::string& address);

  PeerQueue* queue() { return &queue_; }

 private:
  // The contents of the files.
  struct Files {
    std::string ca;
    std::string cert;
    std::string key;
    std::string token;
  };

  Peers(const PeerOptions& options, const AuthenticationOptions& authentication);
  absl::Status Check() const;
  absl::StatusOr<Files> ReadFiles() const;
  // If the last read was more than a second ago, reads the files again. If that fails, keeps the
  // old contents.
  void RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<grpc::Channel> MakeChannelLocked(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PeerOptions options_;  // with the server's own certificate if no other is given
  const bool authenticates_callers_;
  const bool use_tls_;

  Mutex mu_;
  Files files_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point files_checked_at_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::pair<std::string, int>, std::shared_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
  // By address: the time until which this server doesn't request shared memory from it.
  absl::flat_hash_map<std::string, std::chrono::steady_clock::time_point> no_sharing_until_
      ABSL_GUARDED_BY(mu_);
  PeerQueue queue_;
};

// Returns the address by which other servers reach this one: `advertise`, or the first of
// `listening` that isn't a Unix socket, with `host_name` in place of a wildcard. If there is none,
// returns an empty string.
std::string PeerAddress(const std::string& advertise, const std::vector<std::string>& listening,
                        const std::string& host_name);

}  // namespace tensord::server
