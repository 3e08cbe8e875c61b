#include "tensord/client/internal/command_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/common/util/op_words.h"

namespace tensord::internal {
namespace {

using ::testing::ElementsAre;

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

// Takes the next message and parses it, as the server does. Returns false if there is none.
bool Take(CommandQueue* queue, v1::SessionStreamRequest* message) {
  const CommandQueue::Message bytes = queue->Take();
  return bytes != nullptr && message->ParseFromString(*bytes);
}

std::vector<int64_t> Words(const v1::SessionStreamRequest& message, int command) {
  const auto& words = message.commands(command).batch().words();
  return {words.begin(), words.end()};
}

TEST(CommandQueueTest, QueuedCommandsAreSentTogetherInOrder) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.Push(Barrier(i)).ok());
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  ASSERT_EQ(message.commands_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(message.commands(i).barrier().barrier_id(), i + 1u);
  EXPECT_EQ(queue.pushed(), 3u);
  EXPECT_EQ(counters.commands, 3);
  EXPECT_EQ(counters.messages, 1);
}

TEST(CommandQueueTest, AMessageIsBoundedInBytes) {
  Counters counters;
  CommandQueue queue(10000, 1 << 30, &counters);
  v1::SessionStreamRequest message;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push(Constant(600 * 1024)).ok());
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Take(&queue, &message));
    EXPECT_EQ(message.commands_size(), 1);
  }
  ASSERT_TRUE(Take(&queue, &message));
  EXPECT_TRUE(message.commands(0).has_barrier());
  EXPECT_FALSE(Take(&queue, &message));
}

TEST(CommandQueueTest, DropsInARowAreOneBatch) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  queue.PushDrop(7);
  queue.PushDrop(8);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  queue.PushDrop(9);
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  ASSERT_EQ(message.commands_size(), 3);
  EXPECT_THAT(Words(message, 0), ElementsAre(0, -7, 0, -8));
  EXPECT_TRUE(message.commands(1).has_barrier());
  EXPECT_THAT(Words(message, 2), ElementsAre(0, -9));
  EXPECT_EQ(queue.pushed(), 4u);
}

// Inputs of one spec.
class Tensors {
 public:
  explicit Tensors(TensorSpec spec) : spec_(std::move(spec)) {}
  QueuedInput With(uint64_t handle) const { return {handle, &spec_}; }

 private:
  const TensorSpec spec_;
};

absl::StatusOr<QueuedOp> PushOp(CommandQueue* queue, absl::string_view op,
                                std::vector<QueuedInput> inputs, const Attributes& attrs = {},
                                uint32_t scalars = 0) {
  QueuedOp queued;
  const absl::Status status =
      queue->PushOp({.op = op, .inputs = inputs, .attrs = &attrs, .scalars = scalars}, &queued);
  if (!status.ok()) return status;
  return queued;
}

TEST(CommandQueueTest, AnOpIsDefinedOnceAndThenTakesAFewWords) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  Tensors rows({DType::kFloat32, Shape{2, 3}});
  Tensors row({DType::kFloat32, Shape{3}});
  for (int i = 0; i < 9; ++i) queue.NextHandle();
  const auto first = PushOp(&queue, "add", {rows.With(4), row.With(9)});
  const auto second = PushOp(&queue, "add", {rows.With(10), row.With(9)});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->output, 10u);
  EXPECT_EQ(second->output, 11u);
  EXPECT_EQ(second->specs[0], (TensorSpec{DType::kFloat32, Shape{2, 3}}));
  queue.PushDrop(10);
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  ASSERT_EQ(message.commands_size(), 2);
  EXPECT_EQ(message.commands(0).define().number(), 1u);
  EXPECT_EQ(message.commands(0).define().name(), "add");
  EXPECT_EQ(message.commands(0).define().num_inputs(), 2u);
  EXPECT_THAT(Words(message, 1), ElementsAre(1, 10, 6, 1, 1, 1, 1, 2, 0, 1));
  EXPECT_EQ(queue.pushed(), 4u) << "a definition, two ops, a drop";
}

TEST(CommandQueueTest, OpsThatInferenceRefusesAreNotSent) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  Tensors a({DType::kFloat32, Shape{2}});
  Tensors b({DType::kFloat32, Shape{3}});
  EXPECT_EQ(PushOp(&queue, "add", {a.With(1), b.With(2)}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(queue.pushed(), 0u);
}

TEST(CommandQueueTest, NumbersAndAttributesAreWordsOfAStep) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  const TensorSpec scalar = {DType::kFloat32, {}};
  Tensors x({DType::kFloat32, Shape{8}});
  const QueuedInput two = {FloatToWord(2.0), &scalar};
  ASSERT_TRUE(PushOp(&queue, "mul", {x.With(1), two}, {}, /*scalars=*/2).ok());
  for (int64_t start : {0, 3}) {
    const Attributes attrs = {{"starts", std::vector<int64_t>{start}},
                              {"stops", std::vector<int64_t>{start + 2}}};
    ASSERT_TRUE(PushOp(&queue, "slice", {x.With(1)}, attrs).ok());
  }
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  ASSERT_EQ(message.commands_size(), 4) << "both slices have one definition";
  const v1::Definition& mul = message.commands(0).define();
  ASSERT_EQ(mul.scalars_size(), 1);
  EXPECT_EQ(mul.scalars(0).position(), 1u);
  EXPECT_EQ(mul.scalars(0).dtype(), v1::DTYPE_FLOAT32);
  EXPECT_THAT(Words(message, 1), ElementsAre(1, 1, 0, 0x40));
  const v1::Definition& slice = message.commands(2).define();
  ASSERT_EQ(slice.word_attrs_size(), 2);
  EXPECT_EQ(slice.word_attrs(0).name(), "starts");
  EXPECT_EQ(slice.word_attrs(0).encoding(), v1::Definition::WordAttr::ENCODING_INTS);
  EXPECT_TRUE(slice.attrs().empty());
  EXPECT_THAT(Words(message, 3), ElementsAre(2, 2, 1, 1, 0, 1, 4, 2, 1, 2, 1, 6, 1, 10));
}

// A model that generates text has a new shape in every step.
TEST(CommandQueueTest, NewShapesNeedNoNewDefinition) {
  Counters counters;
  CommandQueue queue(1 << 20, 1 << 28, &counters);
  for (int64_t n = 1; n <= 70000; ++n) {
    Tensors x({DType::kFloat32, Shape{n}});
    const auto sent = PushOp(&queue, "relu", {x.With(1)});
    ASSERT_TRUE(sent.ok());
    ASSERT_EQ(sent->specs[0], (TensorSpec{DType::kFloat32, Shape{n}}));
  }
  EXPECT_EQ(queue.pushed(), 70001u) << "one definition";
}

// A generator gives each op another stream.
TEST(CommandQueueTest, NewSeedsAndStreamsNeedNoNewDefinition) {
  Counters counters;
  CommandQueue queue(1 << 20, 1 << 28, &counters);
  const DeviceName device = {DeviceKind::kCpu, 0};
  const Tensors x({DType::kFloat32, Shape{8}});
  constexpr int kOps = 1000;
  for (int64_t i = 0; i < kOps; ++i) {
    const Attributes drawn = {
        {"shape", std::vector<int64_t>{8}}, {"seed", i / 7}, {"stream", i}, {"high", i + 1}};
    QueuedOp queued;
    ASSERT_TRUE(queue.PushOp({.op = "randint", .attrs = &drawn, .device = &device}, &queued).ok());
    const Attributes dropped = {
        {"p", static_cast<double>(i) / kOps}, {"seed", i / 7}, {"stream", i}};
    ASSERT_TRUE(PushOp(&queue, "dropout", {x.With(1)}, dropped).ok());
  }
  EXPECT_EQ(queue.pushed(), 2u * kOps + 2) << "one definition for each op";
}

// Pushes a command on another thread. done() returns whether Push() has returned.
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

TEST(CommandQueueTest, PushToAFullQueueWaitsForAnAcknowledgement) {
  Counters counters;
  CommandQueue queue(2, 1 << 20, &counters);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  ASSERT_TRUE(queue.Push(Barrier(2)).ok());
  Pusher pusher(&queue, Barrier(3));
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  EXPECT_EQ(message.commands_size(), 2);  // sending commands frees no space
  queue.Acknowledge(1);
  EXPECT_TRUE(pusher.Join().ok());
  EXPECT_EQ(queue.pushed(), 3u);
}

TEST(CommandQueueTest, BytesCountUntilTheyAreAcknowledged) {
  Counters counters;
  CommandQueue queue(100, 1000, &counters);
  ASSERT_TRUE(queue.Push(Constant(2000)).ok());  // the first command is always accepted
  Pusher pusher(&queue, Barrier(2));
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
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

TEST(CommandQueueTest, CloseWakesWaitingCallers) {
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
  EXPECT_FALSE(Take(&queue, &message));
}

TEST(CommandQueueTest, ExcessiveAcknowledgementDoesNoHarm) {
  Counters counters;
  CommandQueue queue(2, 1 << 20, &counters);
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  queue.Acknowledge(~uint64_t{0});
  ASSERT_TRUE(queue.Push(Barrier(2)).ok());
  ASSERT_TRUE(queue.Push(Barrier(3)).ok());
  queue.Acknowledge(0);
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  EXPECT_EQ(message.commands_size(), 3);
  EXPECT_EQ(queue.pushed(), 3u);
}

TEST(CommandQueueTest, ResendsUnacknowledgedMessagesUnchanged) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  std::vector<std::string> sent;
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(queue.Push(Barrier(i)).ok());
    sent.push_back(*queue.Take());
  }
  EXPECT_EQ(queue.Take(), nullptr);
  queue.Attach("session");
  queue.Acknowledge(1);
  EXPECT_EQ(queue.num_unsent_commands(), 2);
  EXPECT_EQ(*queue.Take(), sent[1]);
  ASSERT_TRUE(queue.Push(Barrier(4)).ok());
  EXPECT_EQ(*queue.Take(), sent[2]);
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  EXPECT_EQ(message.first_command(), 4u);
  EXPECT_EQ(queue.num_unsent_commands(), 0);
  EXPECT_EQ(queue.Take(), nullptr);
}

// The sender sends messages as long as an acknowledgement is due. Attach() sends the
// acknowledgement, so none is due afterwards.
TEST(CommandQueueTest, AttachAndCloseClearAPendingAcknowledgement) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  queue.Acknowledge(0, /*answers=*/64, /*bytes=*/10);
  ASSERT_TRUE(queue.has_answers_to_acknowledge());
  queue.Attach("session");
  EXPECT_FALSE(queue.has_answers_to_acknowledge());
  EXPECT_EQ(queue.Take(), nullptr);
  queue.Acknowledge(0, /*answers=*/128, /*bytes=*/10);
  ASSERT_TRUE(queue.has_answers_to_acknowledge());
  queue.Close(absl::UnavailableError("gone"));
  EXPECT_FALSE(queue.has_answers_to_acknowledge());
}

TEST(CommandQueueTest, AnswersAreAcknowledgedWithCommandsOrWhenThereAreMany) {
  Counters counters;
  CommandQueue queue(100, 1 << 20, &counters);
  queue.Acknowledge(0, /*answers=*/5, /*bytes=*/100);
  EXPECT_FALSE(queue.has_answers_to_acknowledge());
  EXPECT_EQ(queue.Take(), nullptr) << "not worth a message";
  ASSERT_TRUE(queue.Push(Barrier(1)).ok());
  v1::SessionStreamRequest message;
  ASSERT_TRUE(Take(&queue, &message));
  EXPECT_EQ(message.answers_received(), 5u);
  queue.Acknowledge(1, /*answers=*/6, /*bytes=*/1 << 20);
  EXPECT_TRUE(queue.has_answers_to_acknowledge()) << "the server keeps memory for them";
  ASSERT_TRUE(Take(&queue, &message));
  EXPECT_EQ(message.answers_received(), 6u);
  EXPECT_EQ(message.commands_size(), 0);
  EXPECT_FALSE(queue.has_answers_to_acknowledge());
}

}  // namespace
}  // namespace tensord::internal
