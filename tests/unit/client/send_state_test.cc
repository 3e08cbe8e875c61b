#include "tensord/client/internal/send_state.h"

#include <gtest/gtest.h>

namespace tensord::internal {
namespace {

TEST(SendStateTest, NothingIsSentBeforeTheCallIsAttached) {
  SendState state;
  EXPECT_TRUE(state.held());
  EXPECT_FALSE(state.TryAcquire());
  state.Release();
  EXPECT_TRUE(state.TryAcquire());
}

TEST(SendStateTest, OneThreadAtATimeSends) {
  SendState state;
  state.Release();
  EXPECT_TRUE(state.TryAcquire());
  EXPECT_FALSE(state.TryAcquire());
  EXPECT_FALSE(state.TryAcquireForHalfClose());
  state.Release();
  EXPECT_TRUE(state.TryAcquire());
}

TEST(SendStateTest, HalfClosesOnce) {
  SendState state;
  state.Release();
  state.SetDraining();
  EXPECT_FALSE(state.TryAcquire());
  EXPECT_TRUE(state.TryAcquireForHalfClose());
  state.Release();
  EXPECT_FALSE(state.TryAcquireForHalfClose());
  EXPECT_FALSE(state.held());
}

TEST(SendStateTest, FinishesWhenReadsAreClosedAndNoWriteIsUnderWay) {
  SendState state;
  state.Release();
  EXPECT_FALSE(state.TryAcquireToFinish());
  ASSERT_TRUE(state.TryAcquire());
  state.CloseReads();
  EXPECT_FALSE(state.TryAcquireToFinish());
  state.Release();
  EXPECT_TRUE(state.TryAcquireToFinish());
  EXPECT_FALSE(state.TryAcquireToFinish());
}

TEST(SendStateTest, TheNextCallSendsOnlyAfterItIsAttached) {
  SendState state;
  state.Release();
  state.CloseReads();
  ASSERT_TRUE(state.TryAcquireToFinish());
  state.Reopen();
  EXPECT_FALSE(state.TryAcquire());
  state.Release();
  EXPECT_TRUE(state.TryAcquire());
}

}  // namespace
}  // namespace tensord::internal
