#include "tensord/client/internal/wire.h"

#include <gmock/gmock.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

namespace tensord::internal {
namespace {

using ::testing::ElementsAre;

TEST(WireTest, SpecsSurviveARoundTrip) {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape({}), Shape({0}), Shape({2, 3, 5})}) {
      v1::TensorSpec proto;
      SpecToProto({dtype, shape}, &proto);
      EXPECT_EQ(SpecFromProto(proto).value(), (TensorSpec{dtype, shape}));
    }
  }
}

TEST(WireTest, InvalidSpecOfAServerIsInternal) {
  v1::TensorSpec proto;
  EXPECT_EQ(SpecFromProto(proto).status().code(), absl::StatusCode::kInternal);
  proto.set_dtype(static_cast<v1::DType>(1000 * 256 + 8));  // must not be taken for a float32
  EXPECT_EQ(SpecFromProto(proto).status().code(), absl::StatusCode::kInternal);
  proto.set_dtype(v1::DTYPE_FLOAT32);
  proto.add_shape(-1);
  EXPECT_EQ(SpecFromProto(proto).status().code(), absl::StatusCode::kInternal);
}

TEST(WireTest, AListedHandleMayHaveFailed) {
  v1::Tensor proto;
  proto.set_handle(7);
  EXPECT_EQ(TensorFromProto(proto).value().spec.dtype, DType::kUnspecified);
  EXPECT_TRUE(TensorFromProto(proto).value().status.ok());
  proto.set_error_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  proto.set_error_message("cpu:0 is out of memory");
  EXPECT_EQ(TensorFromProto(proto).value().status,
            absl::ResourceExhaustedError("cpu:0 is out of memory"));
  proto.mutable_spec()->set_dtype(v1::DTYPE_INT8);
  proto.mutable_spec()->add_shape(-1);
  EXPECT_EQ(TensorFromProto(proto).status().code(), absl::StatusCode::kInternal);
}

TEST(WireTest, EveryKindOfAttributeKeepsItsKind) {
  v1::AttrValue proto;
  AttrToProto(true, &proto);
  EXPECT_TRUE(proto.b());
  AttrToProto(int64_t{-3}, &proto);
  EXPECT_EQ(proto.i(), -3);
  AttrToProto(2.5, &proto);
  EXPECT_EQ(proto.f(), 2.5);
  AttrToProto(std::string("relu"), &proto);
  EXPECT_EQ(proto.s(), "relu");
  AttrToProto(std::vector<int64_t>{1, -1}, &proto);
  EXPECT_THAT(proto.ints().values(), ElementsAre(1, -1));
  AttrToProto(DType::kInt8, &proto);
  EXPECT_EQ(proto.dtype(), v1::DTYPE_INT8);
  AttrToProto(Bytes{"xy"}, &proto);
  EXPECT_EQ(proto.data(), "xy");
}

TEST(WireTest, KeepsTheServersMessage) {
  EXPECT_EQ(StatusFromGrpc(grpc::Status(grpc::StatusCode::NOT_FOUND, "no tensor 7"), "h:1"),
            absl::NotFoundError("no tensor 7"));
  EXPECT_TRUE(StatusFromGrpc(grpc::Status::OK, "h:1").ok());
}

TEST(WireTest, UnreachableServerIsUnavailableAndNamed) {
  const absl::Status status =
      StatusFromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "refused"), "h:1");
  EXPECT_EQ(status, absl::UnavailableError("tensord server at h:1: refused"));
}

}  // namespace
}  // namespace tensord::internal
