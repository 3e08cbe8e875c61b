// Tests a client of a server without the feature "dtypes-2". The test double lists no features.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/control_plane/control_plane.h"

namespace tensord::control_plane {
namespace {

using testing::HasSubstr;

class OlderServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto client = Client::Connect("inproc-0:1");
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    cpu_ = client_.TryDevice();
  }

  static std::vector<Tensor> Copy(absl::Span<const Tensor> x) { return {x.begin(), x.end()}; }

  static void ExpectUpdateHint(const absl::Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(status.message(), message + "; update the server, or use another dtype");
  }

  ControlPlane plane_;
  Client client_;
  Device cpu_;
};

TEST_F(OlderServerTest, NewDTypesAreRefusedAtTheCall) {
  const std::string server = "tensord server at inproc-0:1 (version 0.1.0)";
  for (const auto& [dtype, name] :
       {std::pair(DType::kInt16, "int16"), std::pair(DType::kUInt16, "uint16"),
        std::pair(DType::kUInt32, "uint32"), std::pair(DType::kUInt64, "uint64"),
        std::pair(DType::kComplex64, "complex64"), std::pair(DType::kComplex128, "complex128")}) {
    const std::string lacks = server + " doesn't have " + name;
    ExpectUpdateHint(Zeros(cpu_, {2}, {dtype}).status(), "zeros: " + lacks);
    const auto program = Program::Record(cpu_, {{dtype, {2}}}, Copy);
    ExpectUpdateHint(program.status(), "program: " + lacks);
  }
  ExpectUpdateHint(FromVector<uint16_t>(cpu_, {1, 2}).status(),
                   "constant: " + server + " doesn't have uint16");
  const std::vector<std::complex<float>> many(1 << 20);
  ExpectUpdateHint(FromVector<std::complex<float>>(cpu_, many).status(),
                   "transfer: " + server + " doesn't have complex64");
}

// An older server would make an int32 tensor of these operands.
TEST_F(OlderServerTest, PromotionToANewDTypeIsRefused) {
  const Tensor sum = Ones(cpu_, {2}, {DType::kInt8}) + Ones(cpu_, {2}, {DType::kUInt8});
  EXPECT_THAT(std::string(sum.status().message()), HasSubstr("add: "));
  EXPECT_THAT(std::string(sum.status().message()), HasSubstr("doesn't have int16"));
  const auto program = Program::Record(
      cpu_, {{DType::kInt8, {2}}, {DType::kUInt8, {2}}}, [](absl::Span<const Tensor> x) {
        return std::vector<Tensor>{Cast(x[0] + x[1], DType::kInt32)};
      });
  EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented) << program.status();
}

TEST_F(OlderServerTest, OtherDTypesAreSent) {
  const Tensor x = Ones(cpu_, {2}, {DType::kInt32});
  EXPECT_FALSE((x + Cast(x, DType::kUInt64)).ok());
  const Tensor sum = x + Cast(Cast(x, DType::kInt8), DType::kInt32);
  EXPECT_EQ(sum.dtype(), DType::kInt32);
  EXPECT_TRUE(client_.Synchronize().ok());
  EXPECT_GE(plane_.commands(), 4);  // ones, two casts, add
}

}  // namespace
}  // namespace tensord::control_plane
