// A server without its transport: devices, engine and sessions. It has no threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tensord/server/device/fault/fault_plan.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/tests/simulation/trace.h"

namespace tensord::simulation {

struct HostOptions {
  server::Limits limits;
  int64_t device_bytes = 0;  // of each device
  bool fusion = true;
};

// The devices are CPU devices. A FaultPlan for each makes its allocations fail.
class Host {
 public:
  static constexpr int kDevices = 2;

  Host(const HostOptions& options, Trace* trace);
  ~Host() { Stop(); }

  // Starts a server with a new epoch. The previous server must have been stopped.
  void Start();
  // Stops the server. If device memory is then in use, or host memory is charged to a principal,
  // fails the simulation.
  void Stop();

  server::ServiceContext* context() { return context_.get(); }
  server::SessionTable& sessions() { return *sessions_; }
  server::PrincipalRef Principal(int number);
  server::FaultPlan& faults(int device) { return *plans_[device]; }
  int64_t UsedBytes(int device) const;
  const HostOptions& options() const { return options_; }

  // Runs some tasks of the device's next lane. Returns false if no lane waits.
  bool RunSlice(int device);
  // Posts a task to the device's executor. Until it has run, later ops wait, including ops that
  // would otherwise run at once.
  void BlockDevice(int device);

 private:
  const HostOptions options_;
  Trace* const trace_;
  std::vector<std::unique_ptr<server::FaultPlan>> plans_;
  std::unique_ptr<server::PrincipalTable> principals_;
  // The server's principals so far. A principal's charges exist only as long as the principal, so
  // these references keep them for Stop().
  std::map<int, server::PrincipalRef> seen_;
  std::unique_ptr<server::Engine> engine_;
  std::unique_ptr<server::SessionTable> sessions_;
  std::unique_ptr<server::ServiceContext> context_;
};

}  // namespace tensord::simulation
