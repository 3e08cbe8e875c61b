// The messages of Write and Read, encoded by hand, so that their data is copied once between the
// caller's memory and gRPC's buffers, and not into protobuf strings. Thread-safe: pure functions.
#pragma once

#include <cstdint>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Returns a WriteRequest with `offset` and `data`, which it references.
grpc::ByteBuffer EncodeChunk(int64_t offset, const grpc::Slice& data);

// Returns any message in one slice.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);
// Returns false if the bytes are no such message.
bool DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message);

// Decodes a ReadResponse: appends its data to the `*filled` bytes that `out` has, and sets `spec`
// if the message has one. INTERNAL if the message is malformed, has more data than fits, or doesn't
// start at `*filled`.
absl::Status DecodeChunk(grpc::ByteBuffer* buffer, absl::Span<uint8_t> out, int64_t* filled,
                         v1::TensorSpec* spec);

}  // namespace tensord::internal
