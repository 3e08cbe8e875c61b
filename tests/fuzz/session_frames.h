// How session_fuzz's input is cut into what two clients do, one after another.
//
// A frame is a byte that says what, the length of its message (two bytes, the lower first; past the
// end: what is left) and the message.
#pragma once

#include <cstdint>
#include <string>

namespace tensord::fuzz {

enum class FrameKind : uint8_t {
  kSend = 0,       // v1::SessionStreamRequest
  kRead,           // nothing
  kCut,            // nothing
  kCutUnnoticed,   // nothing
  kWrite,          // v1::WriteRequest
  kEndWrite,       // nothing
  kBreakOffWrite,  // nothing
  kGetUpload,      // v1::GetUploadRequest
  kPublish,        // v1::PublishTensorRequest
  kOpen,           // v1::OpenPublishedRequest
  kUnpublish,      // v1::UnpublishTensorRequest
  kOtherClient,    // nothing: what follows is the other client's
  kRunTurn,        // a byte: which device does a little of its work
  kCount,
};

inline void AppendFrame(FrameKind kind, const std::string& message, std::string* out) {
  out->push_back(static_cast<char>(kind));
  out->push_back(static_cast<char>(message.size() & 0xff));
  out->push_back(static_cast<char>(message.size() >> 8));
  out->append(message);
}

}  // namespace tensord::fuzz
