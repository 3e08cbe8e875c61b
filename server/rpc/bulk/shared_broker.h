// Gives the descriptors of shared regions to the clients that know their secrets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/bulk/shared_region.h"

namespace tensord::server {

// Receives datagrams on a Unix socket. If a datagram contains the secret of an offer, answers with
// the file descriptor of the offered region and removes the offer. Ignores other datagrams, and
// never waits for a client. Thread-safe.
class SharedBroker {
 public:
  // The broker's thread calls `sweep` about twice a second or more often.
  explicit SharedBroker(std::function<void()> sweep);
  ~SharedBroker();

  // Returns the socket's name in the abstract namespace. Empty if nothing can be shared: the socket
  // couldn't be bound, or TENSORD_SHARED_MEMORY=0 is set.
  const std::string& socket_name() const { return socket_name_; }

  // Offers a region. Returns the secret with which one client can get the region once.
  std::string Offer(std::shared_ptr<SharedRegion> region);
  // Removes an offer, if it still exists.
  void Withdraw(const std::string& secret);

 private:
  void Listen();
  void Run();
  void Answer();

  const std::function<void()> sweep_;
  std::string socket_name_;
  int socket_ = -1;
  int stop_fd_ = -1;  // an eventfd

  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<SharedRegion>> offers_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tensord::server
