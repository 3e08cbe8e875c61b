#include "tensord/server/device/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
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

// A device on which tasks take the time that they say, and who ran in which order.
class ExecutorTimeTest : public ExecutorTest {
 protected:
  // Nothing that is posted from now on runs before Open().
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

  // How often `name` is among the first so many; what is left runs, too.
  int64_t CountInFirst(char name, int64_t tasks) {
    executor_->Drain();
    return std::count(order_.begin(), order_.begin() + tasks, name);
  }

  int64_t time_ = 0;  // the executor's thread's
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

TEST_F(ExecutorTimeTest, WhoPostsLargeTasksGetsNoMore) {
  const auto large = executor_->NewLane(Owner(1)), small = executor_->NewLane(Owner(1));
  Hold();
  Post(large, 50, 'L', 16 * kMillisecond);
  Post(small, 800, 's', kMillisecond);
  Open();
  EXPECT_EQ(CountInFirst('L', 17 * 20), 20);
  EXPECT_EQ(CountInFirst('s', 17 * 20), 16 * 20);
}

// Tasks so brief that a turn is of many.
TEST_F(ExecutorTimeTest, BriefTasksAreSharedOutByWeight) {
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
  // Each of the others had its turn before any had three.
  for (char name = 'a'; name <= 'z'; ++name) EXPECT_EQ(CountInFirst(name, 104), 2) << name;
}

// Who comes late has its share from then on, and doesn't get what it missed.
TEST_F(ExecutorTimeTest, IdleTimeIsNotMadeUpFor) {
  const auto busy = executor_->NewLane(Owner(1)), late = executor_->NewLane(Owner(1));
  Post(busy, 1000, 'b');
  Hold(busy);
  order_.clear();
  Post(busy, 100, 'b');
  Post(late, 100, 'l');
  Open();
  EXPECT_NEAR(CountInFirst('l', 100), 50, 1);
}

// What was taken while nobody else wanted it isn't held against anybody either.
TEST_F(ExecutorTimeTest, AfterAPauseAllBeginAnew) {
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

TEST_F(ExecutorTimeTest, AWeightMayChange) {
  const auto weight = std::make_shared<std::atomic<int>>(1);
  const auto changed = executor_->NewLane(weight), other = executor_->NewLane(Owner(1));
  *weight = 4;
  Hold();
  Post(changed, 500, 'c');
  Post(other, 500, 'o');
  Open();
  EXPECT_EQ(CountInFirst('c', 500), 400);
}

// The server's own, such as the fence that a read waits for.
TEST_F(ExecutorTimeTest, WhatHasNoOwnerComesFirst) {
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

TEST_F(ExecutorTest, OneLanesBacklogDoesNotHoldUpAnothersSingleTask) {
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
  const size_t turn = std::string(order.begin(), order.end()).find('o');
  EXPECT_LT(turn, 100);
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

}  // namespace
}  // namespace tensord::server
