// Encodes and decodes the messages of Write, Read and Fetch by hand. So a payload goes between
// gRPC's buffers and a tensor's memory without a copy in a protobuf field.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/rpc/parsed_size.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// A decoded message. Its data stays in the encoded message.
struct Chunk {
  bool has_spec = false;
  int64_t offset = 0;
  // The position of the data in the encoded message.
  int64_t data_position = 0;
  int64_t data_bytes = 0;
};

// A decoded WriteRequest and FetchResponse. The two messages have specs of different types, and a
// FetchResponse has more fields.
struct WriteChunk : Chunk {
  v1::WriteSpec spec;
};
struct FetchChunk : Chunk {
  v1::TensorSpec spec;
  bool has_ring = false;
  bool has_slot = false;
  v1::SharedRing ring;
  v1::SharedSlot slot;
};

// Both functions decode a message as protobuf's parser does. If a field is repeated, the last value
// counts, but submessages are merged. Unknown fields are ignored. If the parser would refuse the
// message, or its submessages have more than 64 KiB, both return INVALID_ARGUMENT.
absl::StatusOr<WriteChunk> DecodeWriteRequest(grpc::ByteBuffer* message);
absl::StatusOr<FetchChunk> DecodeFetchResponse(grpc::ByteBuffer* message);

// Copies `bytes` bytes of the encoded message, from `position` on, to `out`. The message must have
// that many.
void CopyOut(grpc::ByteBuffer* message, int64_t position, int64_t bytes, void* out);

// Encodes a ReadResponse, or a FetchResponse, with these fields. `spec` may be null. Refers to
// `data` without a copy.
grpc::ByteBuffer EncodeReadResponse(const v1::TensorSpec* spec, int64_t offset,
                                    const grpc::Slice& data);

// Parses the bytes, and empties `buffer`: a call that waits afterwards doesn't keep them. If they
// are malformed, returns INVALID_ARGUMENT. If the parsed message would take more than
// ParsedCharge::kUnchargedBytes, parses nothing and returns RESOURCE_EXHAUSTED.
absl::Status DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::Message* message);
// Parses the bytes after it has charged the parsed message to `caller` (ParsedCharge::Take).
absl::Status DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::Message* message,
                           const PrincipalRef& caller, ParsedCharge* charge);
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);

}  // namespace tensord::server
