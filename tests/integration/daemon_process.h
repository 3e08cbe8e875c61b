// The real daemon as a child process, on a port of its own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tensord::integration {

// An environment variable for a daemon that shares no memory with clients or other servers.
inline constexpr char kNoSharedMemory[] = "TENSORD_SHARED_MEMORY=0";

// Returns the kind of the two devices that tests use: the value of the environment variable
// TENSORD_TEST_DEVICE_KIND, or "cpu" if it isn't set.
std::string TestDeviceKind();
// Returns the name of device 0 or 1 of these, such as "cpu:1".
std::string TestDevice(int index);
// Returns the --devices flag for these two devices. Their memory limits are 1 GiB and 64 MiB.
std::string TestDevicesFlag();

// Returns the path of the daemon: the value of TENSORD_DAEMON, or the one of this build.
std::string DaemonProgram();

// The destructor kills the child; ExpectTerminatesCleanly() lets it end by itself. If the CUDA
// emulation has reported a misuse in the child, the destructor makes the current test fail.
class DaemonProcess {
 public:
  // Values of Start()'s `error_descriptor` other than a descriptor.
  static constexpr int kToOutput = -1;       // Output() contains what is written there
  static constexpr int kStreamsClosed = -2;  // the daemon starts without descriptors 0 to 2

  // Starts the daemon on a free port of 127.0.0.1 with these flags. Adds the "NAME=VALUE" strings
  // to its environment. `error_descriptor` becomes its standard error. Blocks until it serves. If
  // it ends or takes over a minute, returns UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(
      const std::vector<std::string>& flags, const std::vector<std::string>& environment = {},
      int error_descriptor = kToOutput);
  ~DaemonProcess();

  // "127.0.0.1:41234".
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

  // If the daemon runs, sends it a signal. After SIGSTOP, blocks until all threads have stopped.
  void Signal(int number);

  // Blocks until the daemon has ended. Returns its exit code, or 128 + the signal that killed it.
  // If it doesn't end within a minute, kills it and returns DEADLINE_EXCEEDED.
  absl::StatusOr<int> WaitForEnd();

  // Blocks until the daemon has ended. Unless it exits with 0, makes the current test fail and
  // prints the daemon's output.
  void ExpectEndsCleanly();

  // Sends SIGTERM, then calls ExpectEndsCleanly(). If the daemon has ended before, makes the
  // current test fail.
  void ExpectTerminatesCleanly();

  bool running();

  // Returns ProcessMemoryBytes() of the daemon.
  int64_t MemoryBytes(const std::string& field) const;

  // Returns what the daemon has written to standard output and standard error so far.
  std::string Output() const;

 private:
  DaemonProcess() = default;

  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
  std::string folder_;
  std::string address_;
};

// Returns a field of /proc/PID/status in bytes, such as "VmRSS" or "VmHWM". If there is no such
// field, returns 0.
int64_t ProcessMemoryBytes(pid_t pid, const std::string& field);

// Runs the daemon with these flags until it ends. Returns its exit code, or 128 + the signal that
// killed it. Kills it after a minute. Stores what it has written in `*output`. If `max_descriptors`
// isn't 0, it is the daemon's hard limit of file descriptors.
absl::StatusOr<int> RunDaemon(const std::vector<std::string>& flags, std::string* output,
                              int max_descriptors = 0);

}  // namespace tensord::integration
