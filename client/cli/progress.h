// A progress bar for transfers that take long enough to wonder.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/tensor.h"

namespace tensord::cli {

// "Uploading  ███████▌░░░░░░░░  45 %  512 MiB of 1.10 GiB  2.31 GiB/s  0.3 s left", in at most
// `width` columns; the bar goes first where room is short. A pure function.
std::string ProgressLine(absl::string_view label, int64_t done_bytes, int64_t total_bytes,
                         absl::Duration elapsed, int width);

// Draws on a terminal, and nowhere else, once a transfer has taken half a second, and wipes itself
// out at its end. For one thread.
class Progress {
 public:
  // `out` and `terminal` (normally standard error) must outlive this.
  Progress(std::string label, std::ostream& out, const Terminal& terminal);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(int64_t done_bytes, int64_t total_bytes);
  // Wipes out what is drawn.
  void Clear();

  // What a transfer tells its progress to; valid as long as this.
  TransferOptions options();

 private:
  std::string label_;
  std::ostream& out_;
  const Terminal& terminal_;
  const absl::Time start_ = absl::Now();
  absl::Time next_draw_;
  bool drawn_ = false;
};

}  // namespace tensord::cli
