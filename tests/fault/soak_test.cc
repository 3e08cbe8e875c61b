// Runs several clients for a long time. Results must be correct, and the daemon's memory must not
// grow.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/fault/random_work.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::fault {
namespace {

using Clock = std::chrono::steady_clock;
using integration::DaemonFixture;
using integration::Eventually;
using proxy::DelayProxy;

// The permitted growth of the daemon's memory from the second to the last third of the time.
constexpr int64_t kMaxGrowthBytes = 8 << 20;

class SoakTest : public DaemonFixture {
 protected:
  // Starts a thread that connects, does `pieces` of work, and starts again, until `end`.
  template <typename Connect>
  std::thread Program(int seed, int pieces, Clock::time_point end, Connect connect) {
    return std::thread([=, this] {
      std::minstd_rand random(seed);
      while (Clock::now() < end && !HasFailure()) {
        const absl::StatusOr<Client> client = connect();
        if (absl::IsUnavailable(client.status())) continue;  // cut while it was connecting
        ASSERT_TRUE(client.ok()) << client.status();
        const Device device = *client->device("cpu:0");
        for (int piece = 0; piece < pieces && Clock::now() < end; ++piece, ++done_) {
          const absl::Status done = RunRandomWork(device, random);
          ASSERT_TRUE(done.ok()) << done;
        }
      }
    });
  }

  std::atomic<int64_t> done_{0};
};

// Runs four programs: two over an unreliable network, one that shares memory with the daemon, and
// one that reconnects often. The long form takes half an hour.
TEST_F(SoakTest, ResultsStayCorrectAndMemoryIsBounded) {
  const bool is_long = std::getenv("TENSORD_TEST_LONG") != nullptr;
  const auto time = is_long ? std::chrono::minutes(30) : std::chrono::seconds(6);
  auto proxy = DelayProxy::Start({.target = daemon_->address()});
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  const auto far = [address = (*proxy)->address()] {
    return Client::Connect(address, {.connect_timeout = absl::Minutes(1),
                                     .lease = absl::Minutes(2),
                                     .keepalive_interval = absl::Seconds(2),
                                     .keepalive_timeout = absl::Seconds(2),
                                     .shared_memory = false});
  };
  const auto near = [address = daemon_->address()] { return Client::Connect(address); };
  const auto begin = Clock::now();
  const auto end = begin + time;
  std::vector<int64_t> resident;
  int cuts = 0;
  {
    const RandomFaults faults(proxy->get(), 11);
    std::vector<std::thread> programs;
    programs.push_back(Program(1, 1000000, end, far));
    programs.push_back(Program(2, 200, end, far));
    programs.push_back(Program(3, 1000000, end, near));
    programs.push_back(Program(4, 3, end, near));
    while (Clock::now() < end && !HasFailure()) {
      std::this_thread::sleep_for(time / 60);
      resident.push_back(daemon_->MemoryBytes("VmRSS"));
    }
    for (std::thread& program : programs) program.join();
    cuts = faults.cuts();
  }
  EXPECT_GT(cuts, 0);
  EXPECT_TRUE(Eventually([&] { return Used(0) == 0; })) << Used(0) << " bytes";
  std::printf("%lld pieces of work, %d cuts\n", static_cast<long long>(done_), cuts);
  if (!is_long || HasFailure()) return;  // memory settles only after minutes
  const auto third = resident.begin() + static_cast<ptrdiff_t>(resident.size() / 3);
  const auto two_thirds = resident.begin() + static_cast<ptrdiff_t>(resident.size() * 2 / 3);
  const int64_t before = *std::max_element(third, two_thirds);
  const int64_t after = *std::max_element(two_thirds, resident.end());
  std::printf("resident at most %lld MiB, then %lld MiB\n", static_cast<long long>(before >> 20),
              static_cast<long long>(after >> 20));
  EXPECT_LE(after, before + kMaxGrowthBytes);
}

}  // namespace
}  // namespace tensord::fault
