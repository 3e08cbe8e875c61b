#include "tensord/client/internal/command_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace tensord::internal {
namespace {

v1::Command Barrier(uint64_t id) {
  v1::Command command;
  command.mutable_barrier()->set_barrier_id(id);
  return command;
}

v1::Command Constant(size_t size_bytes) {
  v1::Command command;
  (*command.mutable_op()->mutable_attrs())["data"].set_data(std::string(size_bytes, 'x'));
  return command;
}

TEST(CommandQueueTest, WhatQueuesTogetherIsSentTogetherInOrder) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.Push(Barrier(i)).ok());
  v1::SessionStreamRequest message;
  ASSERT_TRUE(queue.Take(&message));
  ASSERT_EQ(message.commands_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(message.commands(i).barrier().barrier_id(), i + 1u);
  EXPECT_EQ(queue.pushed(), 3u);
  EXPECT_EQ(counters.commands, 3);
  EXPECT_EQ(counters.messages, 1);
}

TEST(CommandQueueTest, AMessageIsBoundedInCommandsAndBytes) {
  Counters counters;
  CommandQueue queue(10000, 1 << 30, &counters);
  v1::SessionStreamRequest message;
  for (int i = 0; i < CommandQueue::kMaxCommandsPerMessage + 1; ++i) {
    ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  }
  ASSERT_TRUE(queue.Take(&message));
  EXPECT_EQ(message.commands_size(), CommandQueue::kMaxCommandsPerMessage);
  ASSERT_TRUE(queue.Take(&message));
  EXPECT_EQ(message.commands_size(), 1);

  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push(Constant(600 * 1024)).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(queue.Take(&message));
    EXPECT_EQ(message.commands_size(), 1);
  }
}

TEST(CommandQueueTest, DropsInARowAreOneCommand) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  queue.PushDrop(7);
  queue.PushDrop(8);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  queue.PushDrop(9);
  v1::SessionStreamRequest message;
  ASSERT_TRUE(queue.Take(&message));
  ASSERT_EQ(message.commands_size(), 3);
  EXPECT_EQ(message.commands(0).drop().handles_size(), 2);
  EXPECT_TRUE(message.commands(1).has_barrier());
  EXPECT_EQ(message.commands(2).drop().handles(0), 9u);
  EXPECT_EQ(queue.pushed(), 3u);
}

// Pushes from another thread, and tells whether that has returned.
class Pusher {
 public:
  Pusher(CommandQueue* queue, v1::Command command)
      : thread_([this, queue, command] {
          status_ = queue->Push(command);
          done_ = true;
        }) {}
  bool done() const { return done_; }
  absl::Status Join() {
    thread_.join();
    return status_;
  }

 private:
  std::atomic<bool> done_{false};
  absl::Status status_;
  std::thread thread_;
};

TEST(CommandQueueTest, AFullQueueLetsTheCallerWaitForAnAcknowledgement) {
  Counters counters;
  CommandQueue queue(2, 1 << 20, &counters);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  ASSERT_TRUE(queue.Push(Barrier(2)).ok());
  Pusher pusher(&queue, Barrier(3));
  v1::SessionStreamRequest message;
  ASSERT_TRUE(queue.Take(&message));
  EXPECT_EQ(message.commands_size(), 2);  // being sent makes no room
  queue.Acknowledge(1);
  EXPECT_TRUE(pusher.Join().ok());
  EXPECT_EQ(queue.pushed(), 3u);
}

TEST(CommandQueueTest, BytesCountUntilTheyAreAcknowledged) {
  Counters counters;
  CommandQueue queue(100, 1000, &counters);
  ASSERT_TRUE(queue.Push(Constant(2000)).ok());  // the first always goes
  Pusher pusher(&queue, Barrier(2));
  v1::SessionStreamRequest message;
  ASSERT_TRUE(queue.Take(&message));
  EXPECT_FALSE(pusher.done());
  queue.Acknowledge(1);
  EXPECT_TRUE(pusher.Join().ok());
}

TEST(CommandQueueTest, DropsNeverWait) {
  Counters counters;
  CommandQueue queue(1, 1 << 20, &counters);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  queue.PushDrop(7);
  EXPECT_EQ(queue.pushed(), 2u);
}

TEST(CommandQueueTest, ClosingWakesWhoeverWaits) {
  Counters counters;
  CommandQueue queue(1, 1 << 20, &counters);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  Pusher pusher(&queue, Barrier(2));
  queue.Close(absl::UnavailableError("gone"));
  queue.Close(absl::InternalError("too late"));
  EXPECT_EQ(pusher.Join(), absl::UnavailableError("gone"));
  EXPECT_EQ(queue.Push(Barrier(3)), absl::UnavailableError("gone"));
  EXPECT_EQ(queue.status(), absl::UnavailableError("gone"));
  queue.PushDrop(7);
  v1::SessionStreamRequest message;
  EXPECT_FALSE(queue.Take(&message));
}

TEST(CommandQueueTest, StoppingWakesTheSender) {
  Counters counters;
  CommandQueue queue(1, 1 << 20, &counters);
  std::thread sender([&] {
    v1::SessionStreamRequest message;
    EXPECT_FALSE(queue.Take(&message));
  });
  queue.StopTaking();
  sender.join();
  EXPECT_TRUE(queue.status().ok());
}

TEST(CommandQueueTest, AServerThatAcknowledgesTooMuchDoesNoHarm) {
  Counters counters;
  CommandQueue queue(2, 1 << 20, &counters);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  queue.Acknowledge(~uint64_t{0});
  ASSERT_TRUE(queue.Push(Barrier(2)).ok());
  ASSERT_TRUE(queue.Push(Barrier(3)).ok());
  queue.Acknowledge(0);
  v1::SessionStreamRequest message;
  ASSERT_TRUE(queue.Take(&message));
  EXPECT_EQ(message.commands_size(), 3);
  EXPECT_EQ(queue.pushed(), 3u);
}

}  // namespace
}  // namespace tensord::internal
