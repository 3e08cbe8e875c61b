#include "tensord/client/internal/reply_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace tensord::internal {
namespace {

void AddFetched(v1::SessionStreamResponse* response, uint64_t id, const std::string& data) {
  v1::Elements* elements = response->add_elements();
  elements->set_request_id(id);
  elements->set_data(data);
}

void AddError(v1::SessionStreamResponse* response, uint64_t handle, const std::string& message) {
  v1::HandleError* error = response->add_errors();
  error->set_handle(handle);
  error->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  error->set_message(message);
}

TEST(ReplyTableTest, AnswersMayComeInAnyOrder) {
  ReplyTable table;
  const uint64_t first = table.Expect();
  const uint64_t second = table.Expect();
  const uint64_t barrier = table.Expect();
  v1::SessionStreamResponse response;
  response.add_barriers()->set_barrier_id(barrier);
  AddFetched(&response, second, "b");
  AddFetched(&response, first, "a");
  table.Deliver(&response);
  EXPECT_EQ(table.Await(first).value().data(), "a");
  EXPECT_EQ(table.Await(second).value().data(), "b");
  EXPECT_TRUE(table.Await(barrier).ok());
}

TEST(ReplyTableTest, WaitsForTheAnswer) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  std::thread server([&] {
    v1::SessionStreamResponse response;
    AddFetched(&response, id, "a");
    table.Deliver(&response);
  });
  EXPECT_EQ(table.Await(id).value().data(), "a");
  server.join();
}

TEST(ReplyTableTest, AwaitReturnsTheTimeOfArrival) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  v1::SessionStreamResponse response;
  response.add_barriers()->set_barrier_id(id);
  const auto before = ReplyTable::Clock::now();
  table.Deliver(&response);
  const auto after = ReplyTable::Clock::now();
  ReplyTable::Clock::time_point arrival;
  ASSERT_TRUE(table.Await(id, &arrival).ok());
  EXPECT_GE(arrival, before);
  EXPECT_LE(arrival, after);
}

TEST(ReplyTableTest, UnexpectedAnswersAreIgnored) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  table.Remove(id);
  v1::SessionStreamResponse response;
  AddFetched(&response, id, "a");
  AddFetched(&response, 12345, "b");
  table.Deliver(&response);
}

TEST(ReplyTableTest, TheEndOfTheStreamEndsEveryWait) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  std::thread end([&] { table.Fail(absl::UnavailableError("gone")); });
  EXPECT_EQ(table.Await(id).status(), absl::UnavailableError("gone"));
  end.join();
  table.Fail(absl::InternalError("too late"));
  EXPECT_EQ(table.Await(table.Expect()).status(), absl::UnavailableError("gone"));
}

TEST(ReplyTableTest, TakesErrorsInOrderAndOnceForDependentTensors) {
  ReplyTable table;
  v1::SessionStreamResponse response;
  AddError(&response, 1, "first");
  AddError(&response, 2, "first");  // computed from tensor 1
  AddError(&response, 3, "second");
  table.Deliver(&response);
  EXPECT_EQ(table.TakeError(), absl::ResourceExhaustedError("first"));
  EXPECT_EQ(table.TakeError(), absl::ResourceExhaustedError("second"));
  EXPECT_TRUE(table.TakeError().ok());
}

TEST(ReplyTableTest, ErrorThatAReadReportedIsNotReportedAgain) {
  ReplyTable table;
  const uint64_t id = table.Expect();
  v1::SessionStreamResponse response;
  AddError(&response, 1, "read");
  v1::Elements* elements = response.add_elements();
  elements->set_request_id(id);
  elements->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  elements->set_message("read");
  table.Deliver(&response);
  EXPECT_EQ(table.Await(id).status(), absl::ResourceExhaustedError("read"));
  EXPECT_TRUE(table.TakeError().ok());
}

TEST(ReplyTableTest, ErrorThatArrivesAfterItsReportIsNotReportedAgain) {
  ReplyTable table;
  table.MarkReported(absl::ResourceExhaustedError("read"));
  v1::SessionStreamResponse response;
  AddError(&response, 1, "read");
  AddError(&response, 2, "another");
  table.Deliver(&response);
  EXPECT_EQ(table.TakeError(), absl::ResourceExhaustedError("another"));
  EXPECT_TRUE(table.TakeError().ok());
}

TEST(ReplyTableTest, KeepsABoundedNumberOfErrors) {
  ReplyTable table;
  v1::SessionStreamResponse response;
  for (int i = 0; i < ReplyTable::kMaxErrors + 5; ++i) {
    AddError(&response, i + 1, std::to_string(i));
  }
  table.Deliver(&response);
  int taken = 0;
  while (!table.TakeError().ok()) ++taken;
  EXPECT_EQ(taken, ReplyTable::kMaxErrors);
}

}  // namespace
}  // namespace tensord::internal
