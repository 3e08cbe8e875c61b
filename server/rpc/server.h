// The gRPC server: addresses, services, limits, health, drain.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/collective/communicator_factory.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/memory_reclaimer.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/memory_reserve.h"
#include "tensord/server/metrics/snapshot.h"
#include "tensord/server/rpc/auth/authenticator.h"
#include "tensord/server/rpc/auth/listeners.h"
#include "tensord/server/rpc/bulk/bulk_service.h"
#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/health_service.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/pull_table.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/rpc/unary/unary_methods.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/session_log.h"
#include "tensord/server/session/session_table.h"

namespace tensord::server {

struct ServerOptions {
  // "127.0.0.1:50051", "[::1]:0", "unix:/run/tensord.sock". With port 0, the system chooses a free
  // one.
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Tokens and certificates.
  AuthenticationOptions authentication;
  // If false, Start() fails for an address that other machines can reach, unless the server has
  // both TLS and authentication.
  bool allow_insecure_remote = false;
  bool reflection = false;
  // Access to and from other servers.
  PeerOptions peers;
  Limits limits;
  // gRPC's own limit of the message bytes that it holds for all callers together (a
  // grpc::ResourceQuota). 0 means no limit. If it is reached, gRPC cancels calls of its own choice.
  // So it must be far more than the connections hold in normal use.
  int64_t grpc_quota_bytes = 0;
  // How long the threads of the main queues poll for the next event before they sleep.
  int spin_microseconds = 0;
  // If true, consecutive elementwise ops may run as one kernel.
  bool fusion = true;
  // If true, a device may run programs as graphs, such as CUDA graphs.
  bool graphs = true;
  // The network of groups of devices, as for CollectiveNetwork::Find(), or "off". If it is empty,
  // it is the loopback network if every address in `listen` is local, otherwise off.
  std::string collectives;
  // The makers of the communicators of groups, by kind of device.
  CommunicatorMakers communicator_makers;
  // The kinds of devices that this host doesn't have. GetServerInfo lists them.
  std::vector<UnavailableKind> unavailable_kinds;
  // If true, the server logs each session and each refused caller on standard error.
  bool log_sessions = false;
  // If this isn't null, a thread of the engine calls it when several restarts of a lost device have
  // failed, and again after further ones. After an illegal address, for example, CUDA may need a new
  // process. `all` tells whether this holds for all devices that can be lost.
  std::function<void(bool all)> on_not_restarted;
};

class Server {
 public:
  // Starts a server. When this function returns OK, the server serves. If the options conflict, or
  // an address isn't allowed, returns INVALID_ARGUMENT or FAILED_PRECONDITION. If an address can't
  // be bound, returns UNAVAILABLE. If a file of tokens or certificates can't be used, returns the
  // reason.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, std::vector<std::unique_ptr<Device>> devices);

  ~Server();  // calls Shutdown() without a grace period

  // Returns the bound addresses, with the ports that the system chose.
  const std::vector<std::string>& addresses() const { return listeners_.addresses(); }
  Engine& engine() { return engine_; }
  SessionTable& sessions() { return sessions_; }
  // Makes the authenticator's thread reload the files of tokens and certificates. Doesn't wait for
  // it.
  void Reload() { authenticator_->Reload(); }

  // Adds a sample for each metric (rpc/collect_metrics.h). Call it from one thread at a time, also
  // during Shutdown().
  void CollectMetrics(metrics::Snapshot* snapshot);

  // Drains the server: reports NOT_SERVING, refuses new connections, and lets the accepted work
  // finish for at most `grace`. Then cancels the rest and closes all sessions. Blocks until all
  // calls have ended. Not thread-safe. Further calls do nothing.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  Server(const ServerOptions& options, std::unique_ptr<Authenticator> authenticator,
         std::unique_ptr<Peers> peers, std::vector<std::unique_ptr<Device>> devices);
  absl::Status Listen(const ServerOptions& options);
  absl::Status OpenCollectives(const ServerOptions& options);
  std::vector<CallQueue*> AllQueues() const;
  // Runs `then` after all queues have handled their earlier events. Doesn't block.
  void AfterEarlierEvents(std::function<void()> then);
  void SetServing(bool serving);
  // Reports the health of each device and of the server, which serves as long as any device does.
  void ReportHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_mu_);
  void OnDeviceEvent(DeviceSlot& slot, DeviceEvent event);
  // Calls on_not_restarted_, if there is one.
  void ReportNotRestarted(const DeviceSlot& slot);
  // Returns whether a call other than SessionStream uses a session, or a pull from another server
  // is active.
  bool HasSessionCalls() const;
  // Returns whether any call is open.
  bool HasOpenCalls() const;
  void EndQueues(std::chrono::steady_clock::time_point grace_end);

  const std::chrono::system_clock::time_point started_at_ = std::chrono::system_clock::now();
  // Each member outlives the members after it.
  const std::unique_ptr<SessionLog> session_log_;  // null unless sessions are logged
  const std::unique_ptr<Authenticator> authenticator_;
  Listeners listeners_;
  std::vector<std::shared_ptr<grpc::ServerCredentials>> credentials_;
  Engine engine_;
  MemoryReserve memory_reserve_;
  MemoryReclaimer memory_reclaimer_;
  std::unique_ptr<Collectives> collectives_;  // null if this server takes no part in groups
  SessionTable sessions_;
  WorkerPool workers_;
  WorkerPool message_workers_;
  WorkerPool closer_{1};  // for Shutdown(), during which the system may refuse to start a thread
  ServiceContext context_;
  const std::unique_ptr<Peers> peers_;
  PullTable pulls_;
  UnaryMethods unary_methods_;
  HealthService health_;
  BulkService bulk_;
  CallDispatcher dispatcher_;
  const std::function<void(bool)> on_not_restarted_;
  Mutex health_mu_;
  bool serving_ ABSL_GUARDED_BY(health_mu_) = false;
  std::vector<bool> devices_serving_ ABSL_GUARDED_BY(health_mu_);
  std::vector<bool> devices_not_restarted_ ABSL_GUARDED_BY(health_mu_);
  std::vector<std::unique_ptr<CallQueue>> queues_;
  std::unique_ptr<grpc::Server> grpc_server_;
};

}  // namespace tensord::server
