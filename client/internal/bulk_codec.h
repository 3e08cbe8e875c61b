// The messages of Write and Read, encoded by hand: their payload goes between the caller's memory
// and the wire's buffers in one copy, past protobuf's own strings.
#pragma once

#include <cstdint>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// A WriteRequest with `offset` and `data`, whose bytes the slice brings from wherever they lie.
grpc::ByteBuffer EncodeChunk(int64_t offset, const grpc::Slice& data);

// Any message, in one slice.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);
// False where the bytes are no such message.
bool DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message);

// A ReadResponse: its data is appended to what lies in `out` already, `*filled` bytes, and `spec`
// is set where the message has one. INTERNAL where the message is malformed, has more than fits, or
// starts elsewhere than at `*filled`.
absl::Status DecodeChunk(grpc::ByteBuffer* buffer, absl::Span<uint8_t> out, int64_t* filled,
                         v1::TensorSpec* spec);

}  // namespace tensord::internal
