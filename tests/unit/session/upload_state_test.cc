// The states of an upload, and the tensor that it fills.
#include "tensord/server/session/upload_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tensord/server/session/tensor.h"
#include "tensord/tests/unit/engine/fake_device.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

class UploadStateTest : public testing::Test {
 protected:
  BufferRef MakeBuffer() { return *device_.Allocate(16); }
  std::function<void()> CountStop() {
    return [this] { ++stops_; };
  }
  UploadState::Waiter CountRun() {
    return [this] { ++runs_; };
  }
  void FailTensor() { tensor_->Finish(absl::CancelledError("test")); }

  FakeDevice device_{0, {}};
  int stops_ = 0;
  int runs_ = 0;
  const TensorRef tensor_ = Tensor::ForUpload(1, {DType::kInt64, {2}}, nullptr);
  UploadState& upload_ = *tensor_->upload();
};

TEST_F(UploadStateTest, FirstWriterStartsWithoutMemory) {
  const std::optional<PartialUpload> partial = upload_.Claim(CountStop());
  ASSERT_TRUE(partial.has_value());
  EXPECT_EQ(partial->buffer, nullptr);
  EXPECT_EQ(partial->written_bytes, 0);
}

TEST_F(UploadStateTest, RejectsSecondWriterWhileActive) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
  EXPECT_EQ(stops_, 0) << "the active writer is not disturbed";
}

TEST_F(UploadStateTest, RejectsAWriterWhileADroppedPartIsCopied) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.parts().Open(MakeBuffer(), 0);
  UploadPart part;
  part.end = 8;
  part.stop = CountStop();
  ASSERT_TRUE(upload_.parts().Add(&part).ok());
  ASSERT_TRUE(upload_.parts().BeginCopy(&part));
  upload_.Park({MakeBuffer(), 0, {}});
  EXPECT_EQ(stops_, 1) << "of the part";
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
  upload_.parts().EndCopy(&part);
  EXPECT_TRUE(upload_.Claim(CountStop()).has_value());
}

TEST_F(UploadStateTest, NextWriterGetsTheParkedBytes) {
  const BufferRef buffer = MakeBuffer();
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  EXPECT_EQ(upload_.parked_bytes(), 0);
  upload_.Park({buffer, 12, {}});
  EXPECT_EQ(upload_.parked_bytes(), 12);
  const std::optional<PartialUpload> partial = upload_.Claim(CountStop());
  ASSERT_TRUE(partial.has_value());
  EXPECT_EQ(partial->buffer, buffer);
  EXPECT_EQ(partial->written_bytes, 12);
  EXPECT_EQ(upload_.parked_bytes(), 0);
  EXPECT_FALSE(upload_.Claim({}).has_value());
}

TEST_F(UploadStateTest, DropsBytesParkedWithoutClaim) {
  BufferRef buffer = MakeBuffer();
  const BufferRef memory = buffer;
  upload_.Park({std::move(buffer), 12, {}});
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(upload_.parked_bytes(), 0);
}

TEST_F(UploadStateTest, IgnoresReportWithoutClaim) {
  upload_.WhenReceived(0, CountRun());
  upload_.ReportReceived(MakeBuffer(), 8);
  EXPECT_EQ(upload_.received().buffer, nullptr);
  EXPECT_EQ(runs_, 0);
}

TEST_F(UploadStateTest, DoneUploadTakesNothing) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  FailTensor();
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
  BufferRef buffer = MakeBuffer();
  const BufferRef memory = buffer;
  upload_.ReportReceived(buffer, 8);
  EXPECT_EQ(upload_.received().bytes, 0);
  upload_.Park({std::move(buffer), 12, {}});
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(upload_.parked_bytes(), 0);
  upload_.Abandon();
  EXPECT_EQ(tensor_->status().code(), Code::kCancelled) << "the first error stays";
}

TEST_F(UploadStateTest, FirstWriterAfterFailureGetsTheError) {
  FailTensor();
  EXPECT_TRUE(upload_.Claim(CountStop()).has_value());
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
}

TEST_F(UploadStateTest, FinishReleasesParkedMemory) {
  BufferRef buffer = MakeBuffer();
  const BufferRef memory = buffer;
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.ReportReceived(buffer, 8);
  upload_.Park({std::move(buffer), 8, {}});
  EXPECT_GT(memory.use_count(), 1);
  FailTensor();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_F(UploadStateTest, AbortWaitsUntilTheWriterHasParked) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Abort(CountRun());
  EXPECT_EQ(stops_, 1);
  EXPECT_EQ(runs_, 0);
  upload_.Park({});
  EXPECT_EQ(runs_, 1);
}

TEST_F(UploadStateTest, AbortWaitsUntilTheUploadIsDone) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Abort(CountRun());
  FailTensor();
  EXPECT_EQ(runs_, 1);
}

TEST_F(UploadStateTest, AbortRunsAtOnceIfNoWriterCanBeAborted) {
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 1) << "announced";
  ASSERT_TRUE(upload_.Claim({}).has_value());
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 2) << "active, but without a stop function";
  upload_.Park({});
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 3) << "parked";
  FailTensor();
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 4) << "done";
  EXPECT_EQ(stops_, 0);
}

TEST_F(UploadStateTest, RunsWaitersWhenEnoughHasBeenReceived) {
  const BufferRef buffer = MakeBuffer();
  std::vector<int> order;
  for (const int bytes : {8, 4, 0}) {
    upload_.WhenReceived(bytes, [&order, bytes] { order.push_back(bytes); });
  }
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.ReportReceived(buffer, 4);
  EXPECT_EQ(order, std::vector<int>({0})) << "more than 4 bytes must have come for the others";
  EXPECT_EQ(upload_.received().buffer, buffer);
  EXPECT_EQ(upload_.received().bytes, 4);
  upload_.WhenReceived(3, CountRun());
  EXPECT_EQ(runs_, 1) << "at once";
  upload_.ReportReceived(buffer, 8);
  EXPECT_EQ(order, std::vector<int>({0, 4}));
  FailTensor();
  EXPECT_EQ(order, std::vector<int>({0, 4, 8}));
  EXPECT_EQ(upload_.received().buffer, nullptr);
  upload_.WhenReceived(100, CountRun());
  EXPECT_EQ(runs_, 2) << "at once when done";
}

TEST_F(UploadStateTest, FailsTheTensorAtOnceIfAbandonedWithoutWriter) {
  upload_.Abandon();
  ASSERT_TRUE(tensor_->done());
  EXPECT_EQ(tensor_->status().code(), Code::kFailedPrecondition);
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
}

TEST_F(UploadStateTest, FailsTheTensorIfTheWriterParksAfterAbandon) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Abandon();
  EXPECT_FALSE(tensor_->done()) << "the active writer may still fill the tensor";
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 0);
  upload_.Park({MakeBuffer(), 12, {}});
  ASSERT_TRUE(tensor_->done());
  EXPECT_EQ(tensor_->status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(upload_.parked_bytes(), 0);
}

TEST_F(UploadStateTest, ActiveWriterMayFinishAfterAbandon) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Abandon();
  tensor_->Finish(MakeBuffer());
  EXPECT_NE(tensor_->buffer(), nullptr);
}

TEST_F(UploadStateTest, FailedUploadRejectsWriters) {
  upload_.Fail(absl::UnavailableError("first"));
  ASSERT_TRUE(tensor_->done());
  EXPECT_EQ(tensor_->status().message(), "first");
  upload_.Fail(absl::UnavailableError("second"));
  EXPECT_EQ(tensor_->status().message(), "first");
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
}

TEST_F(UploadStateTest, FailsWhileAWriterIsActive) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Fail(absl::UnavailableError("lost"));
  EXPECT_EQ(tensor_->status().code(), Code::kUnavailable);
  upload_.Park({MakeBuffer(), 12, {}});
  EXPECT_EQ(upload_.parked_bytes(), 0);
}

TEST_F(UploadStateTest, DestructionStopsOnlyTheActiveWriter) {
  for (const bool parked : {false, true}) {
    stops_ = 0;
    TensorRef tensor = Tensor::ForUpload(1, {DType::kInt64, {2}}, nullptr);
    ASSERT_TRUE(tensor->upload()->Claim(CountStop()).has_value());
    if (parked) tensor->upload()->Park({});
    tensor.reset();
    EXPECT_EQ(stops_, parked ? 0 : 1);
  }
}

TEST(TensorTest, ResultOfAnOpHasNoUpload) {
  const TensorRef result = Tensor::Make(1, TensorSpec{DType::kInt64, {2}}, nullptr);
  EXPECT_EQ(result->upload(), nullptr);
  AbandonUploads({result});
  EXPECT_FALSE(result->done());
}

}  // namespace
}  // namespace tensord::server
