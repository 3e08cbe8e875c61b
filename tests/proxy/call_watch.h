// Follows the HTTP/2 calls of a connection as they pass by, to a chosen place in one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::proxy {

// Watches both directions of one connection from its first byte on. Of a connection that isn't
// HTTP/2 nothing is found. Used by one thread.
class CallWatch {
 public:
  // Looks for this place from now on, or for nothing. Calls that have begun by now aren't found.
  void LookFor(std::optional<CallSpot> spot);

  // The next bytes of this direction. Where the place is among them: how many come before it, and
  // then it isn't looked for any more.
  std::optional<size_t> Pass(Direction direction, absl::string_view bytes);

 private:
  struct Side {
    std::string head;            // of a frame (to begin with: the preface), as far as it has come
    int64_t body_left = 0;       // of the frame that is passing
    uint32_t stream = 0;         // whose it is
    bool is_data = false;        // what it is
    bool is_headers = false;     // likewise
    bool ends_stream = false;    // it is the last of its stream
    std::string headers;         // what has come of them, where they may begin the call
    std::string message_prefix;  // a flag and the length of the message that is passing
    int64_t message_left = 0;    // of that
    // Of the call so far: whole messages, and bytes of frames since.
    int64_t messages = 0;
    int64_t bytes = 0;
  };

  // Takes what belongs to a frame's head: false where that isn't whole yet.
  bool TakeHead(Side* side, absl::string_view* bytes);
  // Takes what belongs to the preface.
  void TakePreface(absl::string_view* bytes);
  // Whether the frame is one of the call's, now that its head has come and `body` of the rest.
  bool IsOfCall(Direction direction, absl::string_view body);
  // So many, or these, of the call's bytes pass: how many come before the place, if it is there.
  std::optional<size_t> Count(Direction direction, size_t size);
  std::optional<size_t> CountData(Direction direction, absl::string_view data);
  std::optional<size_t> PassFrame(Direction direction, size_t head_bytes, absl::string_view body);

  std::optional<CallSpot> spot_;
  bool is_http2_ = true;
  bool preface_seen_ = false;
  uint32_t call_ = 0;  // its stream; 0: not found yet
  Side sides_[2];
};

}  // namespace tensord::proxy
