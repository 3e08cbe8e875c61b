// The server without its transport: devices, engine and sessions, without a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensord/server/device/fault/fault_plan.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/tests/simulation/journal.h"

namespace tensord::simulation {

struct HostOptions {
  server::Limits limits;
  int64_t device_bytes = 0;  // of each device
  bool fusion = true;
};

// The devices are the CPU's, which compute as they always do, behind a FaultPlan each.
class Host {
 public:
  static constexpr int kDevices = 2;

  Host(const HostOptions& options, Journal* journal);
  ~Host() { Stop(); }

  // A server of a new epoch. Of the one before nothing may be left.
  void Start();
  // Ends the server; fails where it leaves memory behind.
  void Stop();

  server::ServiceContext* context() { return context_.get(); }
  server::SessionTable& sessions() { return *sessions_; }
  server::PrincipalRef Principal(int number);
  server::FaultPlan& faults(int device) { return *plans_[device]; }
  int64_t UsedBytes(int device) const;
  const HostOptions& options() const { return options_; }

  // Runs the next lane's turn of the device's executor. Returns false if no lane waits.
  bool RunTurn(int device);
  // Until that is done ops of this device wait, those also that would have run at once.
  void Hold(int device);

 private:
  const HostOptions options_;
  Journal* const journal_;
  std::vector<std::unique_ptr<server::FaultPlan>> plans_;
  std::unique_ptr<server::PrincipalTable> principals_;
  std::unique_ptr<server::Engine> engine_;
  std::unique_ptr<server::SessionTable> sessions_;
  std::unique_ptr<server::ServiceContext> context_;
};

}  // namespace tensord::simulation
