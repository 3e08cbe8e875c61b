// Finds a position in an HTTP/2 call while the bytes of its connection pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::proxy {

// Watches both directions of one connection from its first byte on. In a connection that isn't
// HTTP/2 it finds nothing. Not thread-safe.
class CallWatch {
 public:
  // Looks for this position from now on, or for none. Ignores calls that have already begun.
  void LookFor(std::optional<CallPosition> position);

  // Takes the next bytes of this direction. If they contain the position, returns the number of
  // bytes before it, and stops looking for it.
  std::optional<size_t> Pass(Direction direction, absl::string_view bytes);

 private:
  struct Side {
    std::string head;            // the received part of the current frame's head, or of the preface
    int64_t body_left = 0;       // bytes of the current frame's body that haven't passed yet
    uint32_t stream = 0;         // the stream of the current frame
    bool is_data = false;        // the current frame is DATA
    bool is_headers = false;     // the current frame is HEADERS or CONTINUATION
    bool ends_stream = false;    // the current frame is the last of its stream
    std::string headers;         // the received part of headers that may begin the call
    std::string message_prefix;  // the flag and length of the current message
    int64_t message_left = 0;    // bytes of the current message that haven't passed yet
    // The call's complete messages so far, and the bytes of its frames since the last of them.
    int64_t messages = 0;
    int64_t bytes = 0;
  };

  // Moves bytes to the frame's head. Returns false if the head is still incomplete.
  bool TakeHead(Side* side, absl::string_view* bytes);
  // Moves bytes to the preface.
  void TakePreface(absl::string_view* bytes);
  // Returns whether the current frame belongs to the call. `body` is the received part of its body.
  bool IsOfCall(Direction direction, absl::string_view body);
  // Each counts bytes of the call. If the position is among them, returns the number of bytes
  // before it.
  std::optional<size_t> Count(Direction direction, size_t size);
  std::optional<size_t> CountData(Direction direction, absl::string_view data);
  std::optional<size_t> PassFrame(Direction direction, size_t head_bytes, absl::string_view body);

  std::optional<CallPosition> position_;
  bool is_http2_ = true;
  bool preface_seen_ = false;
  uint32_t call_ = 0;  // the call's stream; 0 if the call hasn't begun
  Side sides_[2];
};

}  // namespace tensord::proxy
