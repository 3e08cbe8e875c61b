// The order in which a queue's thread handles events, with a model of gRPC as their source.
#include "tensord/server/rpc/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/simulation/random_source.h"

namespace tensord::server {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;

class TestEvent final : public QueueEvent {
 public:
  TestEvent(std::function<void()> run, const void* owner, Kind kind = Kind::kOfOwner)
      : run_(std::move(run)), owner_(owner), kind_(kind) {}
  void OnCompleted(bool /*ok*/) override {
    const std::unique_ptr<TestEvent> self(this);
    run_();
  }
  Kind kind() const override { return kind_; }
  const void* owner() const override { return owner_; }

 private:
  const std::function<void()> run_;
  const void* const owner_;
  const Kind kind_;
};

// A completion queue and connections. Time passes while events run and while the thread waits.
// Without further input, Run() returns.
class ModelSource final : public EventLoop::Source {
 public:
  EventLoop::Time Now() override { return now; }
  EventLoop::TakeResult Take(bool wait, QueueEvent** event, bool* ok) override {
    if (queue.empty()) ReadOne();
    while (wait && queue.empty()) {
      if (arrivals.empty()) return EventLoop::TakeResult::kEnd;
      now = std::max(now, std::min_element(arrivals.begin(), arrivals.end(), Earlier)->time);
      ReadOne();
    }
    if (queue.empty()) return EventLoop::TakeResult::kNothing;
    *event = queue.front();
    *ok = true;
    queue.pop_front();
    return EventLoop::TakeResult::kEvent;
  }
  void Post(std::function<void()> run, const void* owner,
            QueueEvent::Kind kind = QueueEvent::Kind::kOfOwner) {
    queue.push_back(new TestEvent(std::move(run), owner, kind));
  }
  // Bytes arrive at a connection at `time`, and become an event when gRPC reads them.
  void Arrive(int connection, EventLoop::Time time, std::function<void()> run, const void* owner) {
    arrivals.push_back({connection, time, [=, this] { Post(run, owner); }});
  }

  EventLoop::Time now{};
  std::deque<QueueEvent*> queue;
  int reads = 0;
  std::function<void()> on_read = [] {};

 private:
  struct Arrival {
    int connection;
    EventLoop::Time time;
    std::function<void()> read;
  };
  static bool Earlier(const Arrival& a, const Arrival& b) { return a.time < b.time; }

  // Reads from the next connection in rotation that has bytes.
  void ReadOne() {
    ++reads;
    on_read();
    const auto distance = [this](const Arrival& each) {
      return each.time > now ? kConnections
                             : (each.connection - next_ + kConnections) % kConnections;
    };
    const auto next = std::min_element(
        arrivals.begin(), arrivals.end(),
        [&](const Arrival& a, const Arrival& b) { return distance(a) < distance(b); });
    if (next == arrivals.end() || distance(*next) == kConnections) return;
    next_ = (next->connection + 1) % kConnections;
    const std::function<void()> read = std::move(next->read);
    arrivals.erase(next);
    read();
  }

  static constexpr int kConnections = 1000;
  std::vector<Arrival> arrivals;
  int next_ = 0;
};

class EventLoopTest : public testing::Test {
 protected:
  // Adds an event that appends `name` to ran_ and takes `cost`.
  void Post(const std::string& name, const void* owner, microseconds cost = microseconds(0),
            QueueEvent::Kind kind = QueueEvent::Kind::kOfOwner) {
    source_.Post(
        [this, name, cost] {
          ran_.push_back(name);
          source_.now += cost;
        },
        owner, kind);
  }

  ModelSource source_;
  EventLoop loop_{&source_};
  std::vector<std::string> ran_;
  const int alice_ = 0, bob_ = 0, carol_ = 0;
};

TEST_F(EventLoopTest, OwnersTakeTurnsAndEachKeepsItsOrder) {
  source_.now += std::chrono::hours(1);
  for (const char* name : {"a1", "a2", "a3"}) Post(name, &alice_);
  for (const char* name : {"b1", "b2"}) Post(name, &bob_);
  Post("c1", &carol_);
  loop_.Run();
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
}

TEST_F(EventLoopTest, ABarrierComesAfterAllEarlierEvents) {
  source_.now += std::chrono::hours(1);
  for (const char* name : {"a1", "a2", "a3"}) Post(name, &alice_, microseconds(300));
  Post("barrier", nullptr, microseconds(0), QueueEvent::Kind::kBarrier);
  Post("b1", &bob_);
  loop_.Run();
  EXPECT_THAT(ran_, ElementsAre("a1", "a2", "a3", "barrier", "b1"));
}

// A flood of calls: gRPC gives out one after the other, and must not read more of them meanwhile.
TEST_F(EventLoopTest, ReadsNothingWhileGrpcKeepsCalls) {
  int kept = 1000;
  std::function<void()> arrived = [&] {
    source_.now += microseconds(100);
    Post("work", &alice_, microseconds(100));
    if (--kept > 0) source_.Post(arrived, nullptr, QueueEvent::Kind::kNewCall);
  };
  source_.Post(arrived, nullptr, QueueEvent::Kind::kNewCall);
  source_.on_read = [&] { EXPECT_EQ(kept, 0); };
  loop_.Run();
  EXPECT_EQ(ran_.size(), 1000u);
  EXPECT_GT(source_.reads, 0);
}

// A seed chooses the other owners, their streams, the messages in flight and what a message costs.
// Each slice of a message posts the next one, and the last one begins the next message, which gRPC
// holds already. One more owner sends its messages one after the other.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  void Run() {
    const int owners = Below(1, 6);
    std::vector<int> others(owners);
    for (int& other : others) {
      const int streams = Below(1, 40);
      for (int i = 0; i < streams; ++i) {
        const int slices = Below(1, 400), messages = Below(1, 50);
        const microseconds cost(Below(1, 200));
        slowest_ = std::max(slowest_, cost);
        source_.Arrive(++connections_, source_.now, Slice(&other, cost, slices * messages), &other);
      }
    }
    Send();
    EventLoop(&source_).Run();
    ASSERT_EQ(answered_, kMessages);
    // The bytes wait for the next Drain() that reads from this connection, then for one event of
    // each other owner.
    const microseconds between = EventLoop::kMaxTimeWithoutInput + slowest_;
    const microseconds bound = between * (2 + connections_ / 16) + slowest_ * (owners + 1);
    EXPECT_LE(longest_wait_, bound) << owners << " owners, " << connections_ << " connections";
  }

 private:
  static constexpr int kMessages = 50;

  int Below(int begin, int end) { return begin + static_cast<int>(random_.Below(end - begin)); }
  std::function<void()> Slice(const void* owner, microseconds cost, int left) {
    return [=, this] {
      source_.now += cost;
      if (left > 1 && answered_ < kMessages) source_.Post(Slice(owner, cost, left - 1), owner);
    };
  }
  void Send() {
    const EventLoop::Time sent = source_.now + microseconds(Below(0, 2000));
    const auto answer = [=, this] {
      longest_wait_ = std::max(longest_wait_, source_.now - sent);
      source_.now += microseconds(10);
      if (++answered_ < kMessages) Send();
    };
    source_.Arrive(0, sent, answer, this);
  }

  simulation::RandomSource random_;
  ModelSource source_;
  int connections_ = 0;
  int answered_ = 0;
  microseconds slowest_{10};
  EventLoop::Time::duration longest_wait_{};
};

TEST(EventLoopSimulationTest, WaitIsBoundedByOneEventOfEachOtherOwner) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed).Run();
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace tensord::server
