#include "tensord/tests/integration/daemon_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace tensord::integration {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);
constexpr auto kPollInterval = std::chrono::milliseconds(5);

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

absl::StatusOr<std::string> MakeFolder() {
  std::string folder = std::filesystem::temp_directory_path() / "tensord_test.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::UnavailableError("mkdtemp failed");
  return folder;
}

pid_t Spawn(const std::vector<std::string>& flags, const std::vector<std::string>& environment,
            const std::string& output_path, int error_descriptor, int max_descriptors = 0) {
  const std::string program = DaemonProgram();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& flag : flags) argv.push_back(const_cast<char*>(flag.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables;  // if a name occurs twice, its first entry applies
  for (const std::string& more : environment) variables.push_back(const_cast<char*>(more.c_str()));
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  // Another thread may have held any lock at the fork, so this takes no locks until exec.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int out = open(output_path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  dup2(out, 1);
  dup2(error_descriptor >= 0 ? error_descriptor : out, 2);
  for (int fd = 0; error_descriptor == DaemonProcess::kStreamsClosed && fd <= 2; ++fd) close(fd);
  const rlimit limit = {static_cast<rlim_t>(max_descriptors), static_cast<rlim_t>(max_descriptors)};
  if (max_descriptors != 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(127);
  execve(argv[0], argv.data(), variables.data());
  _exit(127);
}

// Returns the first line in which the CUDA emulation (tests/cuda_emulation) reports a misuse, or an
// empty string if there is none.
std::string FindMisuse(const std::string& output) {
  const size_t begin = output.find("cuda emulation: ");
  return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
}

}  // namespace

std::string DaemonProgram() {
  const char* named = std::getenv("TENSORD_DAEMON");
  return named != nullptr ? named : TENSORD_DAEMON_PATH;
}

std::string TestDeviceKind() {
  const char* const kind = std::getenv("TENSORD_TEST_DEVICE_KIND");
  return kind != nullptr ? kind : "cpu";
}

std::string TestDevice(int index) { return absl::StrCat(TestDeviceKind(), ":", index); }

std::string TestDevicesFlag() {
  if (TestDeviceKind() == "cpu") return "--devices=cpu=1GiB,cpu=64MiB";
  return absl::StrCat("--devices=", TestDevice(0), "=1GiB,", TestDevice(1), "=64MiB");
}

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(
    const std::vector<std::string>& flags, const std::vector<std::string>& environment,
    int error_descriptor) {
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess);
  absl::StatusOr<std::string> folder = MakeFolder();
  if (!folder.ok()) return folder.status();
  daemon->folder_ = *folder;
  const std::string port_file = *folder + "/port";
  std::vector<std::string> all{"--listen=127.0.0.1:0", "--port-file=" + port_file};
  all.insert(all.end(), flags.begin(), flags.end());
  daemon->pid_ = Spawn(all, environment, *folder + "/output", error_descriptor);
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (daemon->running() && std::chrono::steady_clock::now() < deadline) {
    std::ifstream in(port_file);
    if (in >> daemon->address_) return daemon;
    std::this_thread::sleep_for(kPollInterval);
  }
  return absl::UnavailableError(
      absl::StrCat("the daemon doesn't serve. Its output: ", daemon->Output()));
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0 && !ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  const std::string misuse = FindMisuse(Output());
  if (!misuse.empty()) ADD_FAILURE() << "the daemon misused CUDA: " << misuse;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void DaemonProcess::Signal(int number) {
  if (!running()) return;
  kill(pid_, number);
  if (number != SIGSTOP) return;
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
}

bool DaemonProcess::running() {
  if (pid_ <= 0 || ended_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

absl::StatusOr<int> DaemonProcess::WaitForEnd() {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (running()) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid_, SIGKILL);
      return absl::DeadlineExceededError(
          absl::StrCat("the daemon doesn't end. Its output: ", Output()));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return exit_code_;
}

void DaemonProcess::ExpectEndsCleanly() {
  const absl::StatusOr<int> exit_code = WaitForEnd();
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 0) << Output();
}

void DaemonProcess::ExpectTerminatesCleanly() {
  EXPECT_TRUE(running()) << "the daemon has ended early. Its output: " << Output();
  Signal(SIGTERM);
  ExpectEndsCleanly();
}

int64_t DaemonProcess::MemoryBytes(const std::string& field) const {
  return ProcessMemoryBytes(pid_, field);
}

int64_t ProcessMemoryBytes(pid_t pid, const std::string& field) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(field + ":", 0) == 0) return std::atoll(line.c_str() + field.size() + 1) << 10;
  }
  return 0;
}

std::string DaemonProcess::Output() const { return ReadFile(folder_ + "/output"); }

absl::StatusOr<int> RunDaemon(const std::vector<std::string>& flags, std::string* output,
                              int max_descriptors) {
  absl::StatusOr<std::string> folder = MakeFolder();
  if (!folder.ok()) return folder.status();
  const pid_t pid =
      Spawn(flags, {}, *folder + "/output", DaemonProcess::kToOutput, max_descriptors);
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) != pid) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  *output = ReadFile(*folder + "/output");
  std::filesystem::remove_all(*folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tensord::integration
