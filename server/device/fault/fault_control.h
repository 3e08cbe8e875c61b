// A Unix socket through which a test injects faults into a server's devices.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// Reads lines such as "cpu:0 kernel 1" (FaultPlan::Apply lists the orders). If an order was
// accepted, it has taken effect, and the answer is "ok". Otherwise the answer is the error. Serves
// one connection after another:
//   printf 'cpu:0 die\n' | nc -U PATH
class FaultControl {
 public:
  // Listens at `path`, which only the file's owner can access. `plans` must outlive the object. If
  // `path` is too long, returns INVALID_ARGUMENT. If listening fails, returns UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<FaultControl>> Listen(const std::string& path,
                                                              FaultPlans* plans);
  ~FaultControl();

 private:
  FaultControl(std::string path, int listener, int stop, FaultPlans* plans);

  void Run();
  void Serve(int connection);
  // Blocks until `fd` has input. Returns false if the thread must end.
  bool AwaitInput(int fd) const;

  const std::string path_;
  const int listener_;
  const int stop_;  // an eventfd; readable if the thread must end
  FaultPlans* const plans_;
  std::thread thread_;
};

}  // namespace tensord::server
