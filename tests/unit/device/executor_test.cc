#include "tensord/server/device/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tensord/server/device/cpu/cpu_device.h"

namespace tensord::server {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

class ExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = *MakeCpuDevice({DeviceKind::kCpu, 0}, 1 << 20, 1);
};

// An executor with a simulated clock. Each task takes a given time, and order_ records its name.
class ExecutorTimeTest : public ExecutorTest {
 protected:
  // Blocks the executor thread until Open(), so that tasks queue up.
  void Hold() { Hold(executor_->NewLane()); }
  void Hold(const std::shared_ptr<Executor::Lane>& lane) {
    opened_ = {};
    std::promise<void> holds;
    executor_->Post(lane, [&holds, opened = opened_.get_future().share()] {
      holds.set_value();
      opened.wait();
    });
    holds.get_future().wait();
  }
  void Open() { opened_.set_value(); }

  static Executor::Weight Owner(int weight) { return std::make_shared<std::atomic<int>>(weight); }

  void Post(const std::shared_ptr<Executor::Lane>& lane, int times, char name,
            int64_t nanoseconds = kMillisecond) {
    for (int i = 0; i < times; ++i) {
      executor_->Post(lane, [this, name, nanoseconds] {
        time_ += nanoseconds;
        order_.push_back(name);
      });
    }
  }

  // Runs all tasks. Returns how often `name` is among the first `tasks` of them.
  int64_t CountInFirst(char name, int64_t tasks) {
    executor_->Drain();
    return std::count(order_.begin(), order_.begin() + tasks, name);
  }

  int64_t time_ = 0;  // nanoseconds; only the executor thread uses it
  std::string order_;
  std::promise<void> opened_;
  std::unique_ptr<Executor> executor_ = std::make_unique<Executor>(
      device_.get(), Executor::Threading::kOwnThread, [this] { return time_; });
};

TEST_F(ExecutorTimeTest, OwnersGetTimeByWeight) {
  const auto heavy = executor_->NewLane(Owner(4)), middle = executor_->NewLane(Owner(2)),
             light = executor_->NewLane(Owner(1));
  Hold();
  Post(light, 700, 'l');
  Post(middle, 700, 'm');
  Post(heavy, 700, 'h');
  Open();
  EXPECT_EQ(CountInFirst('h', 700), 400);
  EXPECT_EQ(CountInFirst('m', 700), 200);
  EXPECT_EQ(CountInFirst('l', 700), 100);
}

TEST_F(ExecutorTimeTest, LargeTasksGetNoMoreTime) {
  const auto large = executor_->NewLane(Owner(1)), small = executor_->NewLane(Owner(1));
  Hold();
  Post(large, 50, 'L', 16 * kMillisecond);
  Post(small, 800, 's', kMillisecond);
  Open();
  EXPECT_EQ(CountInFirst('L', 17 * 20), 20);
  EXPECT_EQ(CountInFirst('s', 17 * 20), 16 * 20);
}

// The tasks are so short that the executor runs many of one owner at a time.
TEST_F(ExecutorTimeTest, ShortTasksGetTimeByWeight) {
  const auto heavy = executor_->NewLane(Owner(4)), light = executor_->NewLane(Owner(1));
  Hold();
  Post(light, 8000, 'l', 1000);
  Post(heavy, 8000, 'h', 1000);
  Open();
  EXPECT_EQ(CountInFirst('h', 4000), 3200);
}

TEST_F(ExecutorTimeTest, ManySessionsGetNoMoreThanOne) {
  const Executor::Weight owner = Owner(1);
  std::vector<std::shared_ptr<Executor::Lane>> many;
  for (int i = 0; i < 26; ++i) many.push_back(executor_->NewLane(owner));
  const auto one = executor_->NewLane(Owner(1));
  Hold();
  for (int i = 0; i < 26; ++i) Post(many[i], 10, static_cast<char>('a' + i));
  Post(one, 260, '1');
  Open();
  EXPECT_EQ(CountInFirst('1', 104), 52);
  // Each of the 26 lanes has run two tasks before any runs a third.
  for (char name = 'a'; name <= 'z'; ++name) EXPECT_EQ(CountInFirst(name, 104), 2) << name;
}

// Idle owners accrue no credit. An owner that begins late gets its share from then on.
TEST_F(ExecutorTimeTest, IdleOwnersAccrueNoCredit) {
  const auto busy = executor_->NewLane(Owner(1)), late = executor_->NewLane(Owner(1));
  Post(busy, 1000, 'b');
  Hold(busy);
  order_.clear();
  Post(busy, 100, 'b');
  Post(late, 100, 'l');
  Open();
  EXPECT_NEAR(CountInFirst('l', 100), 50, 1);
}

// An owner isn't charged for time that it used while no other owner had work.
TEST_F(ExecutorTimeTest, TimeUsedAloneIsNotCharged) {
  const auto first = executor_->NewLane(Owner(1)), second = executor_->NewLane(Owner(1));
  Post(first, 1, 'f', 1000 * kMillisecond);
  executor_->Drain();
  Post(second, 1, 's');
  executor_->Drain();
  order_.clear();
  Hold();
  Post(first, 100, 'f');
  Post(second, 100, 's');
  Open();
  EXPECT_EQ(CountInFirst('f', 100), 50);
}

TEST_F(ExecutorTimeTest, WeightMayChange) {
  const auto weight = std::make_shared<std::atomic<int>>(1);
  const auto changed = executor_->NewLane(weight), other = executor_->NewLane(Owner(1));
  *weight = 4;
  Hold();
  Post(changed, 500, 'c');
  Post(other, 500, 'o');
  Open();
  EXPECT_EQ(CountInFirst('c', 500), 400);
}

// Tasks without an owner are the server's, such as the fence that a read waits for.
TEST_F(ExecutorTimeTest, TasksWithoutAnOwnerRunFirst) {
  const auto lane = executor_->NewLane(Owner(1));
  Hold();
  Post(lane, 100, 'x');
  Post(executor_->NewLane(), 1, 'f');
  Open();
  executor_->Drain();
  EXPECT_LE(order_.find('f'), 1u);
}

TEST_F(ExecutorTest, RunsALaneInTheOrderPosted) {
  std::vector<int> order;
  {
    Executor executor(device_.get());
    const auto lane = executor.NewLane();
    for (int i = 0; i < 1000; ++i) {
      executor.Post(lane, [&order, i] { order.push_back(i); });
    }
  }
  ASSERT_EQ(order.size(), 1000);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(ExecutorTest, BacklogOfOneLaneDoesNotBlockAnotherLane) {
  std::vector<char> order;
  {
    Executor executor(device_.get());
    const auto busy = executor.NewLane(), other = executor.NewLane();
    std::promise<void> gate;
    executor.Post(busy, [opened = gate.get_future().share()] { opened.wait(); });
    for (int i = 0; i < 1000; ++i) {
      executor.Post(busy, [&order] { order.push_back('b'); });
    }
    executor.Post(other, [&order] { order.push_back('o'); });
    gate.set_value();
  }
  ASSERT_EQ(order.size(), 1001);
  const size_t position = std::string(order.begin(), order.end()).find('o');
  EXPECT_LT(position, 100);
}

TEST_F(ExecutorTest, RunsEverythingOnOneThread) {
  std::vector<std::thread::id> ids(50);
  {
    Executor executor(device_.get());
    for (auto& id : ids) {
      executor.Post(executor.NewLane(), [&id] { id = std::this_thread::get_id(); });
    }
  }
  for (const auto& id : ids) EXPECT_EQ(id, ids[0]);
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST_F(ExecutorTest, TasksMayPostMore) {
  int runs = 0;
  std::promise<void> done;
  Executor executor(device_.get());
  const auto lane = executor.NewLane();
  std::function<void()> again = [&] {
    if (++runs == 100) return done.set_value();
    executor.Post(lane, again);
  };
  executor.Post(lane, again);
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(runs, 100);
}

TEST_F(ExecutorTimeTest, CountsTheTimeOfEachOwner) {
  const auto used_a = std::make_shared<std::atomic<int64_t>>(0);
  const auto used_b = std::make_shared<std::atomic<int64_t>>(0);
  const Executor::Weight owner_a = Owner(1);
  const auto a = executor_->NewLane(owner_a, used_a), again = executor_->NewLane(owner_a, used_a),
             b = executor_->NewLane(Owner(4), used_b);
  Post(a, 30, 'a');
  Post(again, 20, 'a');
  Post(b, 10, 'b');
  executor_->Drain();
  EXPECT_EQ(*used_a, 50 * kMillisecond);
  EXPECT_EQ(*used_b, 10 * kMillisecond);
  {
    Executor::InlineLock lock;
    while (!lock.held()) {  // until Drain's task has ended
      lock = Executor::InlineLock(executor_.get(), b.get());
    }
    time_ += 5 * kMillisecond;
  }
  EXPECT_EQ(*used_b, 15 * kMillisecond);
  EXPECT_EQ(executor_->load().busy_nanoseconds, 65 * kMillisecond);
}

TEST_F(ExecutorTimeTest, CountsUnfinishedTasksWithoutWaiting) {
  const auto lane = executor_->NewLane(Owner(1));
  Hold(lane);
  Post(lane, 40, 'a');
  EXPECT_EQ(executor_->load().unfinished_tasks, 41);
  Open();
  while (executor_->load().unfinished_tasks > 0) std::this_thread::yield();
}

class ExecutorYieldTest : public ExecutorTimeTest {
 protected:
  // Posts a task of `pieces` pieces of a millisecond each, with a stop point after each piece.
  void PostLong(const std::shared_ptr<Executor::Lane>& lane, int pieces, char name) {
    executor_->Post(lane, [this, pieces, name] {
      for (int i = 0; i < pieces; ++i) {
        time_ += kMillisecond;
        (void)MustStop();
      }
      order_.push_back(name);
    });
  }
  void PostShort(const std::shared_ptr<Executor::Lane>& lane, int times, char name,
                 int64_t nanoseconds = kMillisecond / 100) {
    for (int i = 0; i < times; ++i) {
      executor_->Post(
          lane,
          [this, name, nanoseconds] {
            time_ += nanoseconds;
            order_.push_back(name);
          },
          Executor::Length::kShort);
    }
  }
};

TEST_F(ExecutorYieldTest, ShortTasksOfOtherLanesRunWithinALongTask) {
  const auto owner = Owner(1);
  const auto lane = executor_->NewLane(owner), sibling = executor_->NewLane(owner),
             other = executor_->NewLane(Owner(1));
  Hold();
  PostLong(lane, 10, 'L');
  PostShort(lane, 1, 'l');     // its own lane keeps its order
  PostShort(sibling, 1, 's');  // another lane of the same owner
  PostShort(other, 2, 'o');
  Post(other, 1, 'O');  // isn't short
  Open();
  executor_->Drain();
  EXPECT_EQ(std::count(order_.begin(), order_.begin() + 3, 'o'), 2) << order_;
  EXPECT_LT(order_.find('s'), order_.find('L')) << order_;
  EXPECT_LT(order_.find('L'), order_.find('l')) << order_;
  EXPECT_LT(order_.find('L'), order_.find('O')) << order_;
  while (executor_->load().unfinished_tasks > 0) std::this_thread::yield();
}

// A flood of short tasks takes at most half of the time.
TEST_F(ExecutorYieldTest, ALongTaskTakesAtMostTwiceAsLong) {
  const auto lane = executor_->NewLane(Owner(1)), flood = executor_->NewLane(Owner(1));
  Hold();
  PostLong(lane, 100, 'L');
  PostShort(flood, 1000, 's', kMillisecond);
  Open();
  executor_->Drain();
  const size_t before = order_.find('L');
  EXPECT_GE(before, 90u);
  EXPECT_LE(before, 102u);
}

TEST_F(ExecutorYieldTest, ChargesTimeOfShortTasksToTheirOwners) {
  const auto long_used = std::make_shared<std::atomic<int64_t>>(0);
  const auto short_used = std::make_shared<std::atomic<int64_t>>(0);
  const auto lane = executor_->NewLane(Owner(1), long_used),
             other = executor_->NewLane(Owner(1), short_used);
  Hold();
  PostLong(lane, 20, 'L');
  PostShort(other, 5, 's', kMillisecond);
  Open();
  executor_->Drain();
  EXPECT_EQ(*long_used, 20 * kMillisecond);
  EXPECT_EQ(*short_used, 5 * kMillisecond);
  EXPECT_EQ(executor_->load().busy_nanoseconds, 25 * kMillisecond);
}

// The short task neither sees the stop token of the long one, nor yields itself.
TEST_F(ExecutorYieldTest, AShortTaskHasNoTokenAndDoesNotYield) {
  const auto lane = executor_->NewLane(Owner(1)), other = executor_->NewLane(Owner(1)),
             third = executor_->NewLane(Owner(1));
  const std::atomic<bool> stop{true};
  bool long_stopped = false, short_stopped = true;
  Hold();
  executor_->Post(lane, [&] {
    const StopToken token = {.flags = {&stop}};
    const StopScope scope(&token);
    time_ += 3 * kMillisecond;
    long_stopped = MustStop();
  });
  executor_->Post(
      other,
      [&] {
        time_ += 5 * kMillisecond;
        short_stopped = MustStop();
        order_.push_back('s');
      },
      Executor::Length::kShort);
  PostShort(third, 1, 't');
  Open();
  executor_->Drain();
  EXPECT_TRUE(long_stopped);
  EXPECT_FALSE(short_stopped);
  EXPECT_EQ(order_, "st");
}

// A seed chooses the number of owners with a long task, and the lengths of these tasks and their
// pieces. A short task is posted at each stop point unless one is waiting. It waits at most for two
// long tasks: each runs 2 ms and one piece before it yields.
TEST_F(ExecutorTest, ShortTasksWaitForBoundedTimeInSimulations) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    int64_t time = 0;
    Executor executor(device_.get(), Executor::Threading::kCallerThread, [&time] { return time; });
    const auto owner = [] { return std::make_shared<std::atomic<int>>(1); };
    const auto bob = executor.NewLane(owner());
    int64_t asked_at = 0, longest_wait = 0, answers = 0;
    bool waits = false;
    const int64_t piece = kMillisecond / 10 * (1 + below(30));
    const auto ask = [&] {
      if (waits) return;
      waits = true;
      asked_at = time;
      executor.Post(
          bob,
          [&] {
            longest_wait = std::max(longest_wait, time - asked_at);
            time += kMillisecond / 100;
            waits = false;
            ++answers;
          },
          Executor::Length::kShort);
    };
    const int64_t owners = 1 + below(4);
    for (int64_t i = 0; i < owners; ++i) {
      const auto lane = executor.NewLane(owner());
      const int64_t pieces = 50 + below(1000);
      executor.Post(lane, [&time, &ask, piece, pieces] {
        for (int64_t done = 0; done < pieces; ++done) {
          time += piece;
          ask();
          (void)MustStop();
        }
      });
    }
    while (executor.RunSlice()) {
    }
    EXPECT_GT(answers, 20);
    EXPECT_LE(longest_wait, 2 * (piece + 2 * kMillisecond) + kMillisecond / 10);
  }
}

// A thread waits for an InlineLock whose holder posts a task. The executor's thread may run that
// task before the waiting thread wakes up.
TEST_F(ExecutorTest, EveryWaitForAnInlineLockEnds) {
  constexpr int kRounds = 20000;
  Executor executor(device_.get());
  const auto lane = executor.NewLane();
  std::atomic<int> runs{0};
  std::barrier round(2);
  const auto run_rounds = [&](bool posts) {
    for (int i = 0; i < kRounds; ++i) {
      round.arrive_and_wait();
      const Executor::InlineLock lock(&executor);
      if (posts) executor.Post(lane, [&runs] { ++runs; });
    }
  };
  std::thread other(run_rounds, /*posts=*/false);
  run_rounds(/*posts=*/true);
  other.join();
  executor.Drain();
  EXPECT_EQ(runs, kRounds);
}

}  // namespace
}  // namespace tensord::server
