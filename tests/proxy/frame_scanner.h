// Distinguishes frames of calls from frames of the transport.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tensord::proxy {

// Reads one direction of an HTTP/2 connection. Frames of calls are HEADERS, and DATA that isn't
// empty. Settings, pings, window updates and resets are frames of the transport. In a connection
// that isn't HTTP/2, all bytes count as calls. Not thread-safe.
class FrameScanner {
 public:
  enum class From { kClient, kServer };
  explicit FrameScanner(From from) : from_(from) {}

  // Takes the next bytes. Returns whether they contain part of a call's frame body.
  bool Scan(absl::string_view bytes);

  // Only the client's side sees the preface. Tells the server's side whether the connection is
  // HTTP/2. Scan() returns false for the bytes before this call.
  void SetIsHttp2(bool is_http2);

  // Returns whether the connection is HTTP/2; false until the whole preface has arrived.
  bool is_http2() const { return mode_ == Mode::kFrames; }
  // Returns whether the connection isn't HTTP/2; false until this is known.
  bool is_raw() const { return mode_ == Mode::kRaw; }

 private:
  enum class Mode { kUnknown, kFrames, kRaw };

  bool ScanPreface(absl::string_view* bytes);
  bool ScanFrames(absl::string_view bytes);

  const From from_;
  Mode mode_ = Mode::kUnknown;
  std::string head_;       // the received part of the preface or of the current frame's head
  int64_t body_left_ = 0;  // bytes of the current frame's body that haven't passed yet
  bool body_counts_ = false;
};

}  // namespace tensord::proxy
