// The parts of an upload: which ranges they may have, and when they are dropped.
#include "tensord/server/session/upload_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "tensord/tests/expect_error.h"
#include "tensord/tests/unit/engine/fake_device.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

constexpr int64_t kBytes = 100;

class UploadPartsTest : public testing::Test {
 protected:
  UploadPart* Add(int64_t begin, int64_t end) {
    UploadPart* const part = New(begin, end);
    const auto buffer = parts_.Add(part);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return part;
  }
  absl::Status TryAdd(int64_t begin, int64_t end) { return parts_.Add(New(begin, end)).status(); }
  void AddComplete(int64_t begin, int64_t end) { EXPECT_TRUE(parts_.Complete(Add(begin, end))); }

  FakeDevice device_{0, {}};
  const BufferRef buffer_ = *device_.Allocate(kBytes);
  int stops_ = 0;
  UploadParts parts_;

 private:
  UploadPart* New(int64_t begin, int64_t end) {
    UploadPart& part = all_.emplace_back();
    part.begin = begin;
    part.end = end;
    part.stop = [this] { ++stops_; };
    return &part;
  }

  std::deque<UploadPart> all_;
};

TEST_F(UploadPartsTest, RejectsPartsUnlessOpen) {
  ExpectError(TryAdd(10, 20), Code::kAborted, {"no resumable Write"});
  parts_.Open(buffer_, 0);
  UploadPart* const active = Add(10, 20);
  parts_.Close();
  EXPECT_EQ(stops_, 1);
  EXPECT_FALSE(parts_.BeginCopy(active));
  EXPECT_FALSE(parts_.Complete(active));
  ExpectError(TryAdd(10, 20), Code::kAborted);
}

TEST_F(UploadPartsTest, RejectsRangesThatAreNotFree) {
  parts_.Open(buffer_, 10);
  UploadPart* const active = Add(20, 30);
  AddComplete(40, 50);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(9, 20), {0, 10}}) {
    ExpectError(TryAdd(begin, end), Code::kInvalidArgument, {"10 bytes", "received"});
  }
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>(20, 30), {29, 31}, {10, 21}, {40, 41}, {15, 60}}) {
    ExpectError(TryAdd(begin, end), Code::kInvalidArgument, {"overlaps"});
  }
  Add(10, 20);
  Add(30, 40);
  parts_.Remove(active);
  Add(20, 30);
  EXPECT_EQ(stops_, 0);
}

TEST_F(UploadPartsTest, LimitsTheNumberOfParts) {
  parts_.Open(buffer_, 0);
  for (size_t i = 0; i < UploadParts::kMaxParts; ++i) {
    const int64_t begin = 4 * static_cast<int64_t>(i);
    if (i % 2 == 0) {
      Add(begin, begin + 1);
    } else {
      AddComplete(begin, begin + 1);
    }
  }
  ExpectError(TryAdd(90, 91), Code::kResourceExhausted, {"16 parts"});
}

TEST_F(UploadPartsTest, CompletePartsCountInOrder) {
  parts_.Open(buffer_, 0);
  AddComplete(30, 40);
  AddComplete(10, 20);
  AddComplete(60, 70);
  EXPECT_EQ(parts_.TakeComplete(0), 0);
  AddComplete(20, 30);
  EXPECT_EQ(parts_.TakeComplete(10), 40);
  EXPECT_EQ(parts_.TakeComplete(40), 40);
  parts_.Close();
  parts_.Open(buffer_, 40);
  EXPECT_EQ(parts_.TakeComplete(60), 70) << "the next writer uses complete parts";
}

TEST_F(UploadPartsTest, ForgetsCompletePartsOfAnotherBuffer) {
  parts_.Open(buffer_, 0);
  AddComplete(10, 20);
  parts_.Close();
  parts_.Open(*device_.Allocate(kBytes), 0);
  EXPECT_EQ(parts_.TakeComplete(10), 10);
}

TEST_F(UploadPartsTest, WriterDropsThePartsWhoseBytesItSends) {
  parts_.Open(buffer_, 0);
  UploadPart* const active = Add(10, 20);
  UploadPart* const later = Add(30, 40);
  AddComplete(20, 30);
  EXPECT_TRUE(parts_.ClaimBytes(0, 21));
  EXPECT_EQ(stops_, 1);
  EXPECT_FALSE(parts_.BeginCopy(active));
  EXPECT_EQ(parts_.TakeComplete(20), 20) << "a part is dropped as a whole";
  EXPECT_TRUE(parts_.BeginCopy(later));
  parts_.EndCopy(later);
  EXPECT_TRUE(parts_.Complete(later));
}

// Otherwise the bytes of a tensor that is done could change.
TEST_F(UploadPartsTest, WriterMustNotWriteWhileADroppedPartCopies) {
  parts_.Open(buffer_, 0);
  UploadPart* const active = Add(10, 20);
  ASSERT_TRUE(parts_.BeginCopy(active));
  EXPECT_FALSE(parts_.ClaimBytes(10, 20));
  parts_.Close();
  EXPECT_TRUE(parts_.copying_dropped());
  parts_.EndCopy(active);
  EXPECT_FALSE(parts_.copying_dropped());
  EXPECT_FALSE(parts_.BeginCopy(active));
  parts_.Open(buffer_, 10);
  EXPECT_TRUE(parts_.ClaimBytes(10, 20));
}

TEST_F(UploadPartsTest, ClearReleasesTheBuffer) {
  BufferRef buffer = *device_.Allocate(kBytes);
  parts_.Open(buffer, 0);
  AddComplete(10, 20);
  EXPECT_EQ(buffer.use_count(), 2);
  parts_.Clear();
  EXPECT_EQ(buffer.use_count(), 1);
}

}  // namespace
}  // namespace tensord::server
