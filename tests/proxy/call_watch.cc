#include "tensord/tests/proxy/call_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/tests/http2_frame.h"

namespace tensord::proxy {
namespace {

constexpr size_t kMessagePrefixBytes = 5;  // gRPC over HTTP/2

int64_t BigEndian(absl::string_view bytes) {
  int64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// Returns whether the headers contain the method as a literal string (RFC 7541). gRPC's client
// writes it so in the connection's first call of the method, and an index of a table later.
bool NameMethod(absl::string_view headers, const std::string& method) {
  return absl::StrContains(headers,
                           absl::StrCat(std::string(1, static_cast<char>(method.size())), method));
}

}  // namespace

void CallWatch::LookFor(std::optional<CallPosition> position) {
  position_ = std::move(position);
  call_ = 0;
}

void CallWatch::TakePreface(absl::string_view* bytes) {
  std::string& head = sides_[0].head;
  const size_t taken = std::min(bytes->size(), kPreface.size() - head.size());
  head.append(bytes->data(), taken);
  bytes->remove_prefix(taken);
  is_http2_ = absl::string_view(head) == kPreface.substr(0, head.size());
  if (head.size() < kPreface.size()) return;
  preface_seen_ = true;
  head.clear();
}

bool CallWatch::TakeHead(Side* side, absl::string_view* bytes) {
  const size_t taken = std::min(bytes->size(), kFrameHeadBytes - side->head.size());
  side->head.append(bytes->data(), taken);
  bytes->remove_prefix(taken);
  if (side->head.size() < kFrameHeadBytes) return false;
  const absl::string_view head = side->head;
  const auto type = static_cast<uint8_t>(head[3]);
  side->body_left = BigEndian(head.substr(0, 3));
  side->stream = static_cast<uint32_t>(BigEndian(head.substr(5, 4)) & 0x7fffffff);
  side->is_data = type == kData;
  side->is_headers = type == kHeaders || type == kContinuation;
  side->ends_stream = (type == kData || type == kHeaders) && (head[4] & kEndStream) != 0;
  side->headers.clear();
  return true;
}

bool CallWatch::IsOfCall(Direction direction, absl::string_view body) {
  Side& side = sides_[direction == Direction::kToServer ? 0 : 1];
  if (call_ == 0 && direction == Direction::kToServer && side.is_headers) {
    side.headers.append(body.data(), body.size());
    if (!NameMethod(side.headers, position_->method)) return false;
    call_ = side.stream;
    for (Side& each : sides_) {
      each.messages = each.bytes = each.message_left = 0;
      each.message_prefix.clear();
    }
  }
  return call_ != 0 && side.stream == call_ && (side.is_data || side.is_headers);
}

std::optional<size_t> CallWatch::Count(Direction direction, size_t size) {
  Side& side = sides_[direction == Direction::kToServer ? 0 : 1];
  const int64_t before = std::exchange(side.bytes, side.bytes + static_cast<int64_t>(size));
  const bool here = position_->direction == direction && !position_->at_end &&
                    position_->messages == side.messages && position_->bytes >= before &&
                    position_->bytes <= side.bytes;
  if (!here) return std::nullopt;
  return position_->bytes - before;
}

std::optional<size_t> CallWatch::CountData(Direction direction, absl::string_view data) {
  Side& side = sides_[direction == Direction::kToServer ? 0 : 1];
  size_t passed = 0;
  while (passed < data.size()) {
    const absl::string_view rest = data.substr(passed);
    size_t size = 0;
    if (side.message_prefix.size() < kMessagePrefixBytes) {
      size = std::min(rest.size(), kMessagePrefixBytes - side.message_prefix.size());
      side.message_prefix.append(rest.data(), size);
      if (side.message_prefix.size() == kMessagePrefixBytes) {
        side.message_left = BigEndian(absl::string_view(side.message_prefix).substr(1));
      }
    } else {
      size = std::min<size_t>(rest.size(), side.message_left);
      side.message_left -= static_cast<int64_t>(size);
    }
    if (const auto found = Count(direction, size)) return passed + *found;
    passed += size;
    if (side.message_prefix.size() < kMessagePrefixBytes || side.message_left > 0) continue;
    side.message_prefix.clear();
    ++side.messages;
    side.bytes = 0;
    if (Count(direction, 0)) return passed;
  }
  return std::nullopt;
}

std::optional<size_t> CallWatch::PassFrame(Direction direction, size_t head_bytes,
                                           absl::string_view body) {
  Side& side = sides_[direction == Direction::kToServer ? 0 : 1];
  if (!position_ || !IsOfCall(direction, body)) return std::nullopt;
  if (head_bytes > 0) {
    if (position_->direction == direction && position_->at_end && side.ends_stream) return 0;
    if (const auto found = Count(direction, head_bytes)) return found;
  }
  const auto found = side.is_data ? CountData(direction, body) : Count(direction, body.size());
  if (!found) return std::nullopt;
  return head_bytes + *found;
}

std::optional<size_t> CallWatch::Pass(Direction direction, absl::string_view bytes) {
  const size_t size = bytes.size();
  Side& side = sides_[direction == Direction::kToServer ? 0 : 1];
  if (direction == Direction::kToServer && !preface_seen_) TakePreface(&bytes);
  while (is_http2_ && !bytes.empty()) {
    const size_t at = size - bytes.size();
    const size_t came_before = side.head.size() % kFrameHeadBytes;  // if a head is in two reads
    size_t head_bytes = 0;
    if (side.head.size() < kFrameHeadBytes) {
      if (!TakeHead(&side, &bytes)) break;
      head_bytes = kFrameHeadBytes;
    }
    const absl::string_view body = bytes.substr(0, std::min<size_t>(bytes.size(), side.body_left));
    const auto found = PassFrame(direction, head_bytes, body);
    if (found) {
      position_.reset();
      return at + std::max(*found, came_before) - came_before;
    }
    bytes.remove_prefix(body.size());
    side.body_left -= static_cast<int64_t>(body.size());
    if (side.body_left == 0) side.head.clear();
  }
  return std::nullopt;
}

}  // namespace tensord::proxy
