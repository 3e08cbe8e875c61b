#include "tensord/server/device/executor.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tensord/server/device/cpu/cpu_device.h"

namespace tensord::server {
namespace {

class ExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = *MakeCpuDevice({DeviceKind::kCpu, 0}, 1 << 20, 1);
};

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
