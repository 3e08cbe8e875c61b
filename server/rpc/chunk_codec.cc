#include "tensord/server/rpc/chunk_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/protobuf_wire.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using wire::kDelimited;
using wire::kVarint;
using wire::Tag;

absl::Status Malformed(const google::protobuf::MessageLite& message) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not a valid ", message.GetTypeName(), " message"));
}

// The maximum size of a tag or length. Protobuf's parser refuses longer ones.
constexpr int kMaxVarint32Bytes = 5;

bool ReadLength(CodedInputStream* in, int* length) {
  const int start = in->CurrentPosition();
  return in->ReadVarintSizeAsInt(length) && in->CurrentPosition() - start <= kMaxVarint32Bytes &&
         *length <= in->BytesUntilLimit();
}

// Returns the next tag. At the end of the message, and if the tag is too long, returns 0. After a
// tag that is too long, ConsumedEntireMessage() returns false.
uint32_t ReadTag(CodedInputStream* in) {
  const int start = in->CurrentPosition();
  const uint32_t tag = in->ReadTag();
  return in->CurrentPosition() - start <= kMaxVarint32Bytes ? tag : 0;
}

// Skips an unknown field. Groups may be nested as deep as protobuf's parser allows.
bool SkipField(CodedInputStream* in, uint32_t tag, int depth = 0) {
  constexpr int kMaxDepth = 100;
  constexpr auto kStartGroup = WireFormatLite::WIRETYPE_START_GROUP;
  int length = 0;
  if (WireFormatLite::GetTagFieldNumber(tag) == 0) return false;
  switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
      return ReadLength(in, &length) && in->Skip(length);
    case kStartGroup: {
      if (depth == kMaxDepth) return false;
      const uint32_t end = tag - kStartGroup + WireFormatLite::WIRETYPE_END_GROUP;
      uint32_t next = ReadTag(in);
      while (next != 0 && next != end && SkipField(in, next, depth + 1)) next = ReadTag(in);
      return next == end;
    }
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

// The fields of all three messages have the same numbers. Each message has its own enumeration, and
// compilers warn about comparisons of two enumerations. So int{} converts the numbers.
static_assert(int{v1::WriteRequest::kSpecFieldNumber} == int{v1::ReadResponse::kSpecFieldNumber});
static_assert(int{v1::WriteRequest::kOffsetFieldNumber} ==
              int{v1::ReadResponse::kOffsetFieldNumber});
static_assert(int{v1::WriteRequest::kDataFieldNumber} == int{v1::ReadResponse::kDataFieldNumber});
static_assert(int{v1::FetchResponse::kSpecFieldNumber} == int{v1::ReadResponse::kSpecFieldNumber});
static_assert(int{v1::FetchResponse::kOffsetFieldNumber} ==
              int{v1::ReadResponse::kOffsetFieldNumber});
static_assert(int{v1::FetchResponse::kDataFieldNumber} == int{v1::ReadResponse::kDataFieldNumber});

// All submessages of a message together may have this size. Their unknown fields may take 60 times
// the bytes when they are parsed.
constexpr int64_t kMaxPartsBytes = 64 << 10;

bool MergePart(CodedInputStream* in, google::protobuf::MessageLite* part, int64_t* left) {
  int length = 0;
  std::string bytes;
  return ReadLength(in, &length) && (*left -= length) >= 0 && in->ReadString(&bytes, length) &&
         part->MergeFromString(bytes);
}

// Both overloads read a field that the other message doesn't have.
bool ReadOther(CodedInputStream* in, uint32_t tag, WriteChunk* /*chunk*/, int64_t* /*left*/) {
  return SkipField(in, tag);
}
bool ReadOther(CodedInputStream* in, uint32_t tag, FetchChunk* chunk, int64_t* left) {
  switch (tag) {
    case Tag(v1::FetchResponse::kRingFieldNumber, kDelimited):
      chunk->has_ring = true;
      return MergePart(in, &chunk->ring, left);
    case Tag(v1::FetchResponse::kSlotFieldNumber, kDelimited):
      chunk->has_slot = true;
      return MergePart(in, &chunk->slot, left);
    default:
      return SkipField(in, tag);
  }
}

// Subtracts the sizes of submessages from `left`. If it falls below 0, returns false.
template <typename AnyChunk>
bool ReadField(CodedInputStream* in, uint32_t tag, AnyChunk* chunk, int64_t* left) {
  int length = 0;
  switch (tag) {
    case Tag(v1::WriteRequest::kSpecFieldNumber, kDelimited):
      chunk->has_spec = true;
      return MergePart(in, &chunk->spec, left);
    case Tag(v1::WriteRequest::kOffsetFieldNumber, kVarint): {
      uint64_t offset = 0;
      if (!in->ReadVarint64(&offset)) return false;
      chunk->offset = static_cast<int64_t>(offset);
      return true;
    }
    case Tag(v1::WriteRequest::kDataFieldNumber, kDelimited):
      if (!ReadLength(in, &length)) return false;
      chunk->data_position = in->CurrentPosition();
      chunk->data_bytes = length;
      return in->Skip(length);
    default:
      return ReadOther(in, tag, chunk, left);
  }
}

template <typename Message, typename AnyChunk>
absl::StatusOr<AnyChunk> DecodeChunk(grpc::ByteBuffer* message) {
  grpc::ProtoBufferReader reader(message);
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(message->Length()));
  AnyChunk chunk;
  int64_t left = kMaxPartsBytes;
  while (const uint32_t tag = ReadTag(&in)) {
    if (!ReadField(&in, tag, &chunk, &left)) return Malformed(Message::default_instance());
  }
  if (!in.ConsumedEntireMessage()) return Malformed(Message::default_instance());
  return chunk;
}

}  // namespace

absl::StatusOr<WriteChunk> DecodeWriteRequest(grpc::ByteBuffer* message) {
  return DecodeChunk<v1::WriteRequest, WriteChunk>(message);
}

absl::StatusOr<FetchChunk> DecodeFetchResponse(grpc::ByteBuffer* message) {
  return DecodeChunk<v1::FetchResponse, FetchChunk>(message);
}

void CopyOut(grpc::ByteBuffer* message, int64_t position, int64_t bytes, void* out) {
  if (bytes == 0) return;
  grpc::ProtoBufferReader reader(message);
  reader.Skip(static_cast<int>(position));
  auto* to = static_cast<char*>(out);
  const void* from = nullptr;
  int size = 0;
  while (bytes > 0 && reader.Next(&from, &size)) {
    const int64_t taken = std::min<int64_t>(size, bytes);
    std::memcpy(to, from, taken);
    to += taken;
    bytes -= taken;
  }
}

grpc::ByteBuffer EncodeReadResponse(const v1::TensorSpec* spec, int64_t offset,
                                    const grpc::Slice& data) {
  std::string header;
  if (spec != nullptr) {
    v1::ReadResponse first;
    *first.mutable_spec() = *spec;
    header = first.SerializeAsString();
  }
  uint8_t fields[32];
  uint8_t* end = fields;
  end = CodedOutputStream::WriteVarint32ToArray(Tag(v1::ReadResponse::kOffsetFieldNumber, kVarint),
                                                end);
  end = CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(offset), end);
  end = CodedOutputStream::WriteVarint32ToArray(Tag(v1::ReadResponse::kDataFieldNumber, kDelimited),
                                                end);
  end = CodedOutputStream::WriteVarint64ToArray(data.size(), end);
  header.append(reinterpret_cast<const char*>(fields), end - fields);
  const grpc::Slice slices[] = {grpc::Slice(header), data};
  return grpc::ByteBuffer(slices, data.size() == 0 ? 1 : 2);
}

namespace {

absl::Status Parse(grpc::ByteBuffer* buffer, google::protobuf::Message* message) {
  grpc::ProtoBufferReader reader(buffer);
  if (!message->ParseFromZeroCopyStream(&reader)) return Malformed(*message);
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::Message* message) {
  absl::Status status = CheckParsedSize(buffer, *message->GetDescriptor());
  if (status.ok()) status = Parse(buffer, message);
  buffer->Clear();
  return status;
}

absl::Status DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::Message* message,
                           const PrincipalRef& caller, ParsedCharge* charge) {
  absl::Status status = charge->Take(caller, buffer, *message->GetDescriptor());
  if (status.ok()) status = Parse(buffer, message);
  buffer->Clear();
  return status;
}

grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace tensord::server
