// A message is applied in slices. Between two slices, another stream replaces the message's stream.
#include "tensord/server/rpc/stream/session_commands.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Progress = SessionCommands::Progress;

// A deadline that has passed, so that each slice is as small as possible.
constexpr SessionCommands::Clock::time_point kPassed;
// More commands than the smallest slice applies.
constexpr int kManyCommands = 20;

class Wire final : public CommandWire {
 public:
  void Resume() override {}
  void End(const absl::Status& /*error*/) override {}
};

class SessionCommandsTest : public EngineFixture {
 protected:
  SessionCommandsTest()
      : context_{.engine = engine_.get(), .sessions = sessions_.get()},
        commands_(*SessionCommands::Of(&context_, session_)) {}

  std::shared_ptr<Wire> Attach(bool resumable) {
    auto wire = std::make_shared<Wire>();
    v1::Attach attach;
    attach.set_resumable(resumable);
    EXPECT_TRUE(commands_->Attach(wire, attach, 0).ok());
    return wire;
  }

  // Returns a message that reads tensors that don't exist, so that the answers are ready at once.
  static v1::SessionStreamRequest Reads() {
    v1::SessionStreamRequest message;
    message.set_first_command(1);
    for (int i = 1; i <= kManyCommands; ++i) {
      message.add_commands()->mutable_get_elements()->set_request_id(i);
    }
    return message;
  }

  // Returns how many answers with elements are ready for the connection.
  int CountElements(const Wire& wire) {
    v1::SessionStreamResponse response;
    std::vector<SessionCommands::ReadyElements> elements;
    commands_->NextResponse(&wire, /*must_ack=*/true, &response, &elements);
    return static_cast<int>(elements.size());
  }

  ServiceContext context_;
  std::shared_ptr<SessionCommands> commands_;
};

TEST_F(SessionCommandsTest, NextStreamGetsAllAnswersOfAResumableStream) {
  const auto first = Attach(/*resumable=*/true);
  const v1::SessionStreamRequest message = Reads();
  EXPECT_EQ(*commands_->Apply(first.get(), message, 0, kPassed), Progress::kTimedOut);
  const auto next = Attach(/*resumable=*/true);
  EXPECT_TRUE(commands_->unfinished());
  EXPECT_EQ(*commands_->Apply(next.get(), {}, 0, kPassed), Progress::kDone);
  EXPECT_EQ(*commands_->Continue(message, kPassed), Progress::kDone);
  EXPECT_EQ(CountElements(*next), kManyCommands);
}

TEST_F(SessionCommandsTest, NextStreamEndsWithTheErrorOfAResumableStream) {
  for (const bool resumable : {true, false}) {
    const auto first = Attach(resumable);
    v1::SessionStreamRequest message = Reads();
    message.add_commands()->mutable_program()->add_inputs();  // a spec without a dtype
    EXPECT_EQ(*commands_->Apply(first.get(), message, 0, kPassed), Progress::kTimedOut);
    const auto next = Attach(/*resumable=*/true);
    EXPECT_EQ(commands_->Apply(next.get(), {}, 0, kPassed).ok(), !resumable);
  }
}

TEST_F(SessionCommandsTest, NextStreamGetsNoAnswersOfAStreamThatIsNotResumable) {
  const auto first = Attach(/*resumable=*/false);
  const v1::SessionStreamRequest message = Reads();
  EXPECT_EQ(*commands_->Apply(first.get(), message, 0, kPassed), Progress::kTimedOut);
  const auto next = Attach(/*resumable=*/true);
  EXPECT_EQ(*commands_->Apply(next.get(), {}, 0, kPassed), Progress::kDone);
  EXPECT_EQ(CountElements(*next), 0);
  EXPECT_TRUE(commands_->AllAnswered());
}

}  // namespace
}  // namespace tensord::server
