// A Unix socket by which a test steers the faults of a daemon's devices.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "tensord/server/device/fault/fault_plan.h"

namespace tensord::server {

// Takes lines such as "cpu:0 kernel 1" (FaultPlan::Take says which there are) and answers each with
// "ok", or with what is wrong, once it is in force. One connection after another:
//   printf 'cpu:0 die\n' | nc -U PATH
class FaultControl {
 public:
  // Listens at `path`, open to its owner alone. `plans` outlives it. UNAVAILABLE where it can't.
  static absl::StatusOr<std::unique_ptr<FaultControl>> Listen(const std::string& path,
                                                              FaultPlans* plans);
  ~FaultControl();

 private:
  FaultControl(std::string path, int listener, int stop, FaultPlans* plans);

  void Run();
  void Serve(int connection);
  // Waits for something to come in; false where it is time to end.
  bool AwaitInput(int fd) const;

  const std::string path_;
  const int listener_;
  const int stop_;  // an eventfd, readable once it is time to end
  FaultPlans* const plans_;
  std::thread thread_;
};

}  // namespace tensord::server
