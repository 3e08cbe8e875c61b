// Other servers: which may be called, how, and who may call as one.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/auth/gate.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// In the trailing metadata of a Fetch that ends with the tensor's own error.
inline constexpr char kTensorErrorKey[] = "tensord-tensor-error";

struct PeerOptions {
  // Servers that may be fetched from, "HOST:PORT": "*" as the port is any, "*.DOMAIN" any host in
  // the domain. No others are ever called.
  std::vector<std::string> peers;
  std::string advertise;                // "HOST:PORT" by which others reach this one; empty: found
  std::vector<std::string> principals;  // who may call PeerService, where callers are asked
  std::string token_file;               // with the token that peers are shown; empty: none
  // Files in PEM. TLS is spoken where there is an authority's or the server itself speaks it, which
  // then shows its own certificate where there is none here.
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  // How long a peer may be out of reach before a fetch from it gives up.
  std::chrono::seconds timeout{10};
  // Over how many connections a fetch may be spread where one is slow.
  int connections = 4;
};

// Of PeerService.
inline constexpr char kFetchMethod[] = "/tensord.v1.PeerService/Fetch";

// A completion queue for calls to others, and its thread, which waits at it only while there are
// calls: as a CallQueue with an accept queue. Its tags are QueueEvents.
class PeerQueue {
 public:
  PeerQueue() : thread_([this] { Run(); }) {}
  ~PeerQueue();  // no call may be left

  grpc::CompletionQueue* get() { return &queue_; }

  // Counts calls, each from before its first event until after its last.
  void CallBegan();
  void CallEnded();
  bool AnyCalls() const;
  // False where there are calls left at the deadline.
  bool AwaitNoCalls(std::chrono::steady_clock::time_point deadline);

 private:
  void Run();

  grpc::CompletionQueue queue_;
  mutable Mutex mu_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Thread-safe.
class Peers {
 public:
  // INVALID_ARGUMENT for flags that make no sense, or by which a token would go unencrypted to
  // another machine. Reads the files.
  static absl::StatusOr<std::unique_ptr<Peers>> Make(const PeerOptions& options,
                                                     const GateOptions& gate);

  // Whether any may be fetched from.
  bool any() const { return !options_.peers.empty(); }
  std::chrono::seconds timeout() const { return options_.timeout; }
  int connections() const { return options_.connections; }

  // PERMISSION_DENIED for an address that the operator hasn't listed.
  absl::Status CheckListed(absl::string_view address) const;

  // PERMISSION_DENIED where callers are asked who they are, and this one is no server.
  absl::Status CheckCaller(const Principal& caller) const;

  // Where a call to a peer ended as it does where the peer wants another certificate than ours:
  // that it may be so, and what to do. Empty otherwise.
  std::string Distrust(const grpc::Status& status) const;

  // The channel to a server, which must be listed; each number is a connection of its own.
  std::shared_ptr<grpc::Channel> Connect(const std::string& address, int number = 0);
  // Says who we are, for a call that is about to begin.
  void Authorize(grpc::ClientContext* call);

  // Whether it makes sense to ask a server for memory; it doesn't for a minute after that couldn't
  // be reached.
  bool MayShareWith(const std::string& address);
  void CantShareWith(const std::string& address);

  PeerQueue* queue() { return &queue_; }

 private:
  // What the files say.
  struct Files {
    std::string ca;
    std::string cert;
    std::string key;
    std::string token;
  };

  Peers(const PeerOptions& options, const GateOptions& gate);
  absl::Status Check() const;
  absl::StatusOr<Files> ReadFiles() const;
  // Looks at the files where the last look is a while ago; what can't be read stays as it was.
  void RefreshLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<grpc::Channel> MakeChannelLocked(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PeerOptions options_;  // with the server's own certificate where it is shown
  const bool asks_callers_;
  const bool use_tls_;

  Mutex mu_;
  Files files_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point looked_at_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::pair<std::string, int>, std::shared_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
  // Until when those aren't asked for memory.
  absl::flat_hash_map<std::string, std::chrono::steady_clock::time_point> apart_
      ABSL_GUARDED_BY(mu_);
  PeerQueue queue_;
};

// The address by which others reach a server: `advertise`, or the first of `listening` that is no
// Unix socket, with `host_name` in place of a wildcard. Empty where there is none.
std::string PeerAddress(const std::string& advertise, const std::vector<std::string>& listening,
                        const std::string& host_name);

}  // namespace tensord::server
