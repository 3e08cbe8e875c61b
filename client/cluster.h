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
  // Options of each connection. Connections are made in parallel.
  ConnectOptions connect;
  // Connect succeeds if at least one server can be reached.
  bool allow_missing = false;
  // Connect succeeds even if no server can be reached: servers() has each server's error.
  bool allow_none = false;
};

// The state of one server of a cluster.
enum class ServerState {
  kConnected,
  kReconnecting,  // the connection broke and is being made again; the session's tensors still exist
  kLost,          // the session and its tensors are lost; ClusterServer::status says why
};

// "connected", "reconnecting", "lost".
std::string ServerStateName(ServerState state);

struct ClusterServer {
  std::string name;     // "gpu-a"
  std::string address;  // "gpu-a:50051"
  ServerState state = ServerState::kLost;
  absl::Status status;  // why it is lost
  Client client;        // of this server; not connected if the server was never reached
};

// A connection to each of several servers, with a session at each, and one list of their devices:
// "gpu-a/cuda:0". Tensors on different servers are used like tensors on different devices of one
// server: an op runs where its inputs are, and Tensor::To copies from server to server.
//
// If a server is lost, its tensors fail as Client says, and servers() reports it; the other servers
// are not affected. A Cluster is a value: copies share the connections. Thread-safe.
class Cluster {
 public:
  // Makes a Cluster without servers. Every call fails with FAILED_PRECONDITION.
  Cluster() = default;

  // Connects to the server at each address. A server's name is its host, or host and port
  // ("127.0.0.1:50051") if several addresses have the same host, or the whole address of a Unix
  // socket. Blocks. If servers can't be reached, the error names each of them with the reason, and
  // has the code of the first. If an address is malformed or occurs twice, returns
  // INVALID_ARGUMENT.
  static absl::StatusOr<Cluster> Connect(const std::vector<std::string>& addresses,
                                         const ClusterOptions& options = {});
  // Does the same for addresses that are separated by commas. A single "host:port" may name a host
  // that resolves to several addresses (a headless service, for example). Each address is then a
  // server with that address as its name. With TLS, the servers' certificates must then be valid
  // for the host, unless TlsOptions::server_name is set. If `addresses` is empty, uses
  // TENSORD_SERVERS from the environment, or else TENSORD_SERVER.
  static absl::StatusOr<Cluster> Connect(absl::string_view addresses,
                                         const ClusterOptions& options = {});

  // Returns the servers in the order of the addresses, with their current states. Doesn't contact
  // them.
  std::vector<ClusterServer> servers() const;
  // Returns the client of the server with this name or address. If there is none, returns NOT_FOUND
  // with the names that exist. If the server was never reached, returns its error.
  absl::StatusOr<Client> server(absl::string_view name) const;

  // Returns the devices of all servers that were reached, in the order of the servers.
  std::vector<Device> devices() const;
  // Returns the device named "gpu-a/cuda:1"; "gpu-a/cuda" is "gpu-a/cuda:0". A name without a
  // server means the first such device. If there is none, returns NOT_FOUND with the names that
  // exist. If the server was never reached, returns its error. If `name` is malformed, returns
  // INVALID_ARGUMENT.
  absl::StatusOr<Device> device(absl::string_view name) const;
  // Rejects nullptr, which would otherwise convert to an absl::string_view.
  absl::StatusOr<Device> device(std::nullptr_t) const = delete;
  // Returns devices()[index]. If `index` is out of range, returns OUT_OF_RANGE with the number of
  // devices. If the cluster has no servers, returns FAILED_PRECONDITION.
  absl::StatusOr<Device> device(int index) const;
  // Returns the number of devices of a kind in devices(), such as DeviceKind::kCuda.
  int DeviceCount(DeviceKind kind) const;
  // Returns whether a server that was reached has a device of a kind.
  bool IsAvailable(DeviceKind kind) const { return DeviceCount(kind) > 0; }
  // Returns the GPU with index `i` among the GPUs of devices(). Every device that isn't a CPU
  // counts as a GPU. If there is none, returns the cpu:0 of the first server that has one. If no
  // server has one, returns a Device that isn't valid().
  Device TryDevice(int i = 0) const;
  // Returns every GPU. If no server has one, returns the cpu:0 of every server.
  std::vector<Device> TryAllDevices() const;

  // Waits until everything sent so far has run on all servers that were reached. Returns the first
  // error, as Client::Synchronize does, with the server's name before it.
  absl::Status Synchronize() const;

  // Ends all sessions, in parallel (Client::Close).
  void Close();

 private:
  struct State;
  explicit Cluster(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace tensord
