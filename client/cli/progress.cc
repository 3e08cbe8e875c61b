#include "tensord/client/cli/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

constexpr absl::Duration kFirstDraw = absl::Milliseconds(500);
constexpr absl::Duration kRedraw = absl::Milliseconds(100);
constexpr int kMinBarWidth = 8;
constexpr int kMaxBarWidth = 40;

}  // namespace

std::string ProgressLine(absl::string_view label, int64_t done_bytes, int64_t total_bytes,
                         absl::Duration elapsed, int width) {
  const double fraction =
      total_bytes > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes) : 1;
  std::string figures = absl::StrCat(
      PadLeft(absl::StrCat(static_cast<int>(fraction * 100)), 3), " %  ", FormatBytes(done_bytes),
      " of ", FormatBytes(total_bytes), "  ", FormatBandwidth(done_bytes, elapsed));
  if (done_bytes > 0) {
    absl::StrAppend(&figures, "  ", FormatElapsed(elapsed * (1 / fraction - 1)), " left");
  }
  const int room = width - DisplayWidth(label) - DisplayWidth(figures) - 4;
  if (room < kMinBarWidth) return Truncate(absl::StrCat(label, "  ", figures), width);
  return absl::StrCat(label, "  ", UsageBar(fraction, std::min(room, kMaxBarWidth)), "  ", figures);
}

Progress::Progress(std::string label, std::ostream& out, const Terminal& terminal)
    : label_(std::move(label)), out_(out), terminal_(terminal), next_draw_(start_ + kFirstDraw) {}

void Progress::Update(int64_t done_bytes, int64_t total_bytes) {
  if (!terminal_.is_terminal) return;
  const absl::Time now = absl::Now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedraw;
  // Leaves the last column free, because some terminals wrap when it is written.
  out_ << "\r" << ProgressLine(label_, done_bytes, total_bytes, now - start_, terminal_.width - 1)
       << "\x1b[K" << std::flush;
  drawn_ = true;
}

void Progress::Clear() {
  if (std::exchange(drawn_, false)) out_ << "\r\x1b[K" << std::flush;
}

TransferOptions Progress::options() {
  return {.progress = [this](int64_t done, int64_t total) { Update(done, total); }};
}

}  // namespace tensord::cli
