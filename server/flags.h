// The daemon's command line.
#pragma once

#include <string>
#include <vector>

#include "tensord/server/metrics/exposer.h"
#include "tensord/server/rpc/server.h"

namespace tensord::server {

struct DaemonFlags {
  ServerOptions server;
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
