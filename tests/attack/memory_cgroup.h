// Starts daemons with limits of their memory: in a memory cgroup, or by ulimit.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/integration/test_certificates.h"

namespace tensord::attack {

// While this object exists, DaemonProcess starts daemons by a script in `folder`, which runs
// `command` in the shell first.
class DaemonWrapper {
 public:
  DaemonWrapper(const integration::TestFolder& folder, const std::string& command) {
    const std::string script =
        folder.Write("daemon", absl::StrCat("#!/bin/sh\n", command, " || exit 1\nexec ",
                                            integration::DaemonProgram(), " \"$@\"\n"));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    setenv("TENSORD_DAEMON", script.c_str(), /*overwrite=*/1);
  }
  ~DaemonWrapper() { unsetenv("TENSORD_DAEMON"); }
  DaemonWrapper(const DaemonWrapper&) = delete;
  DaemonWrapper& operator=(const DaemonWrapper&) = delete;
};

// The destructor removes the cgroup, which must be empty by then.
class MemoryCgroup {
 public:
  // If this process may not make memory cgroups, returns UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<MemoryCgroup>> Make(int64_t bytes) {
    namespace fs = std::filesystem;
    // Version 1, or version 2 where the controller is delegated.
    const bool v1 = fs::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes") ||
                    fs::exists("/sys/fs/cgroup/memory/cgroup.procs");
    const std::string path =
        absl::StrCat(v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup", "/tensord_test_", getpid());
    std::error_code error;
    fs::create_directory(path, error);
    const char* const limit = v1 ? "/memory.limit_in_bytes" : "/memory.max";
    std::ofstream file(path + limit);
    if (error || !(file << bytes << std::flush)) {
      fs::remove(path, error);
      return absl::UnavailableError("this process can't make a memory cgroup");
    }
    return std::unique_ptr<MemoryCgroup>(
        new MemoryCgroup(path, v1 ? "/memory.max_usage_in_bytes" : "/memory.peak"));
  }
  ~MemoryCgroup() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }

  // Returns the shell command that moves its process into the cgroup.
  std::string EnterCommand() const { return absl::StrCat("echo $$ > ", path_, "/cgroup.procs"); }

  // Returns the highest use so far, with the kernel's memory and the page cache.
  int64_t PeakBytes() const {
    int64_t bytes = 0;
    std::ifstream(path_ + peak_) >> bytes;
    return bytes;
  }

 private:
  MemoryCgroup(std::string path, std::string peak)
      : path_(std::move(path)), peak_(std::move(peak)) {}

  const std::string path_, peak_;
};

}  // namespace tensord::attack
