// Which bytes of a connection are what a program said, and which are the transport's own talk.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tensord::proxy {

// Reads one direction of an HTTP/2 connection as it passes by and tells the frames that carry a
// call (HEADERS, and DATA that isn't empty) from settings, pings, window updates and resets, which
// the transport sends and answers by itself. Of a connection that isn't HTTP/2 every byte counts.
class FrameScanner {
 public:
  enum class From { kClient, kServer };
  explicit FrameScanner(From from) : from_(from) {}

  // The next bytes. True where they hold some of a frame that carries a call.
  bool Scan(absl::string_view bytes);

  // A server's side can't tell by itself: it follows the client's, once that is known. What it has
  // scanned until then counts for nothing.
  void SetIsHttp2(bool is_http2);

  // Whether the client's first bytes were HTTP/2's; false until they have all been seen.
  bool is_http2() const { return mode_ == Mode::kFrames; }
  // Whether they weren't.
  bool is_raw() const { return mode_ == Mode::kRaw; }

 private:
  enum class Mode { kUnknown, kFrames, kRaw };

  bool ScanPreface(absl::string_view* bytes);
  bool ScanFrames(absl::string_view bytes);

  const From from_;
  Mode mode_ = Mode::kUnknown;
  std::string head_;       // of the preface or of a frame, as far as it has come
  int64_t body_left_ = 0;  // of the frame that is passing
  bool body_counts_ = false;
};

}  // namespace tensord::proxy
