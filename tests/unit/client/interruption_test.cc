#include "tensord/client/internal/interruption.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <thread>

#include "tensord/client/internal/reply_table.h"

namespace tensord::internal {
namespace {

TEST(InterruptionTest, AThreadHasTheInterruptionOfItsInnermostScope) {
  EXPECT_EQ(Interruption::OfThisThread(), nullptr);
  Interruption outer, inner;
  const Interruption::Scope scope(&outer);
  {
    const Interruption::Scope nested(&inner);
    EXPECT_EQ(Interruption::OfThisThread(), &inner);
  }
  EXPECT_EQ(Interruption::OfThisThread(), &outer);
  std::thread([] { EXPECT_EQ(Interruption::OfThisThread(), nullptr); }).join();
}

TEST(InterruptionTest, EndsAWaitForAnAnswerWhenTheCheckSaysSo) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  int checks = 0;
  Interruption interruption([&] { return ++checks == 2; });
  const Interruption::Scope scope(&interruption);
  EXPECT_EQ(table.Await(id).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(checks, 2);
  v1::SessionStreamResponse late;
  late.add_barriers()->set_barrier_id(id);
  table.Deliver(&late);
  EXPECT_FALSE(table.AnyAwaited());
}

TEST(InterruptionTest, AnAnswerEndsTheWaitOfAThreadThatIsNotInterrupted) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  Interruption interruption([&] {
    v1::SessionStreamResponse response;
    response.add_barriers()->set_barrier_id(id);
    table.Deliver(&response);
    return false;
  });
  const Interruption::Scope scope(&interruption);
  EXPECT_TRUE(table.Await(id).ok());
}

TEST(InterruptionTest, AnotherThreadEndsTheWait) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  Interruption interruption;
  std::thread waiting([&] {
    const Interruption::Scope scope(&interruption);
    EXPECT_EQ(table.Await(id).status().code(), absl::StatusCode::kCancelled);
  });
  interruption.Interrupt();
  waiting.join();
}

TEST(InterruptionTest, ACallOfAnInterruptedThreadIsRegisteredUntilItsEnd) {
  Interruption interruption;
  const Interruption::Scope scope(&interruption);
  {
    grpc::ClientContext first, second;
    const Interruption::CallScope one(&first);
    const Interruption::CallScope two(&second);
    interruption.Interrupt();
  }
  interruption.Interrupt();  // the contexts are gone
  EXPECT_TRUE(Interruption::Interrupted());
}

}  // namespace
}  // namespace tensord::internal
