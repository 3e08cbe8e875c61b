// The main() of all GoogleTest programs. After a crash, prints a stack trace. If a test leaves a
// file descriptor open, the test fails. In programs that are linked with gRPC, connections and the
// descriptors of event loops don't count.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace {

bool IsListening(int socket) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

struct Descriptor {
  std::string target;            // in /proc/self/fd
  std::pair<dev_t, ino_t> file;  // doesn't change when the file is renamed or deleted
  bool operator==(const Descriptor& other) const {
    return file == other.file && (target == other.target || target.starts_with("/"));
  }
};

// Returns what the open descriptors of this process refer to, by number. Leaves out files of
// NVIDIA's driver and gRPC's connections, because these libraries open descriptors at any time, and
// keep them. If the process has one of these libraries, also leaves out the descriptors of event
// loops.
std::map<std::string, Descriptor> OpenDescriptors() {
  std::map<std::string, Descriptor> open;
  std::error_code error;
  static const bool has_grpc = dlsym(RTLD_DEFAULT, "grpc_init") != nullptr;
  bool has_driver = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    const std::string number = entry.path().filename();
    const bool of_driver = target.starts_with("/dev/nvidia");
    const bool of_iteration = target.starts_with("/proc/");
    const bool of_channel =
        has_grpc && target.starts_with("socket:") && !IsListening(std::stoi(number));
    has_driver = has_driver || of_driver;
    struct stat status {};
    if (error || fstat(std::stoi(number), &status) != 0) continue;
    if (of_driver || of_iteration || of_channel) continue;
    open.emplace(number, Descriptor{target, {status.st_dev, status.st_ino}});
  }
  if (has_grpc || has_driver) {
    std::erase_if(open, [](const auto& each) {
      const std::string& target = each.second.target;
      return target == "anon_inode:[eventfd]" || target == "anon_inode:[eventpoll]";
    });
  }
  return open;
}

class DescriptorListener : public testing::EmptyTestEventListener {
  static constexpr auto kTimeout = std::chrono::seconds(10);

  void OnTestStart(const testing::TestInfo& /*test*/) override { before_ = OpenDescriptors(); }

  // Threads of libraries close descriptors a little later than the calls that end their use. If a
  // library keeps descriptors as NCCL does, its test records the property "keeps": the prefixes of
  // their targets in /proc/self/fd, separated by spaces.
  void OnTestEnd(const testing::TestInfo& test) override {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    std::vector<std::string> kept;
    for (int i = 0; i < test.result()->test_property_count(); ++i) {
      const testing::TestProperty& property = test.result()->GetTestProperty(i);
      if (property.key() == std::string("keeps")) kept = absl::StrSplit(property.value(), ' ');
    }
    std::string left = NewDescriptors(kept);
    while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      left = NewDescriptors(kept);
    }
    if (!left.empty()) {
      ADD_FAILURE() << test.test_suite_name() << "." << test.name() << " left open:" << left;
    }
  }

  std::string NewDescriptors(const std::vector<std::string>& kept) const {
    std::string text;
    for (const auto& open : OpenDescriptors()) {
      const std::string& target = open.second.target;
      const auto it = before_.find(open.first);
      const bool is_new = it == before_.end() || !(it->second == open.second);
      const auto is_kept = [&](const std::string& each) { return absl::StartsWith(target, each); };
      if (is_new && std::none_of(kept.begin(), kept.end(), is_kept))
        absl::StrAppend(&text, " ", open.first, " (", target, ")");
    }
    return text;
  }

  std::map<std::string, Descriptor> before_;
};

}  // namespace

int main(int argc, char** argv) {
  absl::InitializeSymbolizer(argv[0]);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers print reports
  absl::InstallFailureSignalHandler(absl::FailureSignalHandlerOptions());
#endif
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new DescriptorListener);
  return RUN_ALL_TESTS();
}
