// Several servers seen as one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/client.h"
#include "tensord/client/device.h"

namespace tensord {

struct ClusterOptions {
  // Of each connection; connections are made at the same time.
  ConnectOptions connect;
  // Do without servers that can't be reached, as long as one can.
  bool allow_missing = false;
  // Do without any: servers() says how each is.
  bool allow_none = false;
};

// How one server of a cluster is.
enum class ServerState {
  kConnected,
  kReconnecting,  // the connection broke, another is being made: what is there isn't lost yet
  kLost,          // with what was there; status says why
};

// "connected", "reconnecting", "lost".
std::string ServerStateWord(ServerState state);

struct ClusterServer {
  std::string name;     // "gpu-a"
  std::string address;  // "gpu-a:50051"
  ServerState state = ServerState::kLost;
  absl::Status status;  // why it is lost
  Client client;        // for what is asked of this server alone; empty where it was never reached
};

// A connection to each of several servers, with a session there, whose devices are named as one:
// "gpu-a/cuda:0". Tensors on devices of different servers are used as those on different devices of
// one are: an op runs where its inputs are, Tensor::To copies, from server to server.
//
// What becomes of one server is told by what lives there (its tensors fail, as Client says) and by
// servers(); nothing else is disturbed. A value: copies share the connections. Thread-safe.
class Cluster {
 public:
  // No servers: every call fails with FAILED_PRECONDITION.
  Cluster() = default;

  // A server for each address, named after its host, or after host and port where several have the
  // host ("127.0.0.1:50051"), or the whole address of a Unix socket. The error names every server
  // that can't be reached, with the reason. INVALID_ARGUMENT for an address that comes twice.
  static absl::StatusOr<Cluster> Connect(const std::vector<std::string>& addresses,
                                         const ClusterOptions& options = {});
  // Addresses by commas; or one "host:port" whose host resolves to several addresses (a headless
  // service, say): a server for each, named after it. With TLS, certificates must then be good for
  // the host, unless ConnectOptions::tls says for what. Empty: what TENSORD_SERVERS holds in the
  // environment, or, where that isn't set, TENSORD_SERVER.
  static absl::StatusOr<Cluster> Connect(absl::string_view addresses,
                                         const ClusterOptions& options = {});

  // In the order of the addresses, as they are now. Doesn't ask them.
  std::vector<ClusterServer> servers() const;
  // By name or address; NOT_FOUND naming those that are there.
  absl::StatusOr<Client> server(absl::string_view name) const;

  // Of all servers that were reached, in their order.
  std::vector<Device> devices() const;
  // "gpu-a/cuda:1"; "gpu-a/cuda" is "gpu-a/cuda:0". A name without a server is the first such
  // device of any. NOT_FOUND, naming those that are there, where there is none.
  absl::StatusOr<Device> device(absl::string_view name) const;
  // Rejects nullptr, which would otherwise convert to an absl::string_view.
  absl::StatusOr<Device> device(std::nullptr_t) const = delete;
  // Returns devices()[index]. If `index` is out of range, returns OUT_OF_RANGE with the number of
  // devices. If the cluster has no servers, returns FAILED_PRECONDITION.
  absl::StatusOr<Device> device(int index) const;
  // Returns the GPU with index `i` among the GPUs of devices(). If there is none, returns the cpu:0
  // of the first server that has one. If no server has one, returns a Device that isn't valid().
  Device TryDevice(int i = 0) const;
  // Every GPU, or every server's cpu:0 where there is none at all.
  std::vector<Device> TryAllDevices() const;

  // Waits until everything sent so far has run, on all servers. The first error, as
  // Client::Synchronize has it, with the server's name; the others are waited for all the same.
  absl::Status Synchronize() const;

  // Closes all sessions.
  void Close();

 private:
  struct State;
  explicit Cluster(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace tensord
