#include "tensord/server/rpc/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server {
namespace {

using testing::ElementsAre;

// The addresses identify the owners.
constexpr char kAliceOwner = 0, kBobOwner = 0;

// The names of jobs in the order in which they ran. Thread-safe.
class Record {
 public:
  void Add(const std::string& name) {
    MutexLock lock(&mu_);
    names_.push_back(name);
  }
  std::vector<std::string> names() const {
    MutexLock lock(&mu_);
    return names_;
  }

 private:
  mutable Mutex mu_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mu_);
};

TEST(WorkerPoolTest, OwnersTakeTurns) {
  Record record;
  absl::Notification begun, go;
  WorkerPool pool(1);
  pool.Post(&kAliceOwner, [&] {
    begun.Notify();
    go.WaitForNotification();
  });
  begun.WaitForNotification();
  for (const char* name : {"a1", "a2", "a3"})
    pool.Post(&kAliceOwner, [&, name] { record.Add(name); });
  for (const char* name : {"b1", "b2"}) pool.Post(&kBobOwner, [&, name] { record.Add(name); });
  go.Notify();
  pool.Stop();
  EXPECT_THAT(record.names(), ElementsAre("a1", "b1", "a2", "b2", "a3"));
}

TEST(WorkerPoolTest, OneOwnerLeavesAThreadToOthers) {
  absl::Notification go, bob_ran;
  WorkerPool pool(3);
  for (int i = 0; i < 10; ++i) pool.Post(&kAliceOwner, [&] { go.WaitForNotification(); });
  pool.Post(&kBobOwner, [&] { bob_ran.Notify(); });
  bob_ran.WaitForNotification();
  go.Notify();
}

TEST(WorkerPoolTest, StopRunsAllJobs) {
  Record record;
  WorkerPool pool(2);
  for (int i = 0; i < 100; ++i) pool.Post(&kAliceOwner, [&] { record.Add("job"); });
  pool.Stop();
  EXPECT_EQ(record.names().size(), 100);
  pool.Post(&kAliceOwner, [&] { record.Add("late"); });
  EXPECT_EQ(record.names().back(), "late");
}

}  // namespace
}  // namespace tensord::server
