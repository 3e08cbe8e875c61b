#include "tensord/client/internal/bulk_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/protobuf_wire.h"

namespace tensord::internal {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using wire::kDelimited;
using wire::kVarint;
using wire::Tag;

bool ReadSpec(CodedInputStream* in, v1::TensorSpec* spec) {
  uint32_t length = 0;
  std::string bytes;
  return in->ReadVarint32(&length) && in->ReadString(&bytes, static_cast<int>(length)) &&
         spec->ParseFromString(bytes);
}

absl::Status ReadData(CodedInputStream* in, absl::Span<uint8_t> out, int64_t* filled) {
  uint32_t length = 0;
  // Protobuf allows no larger messages, and ReadRaw would interpret the length as negative.
  if (!in->ReadVarint32(&length) || length > INT32_MAX) {
    return absl::InternalError("malformed chunk");
  }
  if (length > out.size() - *filled) {
    return absl::InternalError(
        absl::StrCat("the server sent more than the ", out.size(), " requested bytes"));
  }
  if (!in->ReadRaw(out.data() + *filled, static_cast<int>(length))) {
    return absl::InternalError("truncated chunk");
  }
  *filled += length;
  return absl::OkStatus();
}

}  // namespace

grpc::ByteBuffer EncodeChunk(int64_t offset, const grpc::Slice& data) {
  uint8_t header[32];
  uint8_t* end = header;
  end = CodedOutputStream::WriteVarint32ToArray(Tag(v1::WriteRequest::kOffsetFieldNumber, kVarint),
                                                end);
  end = CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(offset), end);
  end = CodedOutputStream::WriteVarint32ToArray(Tag(v1::WriteRequest::kDataFieldNumber, kDelimited),
                                                end);
  end = CodedOutputStream::WriteVarint64ToArray(data.size(), end);
  const grpc::Slice slices[] = {grpc::Slice(header, end - header), data};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool DecodeMessage(grpc::ByteBuffer* buffer, google::protobuf::MessageLite* message) {
  grpc::ProtoBufferReader reader(buffer);
  return message->ParseFromZeroCopyStream(&reader);
}

absl::Status DecodeChunk(grpc::ByteBuffer* buffer, absl::Span<uint8_t> out, int64_t* filled,
                         v1::TensorSpec* spec) {
  grpc::ProtoBufferReader reader(buffer);
  CodedInputStream in(&reader);
  const int64_t expected = *filled;
  uint64_t offset = 0;
  while (const uint32_t tag = in.ReadTag()) {
    absl::Status status;
    if (tag == Tag(v1::ReadResponse::kDataFieldNumber, kDelimited)) {
      status = ReadData(&in, out, filled);
    } else if (tag == Tag(v1::ReadResponse::kSpecFieldNumber, kDelimited)) {
      if (!ReadSpec(&in, spec)) status = absl::InternalError("malformed spec");
    } else if (tag == Tag(v1::ReadResponse::kOffsetFieldNumber, kVarint)) {
      if (!in.ReadVarint64(&offset)) status = absl::InternalError("malformed offset");
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      status = absl::InternalError("malformed message");
    }
    if (!status.ok()) return status;
  }
  if (!in.ConsumedEntireMessage()) return absl::InternalError("malformed message");
  if (*filled != expected && static_cast<int64_t>(offset) != expected) {
    return absl::InternalError(
        absl::StrCat("the server sent byte ", offset, " instead of byte ", expected));
  }
  return absl::OkStatus();
}

}  // namespace tensord::internal
