#include "tensord/tests/bench/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::bench {
namespace {

constexpr int kAnswerTimeoutMs = 300'000;
constexpr auto kExitTimeout = std::chrono::seconds(5);
constexpr auto kPollInterval = std::chrono::milliseconds(5);

[[noreturn]] void RunChild(pid_t parent, const std::vector<char*>& argv, int in, int out) {
  setpgid(0, 0);  // a new process group, so that signals reach all of its processes
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(in, 0);
  dup2(out, 1);
  execvp(argv[0], argv.data());
  _exit(127);
}

std::vector<std::string> Words(absl::string_view line) {
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Peer>> Peer::Start(const std::vector<std::string>& command,
                                                  bool spins) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    return absl::UnavailableError("can't create a pipe");
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(parent, argv, in[0], out[1]);
  setpgid(pid, pid);  // also here: the child may not have called it yet
  close(in[0]);
  close(out[1]);
  std::unique_ptr<Peer> peer(new Peer(pid, spins, in[1], out[0]));
  auto line = peer->ReadLine();
  if (!line.ok()) return absl::UnavailableError(absl::StrCat(command.back(), " doesn't start"));
  std::vector<std::string> words = Words(*line);
  if (words.empty() || words[0] != "ready") {
    return absl::UnavailableError(line->substr(absl::StartsWith(*line, "skip ") ? 5 : 0));
  }
  words.erase(words.begin());
  peer->greeting_ = std::move(words);
  return peer;
}

Peer::~Peer() {
  kill(-pid_, SIGCONT);
  close(in_);
  close(out_);
  // WNOWAIT doesn't reap the child, so that the kernel can't reuse the ID of its process group.
  const auto running = [this] {
    siginfo_t info = {};
    return waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  };
  const auto deadline = std::chrono::steady_clock::now() + kExitTimeout;
  while (running() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPollInterval);
  }
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> Peer::ReadLine() {
  while (true) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd ready = {.fd = out_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kAnswerTimeoutMs) <= 0) return absl::DeadlineExceededError("no answer");
    char buffer[65536];
    const ssize_t got = read(out_, buffer, sizeof(buffer));
    if (got <= 0) return absl::UnavailableError("the peer has exited");
    unread_.append(buffer, got);
  }
}

absl::StatusOr<std::string> Peer::AskText(const std::string& question) {
  if (spins_) kill(-pid_, SIGCONT);
  const std::string line = question + "\n";
  if (write(in_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return absl::UnavailableError(absl::StrCat("can't ask a peer for ", question));
  }
  auto answer = ReadLine();
  if (spins_) kill(-pid_, SIGSTOP);
  if (!answer.ok()) {
    return absl::UnavailableError(
        absl::StrCat("asked a peer for ", question, ": ", answer.status().message()));
  }
  absl::string_view text = *answer;
  if (!absl::ConsumePrefix(&text, "ok ")) {
    return absl::InternalError(absl::StrCat("asked a peer for ", question, ": ", *answer));
  }
  return std::string(text);
}

absl::StatusOr<std::vector<double>> Peer::Ask(const std::string& question) {
  TENSORD_ASSIGN_OR_RETURN(const std::string text, AskText(question));
  std::vector<double> figures;
  for (const std::string& word : Words(text)) figures.push_back(std::atof(word.c_str()));
  if (figures.empty()) return absl::InternalError(absl::StrCat("a peer has no ", question));
  return figures;
}

}  // namespace tensord::bench
