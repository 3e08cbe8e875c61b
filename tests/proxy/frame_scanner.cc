#include "tensord/tests/proxy/frame_scanner.h"

#include <algorithm>
#include <utility>

#include "tensord/tests/http2_frame.h"

namespace tensord::proxy {
namespace {

// A server may send its settings before the client's preface. More early bytes than this aren't
// HTTP/2.
constexpr size_t kMaxEarlyBytes = 64 * 1024;

int64_t FrameLength(const std::string& head) {
  const auto byte = [&](int i) { return static_cast<int64_t>(static_cast<uint8_t>(head[i])); };
  return byte(0) << 16 | byte(1) << 8 | byte(2);
}

}  // namespace

void FrameScanner::SetIsHttp2(bool is_http2) {
  if (mode_ != Mode::kUnknown) return;
  mode_ = is_http2 ? Mode::kFrames : Mode::kRaw;
  const std::string early = std::exchange(head_, {});
  if (is_http2) ScanFrames(early);
}

bool FrameScanner::Scan(absl::string_view bytes) {
  if (bytes.empty()) return false;
  if (mode_ == Mode::kUnknown) {
    if (from_ == From::kServer) {
      head_.append(bytes.data(), bytes.size());
      if (head_.size() > kMaxEarlyBytes) SetIsHttp2(false);
      return is_raw();
    }
    if (ScanPreface(&bytes)) return true;
  }
  return mode_ == Mode::kRaw || (mode_ == Mode::kFrames && ScanFrames(bytes));
}

// Returns true if the bytes aren't HTTP/2's preface.
bool FrameScanner::ScanPreface(absl::string_view* bytes) {
  const size_t taken = std::min(bytes->size(), kPreface.size() - head_.size());
  head_.append(bytes->data(), taken);
  bytes->remove_prefix(taken);
  if (absl::string_view(head_) != kPreface.substr(0, head_.size())) {
    mode_ = Mode::kRaw;
    return true;
  }
  if (head_.size() == kPreface.size()) {
    mode_ = Mode::kFrames;
    head_.clear();
  }
  return false;
}

bool FrameScanner::ScanFrames(absl::string_view bytes) {
  bool counts = false;
  while (!bytes.empty()) {
    if (body_left_ > 0) {
      const size_t taken = std::min<size_t>(bytes.size(), body_left_);
      body_left_ -= static_cast<int64_t>(taken);
      bytes.remove_prefix(taken);
      counts = counts || body_counts_;
      continue;
    }
    const size_t taken = std::min(bytes.size(), kFrameHeadBytes - head_.size());
    head_.append(bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (head_.size() < kFrameHeadBytes) break;
    const auto type = static_cast<uint8_t>(head_[3]);
    body_left_ = FrameLength(head_);
    body_counts_ = body_left_ > 0 && (type == kData || type == kHeaders);
    head_.clear();
  }
  return counts;
}

}  // namespace tensord::proxy
