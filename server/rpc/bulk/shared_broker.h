// Hands shared regions to the clients they are meant for.
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

// Thread-safe. Listens on a Unix socket for datagrams that bring a secret, and answers each good
// one, once, with the file descriptor of its region. Whatever else comes is dropped; nobody is
// waited for.
class SharedBroker {
 public:
  // `sweep` is called from the broker's thread, about twice a second.
  explicit SharedBroker(std::function<void()> sweep);
  ~SharedBroker();

  // In the abstract namespace; empty where there is no such socket, or TENSORD_SHARED_MEMORY=0 is
  // set, and nothing can be shared.
  const std::string& socket_name() const { return socket_name_; }

  // The secret by which `region` may be fetched, once.
  std::string Offer(std::shared_ptr<SharedRegion> region);
  void Withdraw(const std::string& secret);

 private:
  void Listen();
  void Run();
  void Answer();

  const std::function<void()> sweep_;
  std::string socket_name_;
  int socket_ = -1;
  int stop_ = -1;  // an eventfd

  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<SharedRegion>> offers_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tensord::server
