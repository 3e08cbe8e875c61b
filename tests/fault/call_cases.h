// Every method of the service, as something that a client does: what the faults of
// every_call_test.cc and transfer_phase_test.cc happen to.
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

// What is done to the network while a client does what it does.
struct Fault {
  std::string name;
  std::optional<proxy::Trap> trap;  // but for its method
  std::chrono::microseconds delay{0};
  int64_t bytes_per_second = 0;
};

// A client with a network of its own.
struct Visit {
  std::string server;  // without the network
  std::unique_ptr<proxy::DelayProxy> proxy;
  ConnectOptions options;
  Client client;
  Device device;
  Tensor kept;          // what the session holds all the time: eight sevens
  bool breaks = false;  // the fault breaks connections: what can't be mended may be an error
  bool silent = false;  // and tells nobody
  std::string unique;   // a word that is no other visit's
};

// What a case does returns OK where its outcome is right, or is the error that the library's
// headers promise; otherwise what is wrong.
struct CallCase {
  std::string method;
  std::function<absl::Status(Visit&)> act;
  // Before the fault.
  std::function<absl::Status(Visit&)> prepare = nullptr;
  // Connecting is a part of it: there is no client, and no session, before.
  bool connects = false;
  // The session isn't there afterwards.
  bool ends_session = false;
  bool shared_memory = false;
};

// Each of them at least once: those that the C++ client uses by what it uses them for, the others
// by themselves.
std::vector<CallCase> CallCases();

// Transfers of several chunks, over the connection and through shared memory. Both ways of a
// transfer are checked byte by byte.
CallCase UploadCase();
CallCase DownloadCase();
CallCase SharedUploadCase();
CallCase SharedDownloadCase();

// Runs the case with that fault: connects, prepares, lets it happen, sees that the session is as it
// should be, and closes it. `sprung`: whether the fault's trap has.
absl::Status RunCase(const std::string& server, const CallCase& call, const Fault& fault,
                     bool* sprung);

}  // namespace tensord::fault
