// A progress bar for long transfers.
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

// Returns "Uploading  ███████▌░░░░░░░░  45 %  512 MiB of 1.10 GiB  2.31 GiB/s  0.3 s left", in at
// most `width` columns. If there isn't enough room, leaves out the bar first. A pure function.
std::string ProgressLine(absl::string_view label, int64_t done_bytes, int64_t total_bytes,
                         absl::Duration elapsed, int width);

// Draws a progress bar if `out` is a terminal and the transfer has taken half a second, and erases
// it at the end. Not thread-safe.
class Progress {
 public:
  // `out` and `terminal` (normally standard error's) must outlive this object.
  Progress(std::string label, std::ostream& out, const Terminal& terminal);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(int64_t done_bytes, int64_t total_bytes);
  // Erases the bar.
  void Clear();

  // Returns options for a transfer, which call Update. They are valid as long as this object.
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
