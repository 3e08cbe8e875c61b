// The messages of Write, Read and Fetch by hand: a payload goes between gRPC's buffers and a
// tensor's memory without a stop in a protobuf field.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// A message whose data still lies in the buffer that it came in.
struct Chunk {
  bool has_spec = false;
  int64_t offset = 0;
  // Where the data lies in the message.
  int64_t data_position = 0;
  int64_t data_bytes = 0;
};

// A WriteRequest, and a FetchResponse: which differ in what they call a spec, and in what else may
// be in it.
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

// What protobuf's own parser would find: a field that comes again replaces what came before (a spec
// is merged), unknown fields are passed over. INVALID_ARGUMENT where it would refuse the message.
absl::StatusOr<WriteChunk> DecodeWriteRequest(grpc::ByteBuffer* message);
absl::StatusOr<FetchChunk> DecodeFetchResponse(grpc::ByteBuffer* message);

// Copies the `bytes` that lie at `position` of the message to `out`. There must be as many.
void CopyOut(grpc::ByteBuffer* message, int64_t position, int64_t bytes, void* out);

// A ReadResponse, or a FetchResponse, with `offset` and `data`, and with `spec` where it isn't
// null.
grpc::ByteBuffer EncodeReadResponse(const v1::TensorSpec* spec, int64_t offset,
                                    const grpc::Slice& data);

// INVALID_ARGUMENT where the bytes are no such message.
absl::Status DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message);
// Whether parsing the bytes as a message of `type` would make at most `most` messages within it:
// each takes some fifty bytes and more, and two bytes on the wire. RESOURCE_EXHAUSTED where it
// would make more; bytes that are no such message are left to the parser.
absl::Status CheckParts(grpc::ByteBuffer* buffer, const google::protobuf::Descriptor& type,
                        int64_t most);
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);

}  // namespace tensord::server
