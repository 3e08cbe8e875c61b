// Compares the estimates of parsed messages with the memory that the parser allocates.
#include "tensord/server/rpc/parsed_size.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tensord/common/util/protobuf_wire.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/sanitized.h"
#include "tensord/tests/unit/rpc/byte_buffer.h"
#include "tensord/tests/unit/session/test_principal.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Code = absl::StatusCode;

constexpr int kElements = 2000;
constexpr int64_t kNoMax = std::numeric_limits<int64_t>::max();

absl::StatusOr<int64_t> Estimate(const std::string& bytes, const Descriptor& type,
                                 size_t slice_bytes = 4096) {
  grpc::ByteBuffer buffer = BufferOf(bytes, slice_bytes);
  return EstimateParsedBytes(&buffer, type, kNoMax);
}

std::string Repeated(const std::string& element) {
  std::string bytes;
  for (int i = 0; i < kElements; ++i) bytes += element;
  return bytes;
}

std::string Delimited(int field, const std::string& content) {
  std::string bytes;
  wire::AppendVarint(wire::Tag(field, wire::kDelimited), &bytes);
  wire::AppendVarint(content.size(), &bytes);
  return bytes + content;
}

// Returns messages of `type` that have many elements of one kind, at any depth. Each element has as
// few bytes as possible.
std::vector<std::string> Densest(const Descriptor& type, int depth = 0) {
  std::vector<std::string> messages = {Repeated("\xfb\x01\xfc\x01"),             // unknown groups
                                       Repeated("\xf8\x01\x01"),                 // unknown numbers
                                       Repeated(std::string("\xfa\x01\0", 3))};  // unknown texts
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() == nullptr && field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      std::string number;
      wire::AppendVarint(wire::Tag(field.number(), wire::kVarint), &number);
      messages.push_back(Repeated(number + '\x01'));
      messages.push_back(Delimited(field.number(), std::string(kElements * 8, '\x01')));
      continue;
    }
    messages.push_back(Repeated(Delimited(field.number(), "")));
    messages.push_back(Repeated(Delimited(field.number(), std::string(17, 'x'))));
    if (field.message_type() == nullptr || depth > 3) continue;
    for (const std::string& inner : Densest(*field.message_type(), depth + 1)) {
      messages.push_back(Delimited(field.number(), inner));
      // The first element of `inner`, if it is short, in each of many messages.
      const std::string first = inner.substr(0, inner.size() / kElements);
      if (first.size() < 32) messages.push_back(Repeated(Delimited(field.number(), first)));
    }
  }
  return messages;
}

int64_t AllocatedBytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Calls fn(type) for the requests of all methods.
template <typename Fn>
void ForEachRequest(Fn fn) {
  for (const char* service : {"TensorService", "PeerService"}) {
    const auto* const found =
        v1::OpenSessionRequest::descriptor()->file()->FindServiceByName(service);
    ASSERT_NE(found, nullptr);
    for (int i = 0; i < found->method_count(); ++i) fn(*found->method(i)->input_type());
  }
}

TEST(ParsedSizeTest, EstimatesCoverTheAllocatedMemoryOfAllRequests) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer replaces the allocator";
  const google::protobuf::LogSilencer silencer;  // each text that isn't UTF-8 would be logged
  ForEachRequest([](const Descriptor& type) {
    for (const std::string& bytes : Densest(type)) {
      const absl::StatusOr<int64_t> estimate = Estimate(bytes, type);
      const std::unique_ptr<google::protobuf::Message> message(
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
      const int64_t before = AllocatedBytes();
      const bool valid = message->ParseFromString(bytes);
      const int64_t allocated = AllocatedBytes() - before;
      ASSERT_FALSE(valid && !estimate.ok()) << type.full_name();
      if (!estimate.ok()) continue;
      ASSERT_LE(allocated, *estimate + 1024)
          << type.full_name() << " of " << bytes.size() << " bytes: " << bytes.substr(0, 32);
      if (valid) {
        ASSERT_LE(static_cast<int64_t>(message->SpaceUsedLong()), *estimate + 1024)
            << type.full_name();
      }
    }
  });
}

TEST(ParsedSizeTest, EstimatesAreTheSameForAllSlices) {
  ForEachRequest([](const Descriptor& type) {
    for (const std::string& bytes : Densest(type, /*depth=*/3)) {
      const absl::StatusOr<int64_t> whole = Estimate(bytes, type);
      for (const size_t slice_bytes : {1, 7}) {
        ASSERT_EQ(Estimate(bytes, type, slice_bytes), whole) << type.full_name();
      }
    }
  });
}

// What a client sends in practice takes a small multiple of its bytes.
TEST(ParsedSizeTest, EstimatesOfDataAndHandlesAreSmall) {
  v1::CreateTensorRequest create;
  create.set_data(std::string(1 << 20, 'x'));
  EXPECT_LT(*Estimate(create.SerializeAsString(), *create.GetDescriptor()), (1 << 20) + 1024);
  v1::DeleteTensorsRequest remove;
  for (int i = 0; i < 10000; ++i) remove.add_handles(1 << 20);
  EXPECT_LE(*Estimate(remove.SerializeAsString(), *remove.GetDescriptor()), 161024);
}

TEST(ParsedSizeTest, StopsAtTheLimit) {
  const std::string bytes = Repeated(std::string("\x12\0", 2));
  const auto& type = *v1::RunOpsRequest::descriptor();
  grpc::ByteBuffer buffer = BufferOf(bytes);
  const int64_t counted = *EstimateParsedBytes(&buffer, type, 1000);
  EXPECT_GT(counted, 1000);
  EXPECT_LT(counted, 2000);
  EXPECT_GT(*EstimateParsedBytes(&buffer, type, kNoMax), 2000);
}

class ParsedChargeTest : public testing::Test {
 protected:
  absl::Status Charge(ParsedCharge* charge, const std::string& bytes) {
    grpc::ByteBuffer buffer = BufferOf(bytes);
    return charge->Take(caller_, &buffer, *v1::RunOpsRequest::descriptor());
  }

  int64_t used_bytes() const { return caller_->budget(PrincipalLimit::kHostBytes).used(); }

  PrincipalRef caller_ = TestPrincipalWith({.max_host_bytes_per_principal = 200 << 10});
  const std::string ops_ = Repeated(std::string("\x12\0", 2)).substr(0, 1000);  // 100 to 200 KiB
};

TEST_F(ParsedChargeTest, ChargesUntilItIsDestroyed) {
  {
    ParsedCharge charge;
    ASSERT_TRUE(Charge(&charge, ops_).ok());
    EXPECT_EQ(used_bytes(), charge.bytes());
    EXPECT_GT(charge.bytes(), 50 * static_cast<int64_t>(ops_.size()));
    ParsedCharge second;
    ASSERT_TRUE(Charge(&second, ops_.substr(0, 100)).ok());
    EXPECT_EQ(used_bytes(), charge.bytes());
  }
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(ParsedChargeTest, RefusesWhatTheCallersLimitDoesNotLeave) {
  ParsedCharge first, second;
  ParsedCharge moderate(ParsedCharge::AtLimit::kModerate);
  ASSERT_TRUE(Charge(&first, ops_).ok());
  ASSERT_TRUE(Charge(&second, ops_).code() == Code::kResourceExhausted) << first.bytes();
  EXPECT_TRUE(Charge(&moderate, ops_).ok());
}

TEST_F(ParsedChargeTest, RefusesMessagesThatTakeManyTimesTheirSize) {
  caller_ = TestPrincipal();
  ParsedCharge charge;
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += Repeated(std::string("\x12\0", 2));
  ExpectError(Charge(&charge, bytes), Code::kResourceExhausted,
              {"a tensord.v1.RunOpsRequest of 400000 bytes takes more than 23177216 bytes"});
}

TEST_F(ParsedChargeTest, LimitsTheMessageOfACallWithoutCaller) {
  ParsedCharge charge;
  grpc::ByteBuffer buffer = BufferOf(ops_);
  const auto& type = *v1::RunOpsRequest::descriptor();
  ExpectError(charge.Take(nullptr, &buffer, type), Code::kResourceExhausted, {"16384"});
  EXPECT_EQ(used_bytes(), 0);
}

}  // namespace
}  // namespace tensord::server
