// Compares the hand-written codec of bulk messages with protobuf's.
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/tests/unit/rpc/byte_buffer.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tensord::server {
namespace {

// Expects that the codec decodes what protobuf decodes, and refuses what protobuf refuses.
void ExpectSameAsProtobuf(const std::string& bytes) {
  v1::WriteRequest expected;
  const bool good = expected.ParseFromString(bytes);
  for (size_t slice_bytes : {1, 3, 7, 1000}) {
    grpc::ByteBuffer buffer = BufferOf(bytes, slice_bytes);
    const absl::StatusOr<WriteChunk> chunk = DecodeWriteRequest(&buffer);
    ASSERT_EQ(chunk.ok(), good) << testing::PrintToString(bytes);
    if (!good) {
      EXPECT_EQ(chunk.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    EXPECT_EQ(chunk->has_spec, expected.has_spec());
    EXPECT_EQ(chunk->spec.SerializeAsString(), expected.spec().SerializeAsString());
    EXPECT_EQ(chunk->offset, expected.offset());
    std::string data(chunk->data_bytes, '?');
    CopyOut(&buffer, chunk->data_position, chunk->data_bytes, data.data());
    EXPECT_EQ(data, expected.data());
  }
}

std::string Sample() {
  v1::WriteRequest request;
  request.mutable_spec()->set_session("0123456789abcdef");
  request.mutable_spec()->set_handle(77);
  request.mutable_spec()->mutable_spec()->add_shape(3);
  request.set_offset(300);
  request.set_data("payload");
  return request.SerializeAsString();
}

TEST(ChunkCodecTest, DecodesWhatProtobufDecodes) {
  ExpectSameAsProtobuf(Sample());
  ExpectSameAsProtobuf("");
  v1::WriteRequest negative;
  negative.set_offset(-1);
  ExpectSameAsProtobuf(negative.SerializeAsString());
}

TEST(ChunkCodecTest, RepeatedFieldReplacesTheFirstAndSpecsAreMerged) {
  v1::WriteRequest first;
  first.mutable_spec()->set_handle(1);
  first.mutable_spec()->set_device("cpu:0");
  first.set_offset(1);
  first.set_data("one");
  v1::WriteRequest second;
  second.mutable_spec()->set_handle(2);
  second.set_offset(2);
  second.set_data("second");
  ExpectSameAsProtobuf(first.SerializeAsString() + second.SerializeAsString());
  ExpectSameAsProtobuf(first.SerializeAsString() + std::string("\x1a\x00", 2));
}

TEST(ChunkCodecTest, IgnoresUnknownFields) {
  // Fields 9 (varint), 10 (bytes), 11 (32 bits), 12 (64 bits), a group, and known numbers of
  // another wire type.
  for (const std::string& extra :
       {std::string("\x48\x05"), std::string("\x52\x03xyz"), std::string("\x5d\1\2\3\4"),
        std::string("\x61\1\2\3\4\5\6\7\x08"), std::string("\x6b\x48\x05\x6c"),
        std::string("\x08\x05"), std::string("\x12\x01x"), std::string("\x18\x05")}) {
    ExpectSameAsProtobuf(extra + Sample());
    ExpectSameAsProtobuf(Sample() + extra);
  }
}

TEST(ChunkCodecTest, RefusesWhatProtobufRefuses) {
  for (const std::string& bytes :
       {std::string("\x1a\x05"
                    "ab"),
        std::string("\x1a\xff\xff\xff\xff\x0f"), std::string("\x1a\xff\xff\xff\xff\x07"),
        std::string("\x0a\x7f"), std::string(10, '\x80'), std::string("\x10\x80"),
        std::string("\x10") + std::string(11, '\xff'), std::string("\x1c"),
        std::string("\x6b\x48\x05"), std::string(1, '\0'), std::string("\x02\x00", 2),
        std::string("\x0a\x03\x0a\x01\xff"),
        // A tag and a length, each in more bytes than it needs and than 32 bits can need.
        std::string("\x9a\x80\x80\x80\x00\x01x", 7),
        std::string("\x9a\x80\x80\x80\x80\x00\x01x", 8),
        std::string("\x1a\x81\x80\x80\x80\x00x", 7),
        std::string("\x1a\x81\x80\x80\x80\x80\x00x", 8),
        std::string("\xb8\xb8\xb8\xb8\xb8\xb8\xb8\xb8\x0a\x05", 10),
        std::string("\x1a\x81\x80\x80\x80\x10x", 7),
        // These are the same for an unknown field and within groups, nested groups, and a group
        // without end.
        std::string("\x7a\x81\x80\x80\x80\x80\x00x", 8),
        std::string("\x73\x7a\x81\x80\x80\x80\x80\x00x\x74", 10),
        std::string("\x73\x7a\x01x\x74", 5), std::string("\x73\x6b\x6c\x74", 4),
        std::string("\x73\x6b\x74\x6c", 4), std::string("\x73", 1),
        std::string(98, '\x73') + std::string(98, '\x74'),
        std::string(99, '\x73') + std::string(99, '\x74'),
        std::string(100, '\x73') + std::string(100, '\x74'),
        std::string(101, '\x73') + std::string(101, '\x74')}) {
    ExpectSameAsProtobuf(bytes);
  }
}

TEST(ChunkCodecTest, AgreesOnTruncatedAndDamagedMessages) {
  const google::protobuf::LogSilencer silencer;  // each refusal would be logged
  const std::string sample = Sample();
  for (size_t size = 0; size < sample.size(); ++size) ExpectSameAsProtobuf(sample.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = sample;
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    ExpectSameAsProtobuf(bytes);
  }
}

TEST(ChunkCodecTest, DecodesReadResponsesLikeProtobuf) {
  v1::TensorSpec spec;
  spec.add_shape(7);
  for (const std::string& data : {std::string(), std::string("0123456")}) {
    for (const v1::TensorSpec* first :
         {static_cast<const v1::TensorSpec*>(nullptr), &std::as_const(spec)}) {
      grpc::ByteBuffer buffer = EncodeReadResponse(first, 1 << 20, grpc::Slice(data));
      grpc::ByteBuffer parsed(buffer);
      v1::ReadResponse response;
      ASSERT_TRUE(DecodeMessage(&parsed, &response).ok());
      EXPECT_EQ(parsed.Length(), 0u);
      EXPECT_EQ(response.offset(), 1 << 20);
      EXPECT_EQ(response.data(), data);
      EXPECT_EQ(response.has_spec(), first != nullptr);
      // The codec must decode the same.
      const absl::StatusOr<FetchChunk> chunk = DecodeFetchResponse(&buffer);
      ASSERT_TRUE(chunk.ok()) << chunk.status();
      EXPECT_EQ(chunk->has_spec, response.has_spec());
      EXPECT_EQ(chunk->spec.SerializeAsString(), response.spec().SerializeAsString());
      EXPECT_EQ(chunk->offset, response.offset());
      std::string out(chunk->data_bytes, '?');
      CopyOut(&buffer, chunk->data_position, chunk->data_bytes, out.data());
      EXPECT_EQ(out, data);
    }
  }
}

// Responses with the messages of a fetch through shared memory: whole, truncated and damaged.
TEST(ChunkCodecTest, DecodesFetchResponsesLikeProtobuf) {
  const google::protobuf::LogSilencer silencer;
  v1::FetchResponse sample;
  sample.mutable_spec()->add_shape(7);
  sample.set_offset(1 << 20);
  sample.mutable_ring()->set_socket_name("tensord-0");
  sample.mutable_ring()->set_slots(3);
  sample.mutable_slot()->set_slot(2);
  sample.mutable_slot()->set_bytes(4 << 20);
  const std::string whole = sample.SerializeAsString();
  std::vector<std::string> messages = {whole, whole + whole};
  for (size_t size = 0; size < whole.size(); ++size) messages.push_back(whole.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    messages.push_back(whole);
    messages.back()[random() % whole.size()] = static_cast<char>(random());
  }
  for (const std::string& bytes : messages) {
    grpc::ByteBuffer buffer = BufferOf(bytes, 5);
    v1::FetchResponse wanted;
    const bool good = wanted.ParseFromString(bytes);
    const absl::StatusOr<FetchChunk> chunk = DecodeFetchResponse(&buffer);
    ASSERT_EQ(chunk.ok(), good) << chunk.status();
    if (!good) continue;
    EXPECT_EQ(chunk->has_spec, wanted.has_spec());
    EXPECT_EQ(chunk->offset, wanted.offset());
    EXPECT_EQ(chunk->has_ring, wanted.has_ring());
    EXPECT_EQ(chunk->ring.SerializeAsString(), wanted.ring().SerializeAsString());
    EXPECT_EQ(chunk->has_slot, wanted.has_slot());
    EXPECT_EQ(chunk->slot.SerializeAsString(), wanted.slot().SerializeAsString());
  }
}

}  // namespace
}  // namespace tensord::server
