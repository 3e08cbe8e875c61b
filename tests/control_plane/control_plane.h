// A test double for the control plane of any number of servers, in this process. It opens sessions,
// and receives, acknowledges and answers commands, but computes nothing. With it a test on one
// machine measures what a thousand servers cost a client.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::control_plane {

// While this object exists, each of its addresses stands for a separate server. control_plane.cc
// replaces the client library's CreateChannel, so that no address needs a socket. Thread-safe.
class ControlPlane {
 public:
  // `devices` are the names of the devices that each server lists.
  explicit ControlPlane(std::vector<std::string> devices = {"cpu:0"});
  // All clients must have been destroyed before.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // Returns "inproc-0:1", "inproc-1:1", …: the addresses of servers named "inproc-0", "inproc-1", …
  static std::vector<std::string> Addresses(int count);

  // These are sums over all servers.
  int64_t sessions() const;
  int64_t commands() const;
  int64_t messages() const;

  // Loses the session that was opened as number `session`, counted from 0: its streams end with
  // NOT_FOUND, and a new stream can't attach to it.
  void Disconnect(int session);

 private:
  class Service;
  const std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tensord::control_plane
