// The gRPC server: addresses, services, limits, health, drain.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/collective/communicator.h"
#include "tensord/server/device/device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/rpc/auth/gate.h"
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
  // "127.0.0.1:50051", "[::1]:0", "unix:/run/tensord.sock"; port 0 takes a free one.
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Tokens and certificates.
  GateOptions gate;
  // Without it addresses that other machines can reach are served with TLS and to callers who have
  // shown who they are, or not at all.
  bool allow_insecure_remote = false;
  bool reflection = false;
  // Other servers.
  PeerOptions peers;
  Limits limits;
  // How long threads that serve session streams look for the next message before they sleep.
  int spin_microseconds = 0;
  // Whether elementwise ops that follow one another may run as one kernel.
  bool fusion = true;
  // Whether programs may run as graphs of their device's.
  bool graphs = true;
  // What groups of devices talk over, as CollectiveNetwork::Find takes it, or "off". Empty: the
  // loopback network where nothing else is listened on, otherwise off.
  std::string collectives;
  // Make members of groups, by kind of device.
  CommunicatorMakers communicator_makers;
  // The kinds of devices that this host doesn't have, for clients.
  std::vector<UnavailableKind> unavailable_kinds;
  // Whether standard error is told of each session and of each caller that is refused.
  bool log_sessions = false;
};

class Server {
 public:
  // Serves at once. INVALID_ARGUMENT or FAILED_PRECONDITION for an address that may not be served,
  // UNAVAILABLE for one that can't be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, std::vector<std::unique_ptr<Device>> devices);

  ~Server();  // Shutdown with no grace

  // As bound: port 0 replaced by the port taken.
  const std::vector<std::string>& addresses() const { return listeners_.addresses(); }
  Engine& engine() { return engine_; }
  SessionTable& sessions() { return sessions_; }
  // Reads the files of tokens and certificates now.
  void Reload() { gate_->Reload(); }

  // Reports NOT_SERVING, takes nothing new in, lets what was accepted finish for at most `grace`,
  // then ends it and frees everything. Not thread-safe; further calls do nothing.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  Server(const ServerOptions& options, std::unique_ptr<Gate> gate, std::unique_ptr<Peers> peers,
         std::vector<std::unique_ptr<Device>> devices);
  absl::Status Listen(const ServerOptions& options);
  absl::Status OpenCollectives(const ServerOptions& options);
  void SetServing(bool serving);
  // Health of each device, and of the whole: it serves as long as any device does.
  void TellHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_mu_);
  void DeviceChanged(DeviceSlot& slot, bool serving);
  bool HasCalls() const;  // besides streams
  bool AnyCalls() const;
  void EndQueues(std::chrono::steady_clock::time_point grace_end);

  // In order of construction: each outlives what follows it.
  const std::unique_ptr<SessionLog> session_log_;  // null where nothing is told
  const std::unique_ptr<Gate> gate_;
  Listeners listeners_;
  std::vector<std::shared_ptr<grpc::ServerCredentials>> credentials_;
  Engine engine_;
  std::unique_ptr<Collectives> collectives_;  // null where there are none
  SessionTable sessions_;
  WorkerPool workers_;
  ServiceContext context_;
  const std::unique_ptr<Peers> peers_;
  PullTable pulls_;
  UnaryMethods unary_methods_;
  HealthService health_;
  BulkService bulk_;
  CallDispatcher dispatcher_;
  Mutex health_mu_;
  bool serving_ ABSL_GUARDED_BY(health_mu_) = false;
  std::vector<bool> devices_serving_ ABSL_GUARDED_BY(health_mu_);
  std::vector<std::unique_ptr<CallQueue>> queues_;
  std::unique_ptr<grpc::Server> grpc_server_;
};

}  // namespace tensord::server
