#include "tensord/client/internal/interruption.h"

#include <arpa/inet.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tensord/client/client.h"
#include "tensord/client/internal/copy_record.h"
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

TEST(InterruptionTest, EndsASleepWhenTheCheckSaysSo) {
  int checks = 0;
  Interruption interruption([&] { return ++checks == 2; });
  const Interruption::Scope scope(&interruption);
  SleepUnlessInterrupted(absl::InfiniteDuration());
  EXPECT_EQ(checks, 2);
}

TEST(InterruptionTest, EndsAWaitForTheReportOfACopy) {
  CopyRecord record(/*within_server=*/false);
  Interruption interruption([] { return true; });
  const Interruption::Scope scope(&interruption);
  EXPECT_EQ(record.Await().status().code(), absl::StatusCode::kCancelled);
}

TEST(InterruptionTest, EndsConnectingToAPortThatAcceptsAndStaysSilent) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, any, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, any, &size), 0);
  const std::string target = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  Interruption interruption;
  std::thread connecting([&] {
    const Interruption::Scope scope(&interruption);
    const auto client = Client::Connect(target, {.connect_timeout = absl::Hours(1)});
    EXPECT_EQ(client.status().code(), absl::StatusCode::kCancelled);
  });
  const int accepted = accept(listener, nullptr, nullptr);
  interruption.Interrupt();
  connecting.join();
  close(accepted);
  close(listener);
}

}  // namespace
}  // namespace tensord::internal
