// A memory cgroup of a given size, in which a daemon can be started.
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
    unsetenv("TENSORD_DAEMON");
    std::error_code error;
    std::filesystem::remove(path_, error);
  }

  // Makes DaemonProcess::Start() start daemons in the cgroup, by a script in `folder`, until this
  // object is destroyed.
  void Enter(const integration::TestFolder& folder) {
    const std::string script = folder.Write(
        "daemon", absl::StrCat("#!/bin/sh\necho $$ > ", path_, "/cgroup.procs || exit 1\nexec ",
                               integration::DaemonProgram(), " \"$@\"\n"));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    setenv("TENSORD_DAEMON", script.c_str(), /*overwrite=*/1);
  }

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
