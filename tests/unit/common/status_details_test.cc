// The details of a status for programs: encoding and decoding.
#include "tensord/common/status_details.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace tensord {
namespace {

const absl::Status kReached = ToStatus({.reason = "SESSION_BYTES_EXCEEDED",
                                        .subject = "session",
                                        .limit = "max-bytes-per-session",
                                        .value = 100,
                                        .message = "no more"});

TEST(StatusDetailsTest, LimitIsNamedInMessageAndDetails) {
  EXPECT_EQ(kReached.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(kReached.message()), "no more (--max-bytes-per-session=100)");
  EXPECT_EQ(ErrorReason(kReached), "SESSION_BYTES_EXCEEDED");
  EXPECT_EQ(ErrorMetadataValue(kReached, "value"), "100");
  EXPECT_EQ(ErrorMetadataValue(kReached, "nothing"), "");
}

TEST(StatusDetailsTest, InvalidCodeIsUnknown) {
  EXPECT_EQ(StatusFromCode(4711, "x").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromCode(-1, "x").code(), absl::StatusCode::kUnknown);
  EXPECT_TRUE(StatusFromCode(0, "x").ok());
}

TEST(StatusDetailsTest, SurvivesEncodingAndAPrefix) {
  const std::string wire = EncodeDetails(kReached, kReached.message());
  EXPECT_EQ(StatusFromCode(static_cast<int>(kReached.code()), kReached.message(), wire), kReached);
  const absl::Status longer = WithPrefix(kReached, "add: ");
  EXPECT_EQ(std::string(longer.message()), "add: no more (--max-bytes-per-session=100)");
  EXPECT_EQ(ErrorReason(longer), "SESSION_BYTES_EXCEEDED");
  EXPECT_EQ(EncodeDetails(absl::NotFoundError("x"), "x"), "");
}

// The expected bytes are those of protoc --encode=google.rpc.ErrorInfo.
TEST(StatusDetailsTest, EncodesAsErrorInfo) {
  const absl::Status status = WithErrorInfo(absl::NotFoundError("x"), "GONE", {{"k", "v"}});
  EXPECT_EQ(absl::BytesToHexString(std::string(*status.GetPayload(kErrorInfoUrl))),
            "0a04474f4e45120774656e736f72641a060a016b120176");
}

TEST(StatusDetailsTest, InvalidDetailsChangeNothing) {
  const std::string wire = EncodeDetails(kReached, kReached.message());
  for (size_t size = 0; size < wire.size(); ++size) {
    absl::Status status = absl::ResourceExhaustedError("x");
    DecodeDetails(absl::string_view(wire).substr(0, size), &status);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  }
  for (const std::string& bytes :
       {std::string(20, '\xff'), std::string("\x1a\x7f"), std::string(9, '\x1b')}) {
    absl::Status status = absl::NotFoundError("x");
    DecodeDetails(bytes, &status);
    EXPECT_EQ(status, absl::NotFoundError("x"));
  }
}

}  // namespace
}  // namespace tensord
