// The daemon's command line.
#pragma once

#include <string>
#include <vector>

#include "tensord/server/rpc/server.h"

namespace tensord::server {

struct DaemonFlags {
  ServerOptions server;
  std::string devices;       // --devices, as ParseDevices takes it
  int cpu_threads = 0;       // 0: one a processor
  std::string port_file;     // empty: none
  std::string fault_socket;  // empty: none
  double grace_seconds = 10;
};

// Reads the command line. False where the program should end, with `exit_status`: help or the
// version was asked for (0), or something is wrong (2) and has been said on standard error.
bool ParseFlags(int argc, char** argv, DaemonFlags* flags, int* exit_status);

}  // namespace tensord::server
