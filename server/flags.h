// The daemon's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensord/server/metrics/exposer.h"
#include "tensord/server/rpc/server.h"

namespace tensord::server {

// The value of a limit that no flag has set, if its default depends on other flags.
inline constexpr int64_t kUnsetLimit = -1;

struct DaemonFlags {
  ServerOptions server;             // max_sessions_per_principal etc. may be kUnsetLimit
  std::string devices;              // as ParseDevices() takes them
  int cpu_threads = 0;              // 0: one per processor
  std::string port_file;            // empty: none
  metrics::ExposerOptions metrics;  // `listen` is empty: none
  std::string metrics_port_file;    // empty: none
  std::string fault_socket;         // empty: none
  double grace_seconds = 10;
};

// Parses the command line. Returns false if the program must exit with `exit_status`: 0 after
// --help or --version, or 2 after an error. The error has been printed on standard error.
bool ParseFlags(int argc, char** argv, DaemonFlags* flags, int* exit_status);

}  // namespace tensord::server
