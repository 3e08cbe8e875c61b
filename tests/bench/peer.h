// Another program that takes part in the benchmark.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tensord::bench {

// A child process that is asked by lines on its standard input and answers by lines on its standard
// output: first "ready …" or "skip WHY"; then, to each question, "ok FIGURE…" or "error WHY". It
// ends with its input. One that spins while it is idle is stopped between questions, together with
// the processes that it has started. Used by one thread.
class Peer {
 public:
  // UNAVAILABLE with the reason where it can't be had.
  static absl::StatusOr<std::unique_ptr<Peer>> Start(const std::vector<std::string>& command,
                                                     bool spins);
  // Ends it, kills it where it doesn't, and in any case what it has started.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  pid_t pid() const { return pid_; }
  // What stood behind "ready".
  const std::vector<std::string>& greeting() const { return greeting_; }

  absl::StatusOr<std::vector<double>> Ask(const std::string& question);

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
