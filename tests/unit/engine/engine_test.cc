// Results, immediate errors and memory use of ops.
#include "tensord/server/engine/engine.h"

#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using Ints = std::vector<int64_t>;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using EngineTest = EngineFixture;

TEST_F(EngineTest, OpGivesItsResult) {
  ASSERT_TRUE(Full(1, 3, 20).ok());
  ASSERT_TRUE(Full(2, 3, 22).ok());
  const auto sum = Run("add", {1, 2}, 3);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ((*sum)->spec(), (TensorSpec{DType::kInt64, {3}}));
  EXPECT_EQ((*sum)->device().name().ToString(), "cpu:0");
  EXPECT_THAT(*Read(3), ElementsAre(42, 42, 42));
}

TEST_F(EngineTest, InputsAreCastToTheirCommonDType) {
  ASSERT_TRUE(Full(1, 2, 5).ok());
  ASSERT_TRUE(Run("full", {}, 2,
                  {{"shape", Ints{2}}, {"value", int64_t{-7}}, {"dtype", DType::kInt32}}, "cpu:0")
                  .ok());
  ASSERT_TRUE(Run("add", {1, 2}, 3).ok());
  EXPECT_THAT(*Read(3), ElementsAre(-2, -2));
  EXPECT_THAT(device(0).launched(), ElementsAre("full", "full", "cast", "add"));
  Settle();
  EXPECT_EQ(UsedBytes(0), 16 + 8 + 16) << "the cast's memory is freed";
}

TEST_F(EngineTest, ConstantsContainTheirBytes) {
  const Ints values{1, -2, 3};
  const std::string data(reinterpret_cast<const char*>(values.data()), 24);
  ASSERT_TRUE(Run("constant", {}, 1,
                  {{"shape", Ints{3}}, {"dtype", DType::kInt64}, {"data", Bytes{data}}}, "cpu:1")
                  .ok());
  EXPECT_THAT(*Read(1), ElementsAre(1, -2, 3));
  EXPECT_EQ(UsedBytes(1), 24);
}

TEST_F(EngineTest, EmptyTensorsTakeNoMemory) {
  ASSERT_TRUE(Full(1, 0, 1).ok());
  ASSERT_TRUE(Run("neg", {1}, 2).ok());
  EXPECT_THAT(*Read(2), ElementsAre());
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(EngineTest, ReshapeSharesItsInputsMemory) {
  ASSERT_TRUE(Full(1, 6, 3).ok());
  ASSERT_TRUE(Run("reshape", {1}, 2, {{"shape", Ints{2, 3}}}).ok());
  EXPECT_THAT(*Read(2), ElementsAre(3, 3, 3, 3, 3, 3));
  Settle();
  EXPECT_EQ(UsedBytes(0), 48);
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_EQ(UsedBytes(0), 48) << "the reshaped tensor still needs it";
  ASSERT_TRUE(session_->Delete({2}).ok());
  EXPECT_EQ(UsedBytes(0), 0);
}

TEST_F(EngineTest, TensorTakesMemoryOnlyOnItsDevice) {
  ASSERT_TRUE(Full(1, 100, 3, "cpu:1").ok());
  Settle();
  EXPECT_EQ(UsedBytes(0), 0);
  EXPECT_EQ(UsedBytes(1), 800);
}

TEST_F(EngineTest, CopyToTheSameDeviceReturnsTheTensorItself) {
  ASSERT_TRUE(Full(1, 4, 9).ok());
  Settle();
  const auto copy = engine_->Copy(session_, 1, 2, "cpu:0", /*share=*/false);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ((*copy)->handle(), 1u);
  EXPECT_TRUE(session_->CheckFree(2).ok());
  EXPECT_EQ(UsedBytes(0), 32);
  EXPECT_EQ(device(0).memory().peak_bytes, 32);
}

TEST_F(EngineTest, CopyToTheSameDeviceMayShareUnderANewHandle) {
  ASSERT_TRUE(Full(1, 4, 9).ok());
  ASSERT_TRUE(engine_->Copy(session_, 1, 2, "cpu:0", /*share=*/true).ok());
  EXPECT_THAT(*Read(2), ElementsAre(9, 9, 9, 9));
  EXPECT_EQ(UsedBytes(0), 32);
  EXPECT_EQ((*session_->Find(1))->buffer(), (*session_->Find(2))->buffer());
}

TEST_F(EngineTest, CopyToAnotherDevice) {
  ASSERT_TRUE(Full(1, 4, 9).ok());
  ASSERT_TRUE(engine_->Copy(session_, 1, 2, "cpu:1", false).ok());
  EXPECT_THAT(*Read(2), ElementsAre(9, 9, 9, 9));
  EXPECT_EQ(UsedBytes(0), 32);
  EXPECT_EQ(UsedBytes(1), 32);
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_THAT(*Read(2), ElementsAre(9, 9, 9, 9));
}

TEST_F(EngineTest, CrossDeviceErrorNamesBothTensorsAndTheCopy) {
  ASSERT_TRUE(Full(17, 4, 1, "cpu:0").ok());
  ASSERT_TRUE(Full(23, 4, 1, "cpu:1").ok());
  ExpectError(Run("add", {17, 23}, 3), Code::kInvalidArgument,
              {"add", "tensor 17", "tensor 23", "int64[4]", "cpu:0", "cpu:1", "copy"});
  EXPECT_TRUE(session_->CheckFree(3).ok());
}

TEST_F(EngineTest, DevicesAreFoundByName) {
  EXPECT_EQ((*engine_->FindDevice("cpu"))->index, 0);
  EXPECT_EQ((*engine_->FindDevice("cpu:1"))->index, 1);
  ExpectError(engine_->FindDevice("cuda:0"), Code::kNotFound, {"cuda:0", "cpu:0, cpu:1"});
  ExpectError(engine_->FindDevice("gpu:x"), Code::kInvalidArgument);
  ExpectError(engine_->FindDevice(""), Code::kInvalidArgument);
}

// Each call fails at once, makes no tensor, and leaves the session usable.
TEST_F(EngineTest, InvalidOpsFailAtOnce) {
  ASSERT_TRUE(Full(1, 4, 9).ok());
  ASSERT_TRUE(Full(2, 3, 9).ok());
  ExpectError(Run("add", {1, 99}, 5), Code::kNotFound, {"add", "99"});
  ExpectError(Run("add", {1, 0}, 5), Code::kInvalidArgument, {"add", "handle 0"});
  ExpectError(Run("add", {1, 2}, 5), Code::kInvalidArgument, {"add", "int64[4]", "int64[3]"});
  ExpectError(Run("add", {1}, 5), Code::kInvalidArgument, {"add"});
  ExpectError(Run("no_such_op", {1}, 5), Code::kNotFound, {"no_such_op"});
  ExpectError(Run("neg", {1}, 0), Code::kInvalidArgument, {"0"});
  ExpectError(Run("neg", {1}, 2), Code::kAlreadyExists, {"2"});
  ExpectError(Run("neg", {1}, 1), Code::kAlreadyExists, {"1"});
  ExpectError(Run("neg", {1}, 5, {}, "cpu:1"), Code::kInvalidArgument, {"neg", "cpu:0", "cpu:1"});
  ExpectError(Run("neg", {1}, 5, {}, "cuda:3"), Code::kNotFound, {"neg", "cuda:3"});
  ExpectError(Run("neg", {1}, 5, {{"what", int64_t{1}}}), Code::kInvalidArgument, {"what"});
  ExpectError(Full(5, 4, 1, ""), Code::kInvalidArgument, {"full"});
  ExpectError(Full(5, -4, 1), Code::kInvalidArgument, {"full", "-4"});
  ExpectError(engine_->Copy(session_, 99, 5, "cpu:1", false), Code::kNotFound, {"99"});
  ExpectError(engine_->Copy(session_, 1, 5, "cpu:7", false), Code::kNotFound, {"cpu:7"});
  ExpectError(engine_->Copy(session_, 1, 2, "cpu:1", false), Code::kAlreadyExists, {"2"});
  EXPECT_TRUE(session_->CheckFree(5).ok());
  EXPECT_THAT(*Read(1), ElementsAre(9, 9, 9, 9));
  Settle();
  EXPECT_EQ(UsedBytes(0), 32 + 24);
}

TEST_F(EngineTest, AnotherSessionsHandleLooksUnknown) {
  ASSERT_TRUE(Full(1, 4, 9).ok());
  const SessionRef other = *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "other");
  const auto theirs = engine_->Run(other, {.op = "neg", .inputs = {1}, .output = 5});
  ASSERT_TRUE(session_->Delete({1}).ok());
  const auto never = engine_->Run(other, {.op = "neg", .inputs = {1}, .output = 5});
  EXPECT_EQ(theirs.status(), never.status());
  EXPECT_EQ(theirs.status().code(), Code::kNotFound);
}

TEST_F(EngineTest, DroppedIntermediatesAreFreedDuringTheChain) {
  ASSERT_TRUE(Full(1, 100, 1).ok());
  for (Handle handle = 2; handle <= 100; ++handle) {
    ASSERT_TRUE(Run("neg", {handle - 1}, handle).ok());
    session_->Drop({handle - 1});
  }
  EXPECT_EQ((*Read(100))[0], -1);
  Settle();
  EXPECT_EQ(UsedBytes(0), 800);
  EXPECT_LE(device(0).memory().peak_bytes, 3 * 800);
}

TEST_F(EngineTest, ClosingASessionFreesEverything) {
  for (Handle handle = 1; handle <= 20; ++handle) {
    ASSERT_TRUE(Full(handle, 50, 1, handle % 2 == 0 ? "cpu:0" : "cpu:1").ok());
  }
  Settle();
  EXPECT_EQ(UsedBytes(0) + UsedBytes(1), 20 * 400);
  EXPECT_EQ(*sessions_->Close(session_->principal(), session_->id()), 20);
  EXPECT_TRUE(Eventually([this] { return UsedBytes(0) + UsedBytes(1) == 0; }));
}

}  // namespace
}  // namespace tensord::server
