#include "tensord/client/internal/stream_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord::internal {
namespace {

using testing::HasSubstr;

absl::Status Classify(grpc::StatusCode code) {
  return ClassifyCloseStatus(grpc::Status(code, "why"), "gpu-a:50051");
}

TEST(StreamConnectionTest, BrokenConnectionsMayBeRetried) {
  for (const grpc::StatusCode code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED,
                                      grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL}) {
    const absl::Status status = Classify(code);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("gpu-a:50051: why"));
  }
}

TEST(StreamConnectionTest, LostSessionIsDataLoss) {
  EXPECT_TRUE(absl::IsDataLoss(Classify(grpc::StatusCode::NOT_FOUND)));
}

TEST(StreamConnectionTest, StreamThatTheServerEndsIsNotRetried) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Classify(grpc::StatusCode::OK)));
}

TEST(StreamConnectionTest, ErrorsOfTheServerAreKept) {
  EXPECT_TRUE(absl::IsUnauthenticated(Classify(grpc::StatusCode::UNAUTHENTICATED)));
  EXPECT_TRUE(absl::IsResourceExhausted(Classify(grpc::StatusCode::RESOURCE_EXHAUSTED)));
}

}  // namespace
}  // namespace tensord::internal
