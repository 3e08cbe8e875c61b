#include "tensord/client/internal/bulk_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <vector>

namespace tensord::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BulkCodecTest, AChunkIsAWriteRequest) {
  const std::vector<uint8_t> data = {1, 2, 3};
  grpc::ByteBuffer buffer = EncodeChunk(int64_t{1} << 40, grpc::Slice(data.data(), data.size()));
  v1::WriteRequest request;
  ASSERT_TRUE(DecodeMessage(&buffer, &request));
  EXPECT_EQ(request.offset(), int64_t{1} << 40);
  EXPECT_EQ(request.data(), std::string("\1\2\3"));
  EXPECT_FALSE(request.has_spec());
}

TEST(BulkCodecTest, AnEmptyChunkIsAWriteRequestToo) {
  grpc::ByteBuffer buffer = EncodeChunk(0, grpc::Slice());
  v1::WriteRequest request;
  ASSERT_TRUE(DecodeMessage(&buffer, &request));
  EXPECT_TRUE(request.data().empty());
}

v1::ReadResponse Response(int64_t offset, const std::string& data) {
  v1::ReadResponse response;
  response.set_offset(offset);
  response.set_data(data);
  return response;
}

absl::Status Decode(grpc::ByteBuffer buffer, std::vector<uint8_t>* out, int64_t* filled) {
  v1::TensorSpec spec;
  return DecodeChunk(&buffer, absl::MakeSpan(*out), filled, &spec);
}

TEST(BulkCodecTest, ChunksFillTheMemoryInOrder) {
  std::vector<uint8_t> out(5);
  int64_t filled = 0;
  v1::ReadResponse first = Response(0, "ab");
  first.mutable_spec()->set_dtype(v1::DTYPE_UINT8);
  grpc::ByteBuffer buffer = EncodeMessage(first);
  v1::TensorSpec spec;
  ASSERT_TRUE(DecodeChunk(&buffer, absl::MakeSpan(out), &filled, &spec).ok());
  EXPECT_EQ(spec.dtype(), v1::DTYPE_UINT8);
  ASSERT_TRUE(Decode(EncodeMessage(Response(2, "cde")), &out, &filled).ok());
  EXPECT_EQ(filled, 5);
  EXPECT_THAT(out, ElementsAre('a', 'b', 'c', 'd', 'e'));
}

TEST(BulkCodecTest, AChunkMayBeSpreadOverSlices) {
  const std::string bytes = Response(0, "abcde").SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (char byte : bytes) slices.emplace_back(std::string(1, byte));
  std::vector<uint8_t> out(5);
  int64_t filled = 0;
  ASSERT_TRUE(Decode(grpc::ByteBuffer(slices.data(), slices.size()), &out, &filled).ok());
  EXPECT_THAT(out, ElementsAre('a', 'b', 'c', 'd', 'e'));
}

TEST(BulkCodecTest, RefusesChunksThatDoNotFit) {
  std::vector<uint8_t> out(2);
  int64_t filled = 0;
  EXPECT_THAT(Decode(EncodeMessage(Response(0, "abc")), &out, &filled).message(),
              HasSubstr("more than the 2 requested bytes"));
  EXPECT_THAT(Decode(EncodeMessage(Response(1, "a")), &out, &filled).message(),
              HasSubstr("byte 1 instead of byte 0"));
}

TEST(BulkCodecTest, GarbageIsRefused) {
  for (const std::string& bytes :
       {std::string("\x1a\xff\xff\xff\xff\x7f", 6),
        std::string("\x1a\x05"
                    "ab",
                    4),
        std::string("\x0a\x05", 2), std::string("\x10\xff", 2), std::string("\xff", 1)}) {
    const grpc::Slice slice(bytes);
    std::vector<uint8_t> out(100);
    int64_t filled = 0;
    EXPECT_FALSE(Decode(grpc::ByteBuffer(&slice, 1), &out, &filled).ok())
        << testing::PrintToString(bytes);
  }
}

// The memory is larger than the greatest int, so the length doesn't exceed it.
TEST(BulkCodecTest, LengthsPastAnIntAreRefused) {
  constexpr size_t kRoom = size_t{3} << 30;
  void* room = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  const grpc::Slice slice(std::string("\x1a\x80\x80\x80\x80\x08"));  // 2^31 bytes
  grpc::ByteBuffer buffer(&slice, 1);
  int64_t filled = 0;
  v1::TensorSpec spec;
  const absl::Status status =
      DecodeChunk(&buffer, absl::MakeSpan(static_cast<uint8_t*>(room), kRoom), &filled, &spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(filled, 0);
  munmap(room, kRoom);
}

}  // namespace
}  // namespace tensord::internal
