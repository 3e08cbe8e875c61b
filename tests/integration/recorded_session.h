// The messages of a client's session as a file, so that a later server can be tested with them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord::integration {

// An event of a call, as the client sees it.
struct CallEvent {
  enum class Kind { kBegin, kSend, kHalfClose, kReceive, kEnd };
  Kind kind;
  int call;  // the call's number in the file
  std::string
      bytes;  // kBegin: the method, "/tensord.v1.TensorService/OpenSession"; kSend, kReceive:
              // the encoded message; kEnd: the status code in decimal
};

// A file has a line for each event: "begin 3 METHOD", "send 3 HEX", "half-close 3", "receive 3
// HEX", "end 3 CODE". Lines that begin with "#" are comments. If a line has another form, returns
// INVALID_ARGUMENT with its number.
absl::StatusOr<std::vector<CallEvent>> ParseEvents(absl::string_view text);
std::string FormatEvents(const std::vector<CallEvent>& events);

// Records the events of all calls that the client library begins from now on.
void StartRecording();
// Returns the events so far, and records no further calls. All calls must have ended.
std::vector<CallEvent> StopRecording();

// Sends the recorded messages to the server at `address`, in their order, each after the answers
// that the recorded client had received by then. The session's id is replaced by that of the new
// session. Makes the current test fail if a call ends with another status, or if an answer has
// other elements, another spec or another error code. All else may differ.
void ReplaySession(const std::vector<CallEvent>& events, const std::string& address);

}  // namespace tensord::integration
