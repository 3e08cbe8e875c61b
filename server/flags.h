// The daemon's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensord/server/metrics/exposer.h"
#include "tensord/server/rpc/server.h"

namespace tensord::server {

// The value of max_sessions_per_principal and max_connections_per_principal if no flag has set
// them. main.cc replaces it by a default that depends on other flags.
inline constexpr int64_t kUnsetLimit = -1;

// When the daemon exits because restarts of lost devices have failed.
enum class ExitWhenLost {
  kAll,    // when no device that can be lost could be restarted
  kAny,    // when a device could not be restarted
  kNever,  // the daemon doesn't exit for this reason
};

struct DaemonFlags {
  ServerOptions server;             // limits may be kUnsetLimit; host bytes may be 0: the default
  std::string devices;              // as ParseDevices() takes them
  int cpu_threads = 0;              // 0: one per processor
  std::string port_file;            // empty: none
  metrics::ExposerOptions metrics;  // `listen` is empty: none
  std::string metrics_port_file;    // empty: none
  std::string fault_socket;         // empty: none
  double grace_seconds = 10;
  ExitWhenLost exit_when_lost = ExitWhenLost::kAll;
  bool until_eof = false;  // the end of file on standard input has the effect of SIGTERM
};

// Parses the command line. Returns false if the program must exit with `exit_status`: 0 after
// --help or --version, or 2 after an error. The error has been printed on standard error.
bool ParseFlags(int argc, char** argv, DaemonFlags* flags, int* exit_status);

}  // namespace tensord::server
