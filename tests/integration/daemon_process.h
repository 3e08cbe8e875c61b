// The real daemon as a child process, on a port of its own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tensord::integration {

// For a daemon's environment: it shares no memory, neither with clients nor with other servers.
inline constexpr char kNoSharedMemory[] = "TENSORD_SHARED_MEMORY=0";

// Returns the kind of the two devices that tests use: the value of the environment variable
// TENSORD_TEST_DEVICE_KIND, or "cpu" if it isn't set.
std::string TestDeviceKind();
// Returns the name of device 0 or 1 of these, such as "cpu:1".
std::string TestDevice(int index);
// Returns the --devices flag for these two devices. Their memory limits are 1 GiB and 64 MiB.
std::string TestDevicesFlag();

// The destructor kills the child; Terminate() lets it end by itself. If the CUDA emulation has
// reported a misuse in the child, the destructor makes the current test fail.
class DaemonProcess {
 public:
  // Starts the daemon on 127.0.0.1, with these flags besides and "NAME=VALUE" added to the
  // environment, and waits until it serves.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(
      const std::vector<std::string>& flags, const std::vector<std::string>& environment = {});
  ~DaemonProcess();

  // "127.0.0.1:41234".
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

  // Sends a signal and doesn't wait.
  void Signal(int number);

  // Waits until it has ended: its exit code, or 128 + the signal that killed it. DEADLINE_EXCEEDED
  // after a bounded time, and then it is killed.
  absl::StatusOr<int> WaitForEnd();

  // SIGTERM, then WaitForEnd.
  absl::StatusOr<int> Terminate();

  bool running();

  // A figure of /proc/PID/status in bytes: "VmRSS", "VmHWM". 0 where there is none.
  int64_t MemoryBytes(const std::string& field) const;

  // What it has written to standard output and error so far.
  std::string Output() const;

 private:
  DaemonProcess() = default;

  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
  std::string folder_;
  std::string address_;
};

// Runs the daemon with these flags until it ends by itself: its exit code. `output`: what it said.
absl::StatusOr<int> RunDaemon(const std::vector<std::string>& flags, std::string* output);

}  // namespace tensord::integration
