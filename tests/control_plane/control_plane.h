// The control plane of any number of servers, played by one within this process: it opens sessions,
// takes commands in, acknowledges and answers them, and computes nothing. What a thousand servers
// cost a client can be seen so on one machine.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::control_plane {

// While this object exists, each of its addresses is a server of its own. control_plane.cc
// defines the client library's CreateChannel, so that no address needs a socket. Thread-safe.
class ControlPlane {
 public:
  // `devices`: the names of the devices that each server lists.
  explicit ControlPlane(std::vector<std::string> devices = {"cpu:0"});
  // Once all clients are gone.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // "inproc-0:1", "inproc-1:1", …: servers named "inproc-0", "inproc-1", …
  static std::vector<std::string> Addresses(int count);

  // Over all servers.
  int64_t sessions() const;
  int64_t commands() const;
  int64_t messages() const;

  // The session that was opened as the n-th, from 0 on, is lost: its stream ends, and it can't be
  // had again.
  void Lose(int session);

 private:
  class Service;
  const std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tensord::control_plane
