// Another program that the benchmark compares with.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tensord::bench {

// A child process that reads questions, a line each, from its standard input and writes answers, a
// line each, to its standard output. First it writes "ready …" or "skip REASON". It answers each
// question by "ok FIGURE…" or "error REASON". It exits at the end of its input. Not thread-safe.
class Peer {
 public:
  // Starts the command and waits until it is ready. `spins` says that the process spins while it is
  // idle, so it and the processes that it has started are stopped (SIGSTOP) between questions. If
  // the peer can't run here, returns UNAVAILABLE with the reason.
  static absl::StatusOr<std::unique_ptr<Peer>> Start(const std::vector<std::string>& command,
                                                     bool spins);
  // Closes the input and waits up to 5 seconds for the exit. Then kills the process, if it still
  // runs, and the processes that it has started.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  pid_t pid() const { return pid_; }
  // The words after "ready".
  const std::vector<std::string>& greeting() const { return greeting_; }

  // Sends the question and returns the figures of the answer. Fails if there is no answer within five
  // minutes.
  absl::StatusOr<std::vector<double>> Ask(const std::string& question);
  // Does the same, and returns the answer as text, without "ok".
  absl::StatusOr<std::string> AskText(const std::string& question);

 private:
  Peer(pid_t pid, bool spins, int in, int out) : pid_(pid), spins_(spins), in_(in), out_(out) {}
  absl::StatusOr<std::string> ReadLine();

  const pid_t pid_;
  const bool spins_;
  const int in_;   // its standard input
  const int out_;  // its standard output
  std::string unread_;
  std::vector<std::string> greeting_;
};

}  // namespace tensord::bench
