// Bounds and charges the memory of parsed messages. A message of a few megabytes on the wire may
// take gigabytes when it is parsed: an empty submessage has two bytes, and an object that is a
// hundred times as large.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// Returns an upper estimate, in bytes, of what the parser would allocate for a message of `type`,
// without the object of the message itself. If the estimate exceeds `max_bytes`, returns what it has
// counted so far. If the estimate sees that the parser would refuse the message, returns
// INVALID_ARGUMENT. It doesn't check whether texts are valid UTF-8. Parses nothing. Thread-safe.
absl::StatusOr<int64_t> EstimateParsedBytes(grpc::ByteBuffer* message,
                                            const google::protobuf::Descriptor& type,
                                            int64_t max_bytes);

// The host memory of a caller's parsed message. It is charged to the caller until this object is
// destroyed or Release() is called. Not thread-safe.
class ParsedCharge {
 public:
  // What a message may take if the caller has reached its limit of host memory.
  enum class AtLimit {
    kNothing,
    kModerate,  // up to kModerateBytes, for messages that free memory
  };
  static constexpr int64_t kModerateBytes = 16 << 20;
  // Messages up to this size aren't charged: the charge of the session or the call covers them.
  static constexpr int64_t kUnchargedBytes = 16 << 10;

  explicit ParsedCharge(AtLimit at_limit = AtLimit::kNothing) : at_limit_(at_limit) {}

  // Estimates a message of `type`, and charges the estimate to `caller`. If the parsed message
  // would take more than 16 times its encoded bytes and kModerateBytes, or more than the caller's
  // limit leaves, returns RESOURCE_EXHAUSTED. If `caller` is null, works as CheckParsedSize(). May
  // return INVALID_ARGUMENT for malformed bytes.
  absl::Status Take(const PrincipalRef& caller, grpc::ByteBuffer* message,
                    const google::protobuf::Descriptor& type);
  void Release() { charge_.Clear(); }

  // Returns the estimate of the last message.
  int64_t bytes() const { return bytes_; }

 private:
  const AtLimit at_limit_;
  Charge charge_;
  int64_t bytes_ = 0;
};

// If a parsed message of `type` would take more than ParsedCharge::kUnchargedBytes, returns
// RESOURCE_EXHAUSTED. May return INVALID_ARGUMENT for malformed bytes.
absl::Status CheckParsedSize(grpc::ByteBuffer* message, const google::protobuf::Descriptor& type);

}  // namespace tensord::server
