// A client's use of each method of the service. every_call_test.cc and transfer_phase_test.cc run
// these cases over networks that fail.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::fault {

// A fault of the network during a case.
struct Fault {
  std::string name;
  std::optional<proxy::CallFault> call_fault;  // without the method, which RunCase() sets
  std::chrono::microseconds delay{0};
  int64_t bytes_per_second = 0;
};

// One run of a case: a client that reaches the server through its own proxy.
struct CaseRun {
  std::string server;  // the server's own address, which bypasses the proxy
  std::unique_ptr<proxy::DelayProxy> proxy;
  ConnectOptions options;
  Client client;
  Device device;
  Tensor kept;          // eight sevens; the session holds it until its end
  bool breaks = false;  // the fault breaks connections, so an error may be the right result
  bool silent = false;  // the ends of a broken connection aren't notified
  std::string unique;   // a name that no other run uses
};

struct CallCase {
  std::string method;
  // Uses the method. Returns OK if the result is right, or if the call failed as the library's
  // headers permit. Otherwise returns what is wrong.
  std::function<absl::Status(CaseRun&)> act;
  // Runs before the fault.
  std::function<absl::Status(CaseRun&)> prepare = nullptr;
  // `act` connects the client, so there is no session before.
  bool connects = false;
  // `act` ends the session.
  bool ends_session = false;
  bool shared_memory = false;
};

// Returns at least one case for each method. If the C++ client uses a method, its case is the
// operation of the client. The cases of the other methods are raw calls.
std::vector<CallCase> CallCases();

// Transfers of several chunks, over the connection and through shared memory. The cases compare
// all bytes.
CallCase UploadCase();
CallCase DownloadCase();
CallCase SharedUploadCase();
CallCase SharedDownloadCase();

// Runs the case with this fault: connects, prepares, acts, checks the session, and closes it.
// `injected` receives whether the fault has acted. Returns what is wrong, or OK.
absl::Status RunCase(const std::string& server, const CallCase& call, const Fault& fault,
                     bool* injected);

}  // namespace tensord::fault
