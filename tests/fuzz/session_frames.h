// The format of session_fuzz's input: a list of frames. Each frame is one action of a client.
//
// A frame has a byte with its kind, the length of its message (two bytes, little-endian) and the
// message. If the length exceeds the rest of the input, the message is the rest.
#pragma once

#include <cstdint>
#include <string>

namespace tensord::fuzz {

enum class FrameKind : uint8_t {
  kSend = 0,       // v1::SessionStreamRequest, applied as a whole
  kRead,           // nothing
  kCut,            // nothing
  kCutUnnoticed,   // nothing
  kWrite,          // v1::WriteRequest
  kEndWrite,       // nothing
  kAbortWrite,     // nothing
  kGetUpload,      // v1::GetUploadRequest
  kPublish,        // v1::PublishTensorRequest
  kOpen,           // v1::OpenPublishedRequest
  kUnpublish,      // v1::UnpublishTensorRequest
  kOtherClient,    // nothing; the following frames are actions of the other client
  kRunSlice,       // a byte: the device that runs a part of its tasks
  kSendSlice,      // v1::SessionStreamRequest; its first slice is applied, the smallest possible
  kContinue,       // a byte: applies the smallest slice of an unfinished message; none: all of it
  kClose,          // nothing
  kCreateTicket,   // v1::CreateTicketRequest
  kFetch,          // v1::FetchRequest
  kEndFetch,       // a byte, if the fetch has received all bytes of the tensor
  kReleaseTicket,  // v1::ReleaseTicketRequest
  kCount,
};

inline void AppendFrame(FrameKind kind, const std::string& message, std::string* out) {
  out->push_back(static_cast<char>(kind));
  out->push_back(static_cast<char>(message.size() & 0xff));
  out->push_back(static_cast<char>(message.size() >> 8));
  out->append(message);
}

}  // namespace tensord::fuzz
