// Encodes and decodes the messages of Write and Read by hand. So data is copied at most once,
// between the caller's memory and gRPC's buffers, and never into protobuf strings. Pure functions.
#pragma once

#include <cstdint>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Returns an encoded WriteRequest with `offset` and `data`. It references the memory of `data`.
grpc::ByteBuffer EncodeChunk(int64_t offset, const grpc::Slice& data);

// Returns the encoded message in one slice.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);
// Decodes `buffer` into `message`. Returns false if the bytes are malformed.
bool DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message);

// Decodes a ReadResponse. Appends its data to the first `*filled` bytes of `out`, adds its size to
// `*filled`, and sets `spec` if the message has one. If the message is malformed, has more data
// than fits, or doesn't start at `*filled`, returns INTERNAL.
absl::Status DecodeChunk(grpc::ByteBuffer* buffer, absl::Span<uint8_t> out, int64_t* filled,
                         v1::TensorSpec* spec);

}  // namespace tensord::internal
