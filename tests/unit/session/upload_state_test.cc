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
  void Finish() {
    for (const UploadState::Waiter& waiter : upload_.Finish()) waiter();
  }

  FakeDevice device_{0, {}};
  int stops_ = 0;
  int runs_ = 0;
  UploadState upload_;
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

TEST_F(UploadStateTest, NextWriterGetsTheParkedBytes) {
  const BufferRef buffer = MakeBuffer();
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  EXPECT_EQ(upload_.parked_bytes(), 0);
  EXPECT_TRUE(upload_.Park({buffer, 12, {}}));
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
  EXPECT_TRUE(upload_.Park({std::move(buffer), 12, {}}));
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
  Finish();
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
  BufferRef buffer = MakeBuffer();
  const BufferRef memory = buffer;
  upload_.ReportReceived(buffer, 8);
  EXPECT_EQ(upload_.received().bytes, 0);
  EXPECT_TRUE(upload_.Park({std::move(buffer), 12, {}}));
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(upload_.parked_bytes(), 0);
  EXPECT_FALSE(upload_.GiveUp()) << "there is nothing to fail";
}

TEST_F(UploadStateTest, FirstWriterAfterFailureGetsTheError) {
  Finish();
  EXPECT_TRUE(upload_.Claim(CountStop()).has_value());
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value());
}

TEST_F(UploadStateTest, FinishReleasesParkedMemory) {
  BufferRef buffer = MakeBuffer();
  const BufferRef memory = buffer;
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.ReportReceived(buffer, 8);
  EXPECT_TRUE(upload_.Park({std::move(buffer), 8, {}}));
  EXPECT_GT(memory.use_count(), 1);
  Finish();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_F(UploadStateTest, AbortWaitsUntilTheWriterHasParked) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Abort(CountRun());
  EXPECT_EQ(stops_, 1);
  EXPECT_EQ(runs_, 0);
  EXPECT_TRUE(upload_.Park({}));
  EXPECT_EQ(runs_, 1);
}

TEST_F(UploadStateTest, AbortWaitsUntilTheUploadIsDone) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  upload_.Abort(CountRun());
  Finish();
  EXPECT_EQ(runs_, 1);
}

TEST_F(UploadStateTest, AbortRunsAtOnceIfNoWriterCanBeAborted) {
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 1) << "announced";
  ASSERT_TRUE(upload_.Claim({}).has_value());
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 2) << "active, but without a stop function";
  EXPECT_TRUE(upload_.Park({}));
  upload_.Abort(CountRun());
  EXPECT_EQ(runs_, 3) << "parked";
  Finish();
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
  Finish();
  EXPECT_EQ(order, std::vector<int>({0, 4, 8}));
  EXPECT_EQ(upload_.received().buffer, nullptr);
  upload_.WhenReceived(100, CountRun());
  EXPECT_EQ(runs_, 2) << "at once when done";
}

TEST_F(UploadStateTest, GiveUpWithoutWriterLetsTheCallerFailTheUpload) {
  EXPECT_TRUE(upload_.GiveUp());
  EXPECT_FALSE(upload_.Claim(CountStop()).has_value()) << "GiveUp has claimed it";
}

TEST_F(UploadStateTest, ActiveWriterMayFinishAfterGiveUpButNotPark) {
  ASSERT_TRUE(upload_.Claim(CountStop()).has_value());
  EXPECT_FALSE(upload_.GiveUp());
  upload_.Abort(CountRun());
  EXPECT_FALSE(upload_.Park({MakeBuffer(), 12, {}}));
  EXPECT_EQ(runs_, 0);
  EXPECT_EQ(upload_.parked_bytes(), 0);
  Finish();
  EXPECT_EQ(runs_, 1);
}

TEST_F(UploadStateTest, DestructionStopsOnlyTheActiveWriter) {
  for (const bool parked : {false, true}) {
    stops_ = 0;
    auto upload = std::make_unique<UploadState>();
    ASSERT_TRUE(upload->Claim(CountStop()).has_value());
    if (parked) {
      ASSERT_TRUE(upload->Park({}));
    }
    upload.reset();
    EXPECT_EQ(stops_, parked ? 0 : 1);
  }
}

class PromisedTensorTest : public testing::Test {
 protected:
  PromisedTensorTest() : tensor_(1, {DType::kInt64, {2}}, nullptr) { tensor_.AnnounceUpload(); }
  Tensor tensor_;
};

TEST_F(PromisedTensorTest, FailsAtOnceIfGivenUpWithoutWriter) {
  tensor_.GiveUpUpload();
  ASSERT_TRUE(tensor_.done());
  EXPECT_EQ(tensor_.status().code(), Code::kFailedPrecondition);
}

TEST_F(PromisedTensorTest, FailsIfGivenUpAndTheWriterStops) {
  EXPECT_TRUE(tensor_.upload()->Claim([] {}).has_value());
  tensor_.GiveUpUpload();
  EXPECT_FALSE(tensor_.done()) << "the active writer may still fill the tensor";
  tensor_.ParkUpload({});
  ASSERT_TRUE(tensor_.done());
  EXPECT_EQ(tensor_.status().code(), Code::kFailedPrecondition);
}

TEST_F(PromisedTensorTest, FailedPromiseRejectsWriters) {
  tensor_.FailPromise(absl::UnavailableError("first"));
  ASSERT_TRUE(tensor_.done());
  EXPECT_EQ(tensor_.status().message(), "first");
  tensor_.FailPromise(absl::UnavailableError("second"));
  EXPECT_EQ(tensor_.status().message(), "first");
  EXPECT_FALSE(tensor_.upload()->Claim([] {}).has_value());
}

TEST_F(PromisedTensorTest, FailsWhileAWriterIsActive) {
  EXPECT_TRUE(tensor_.upload()->Claim([] {}).has_value());
  tensor_.FailPromise(absl::UnavailableError("lost"));
  EXPECT_EQ(tensor_.status().code(), Code::kUnavailable);
  tensor_.ParkUpload({});
  EXPECT_EQ(tensor_.parked_bytes(), 0);
}

TEST(TensorTest, UploadFunctionsDoNothingWithoutAnnouncement) {
  Tensor tensor(1, {DType::kInt64, {2}}, nullptr);
  EXPECT_EQ(tensor.upload(), nullptr);
  tensor.GiveUpUpload();
  tensor.FailPromise(absl::UnavailableError("none"));
  EXPECT_FALSE(tensor.done());
  int runs = 0;
  tensor.StopUpload([&runs] { ++runs; });
  EXPECT_EQ(runs, 1);
  tensor.WhenReceived(0, [&runs] { ++runs; });
  EXPECT_EQ(runs, 1);
  tensor.Finish(absl::InternalError("done"));
  EXPECT_EQ(runs, 2) << "when the tensor is done";
}

}  // namespace
}  // namespace tensord::server
