// The session and engine layers in one thread, driven by chance that a seed repeats.
//   TENSORD_TEST_LONG=1        100,000 seeds
//   TENSORD_SIMULATION_SEED=N  that one, and all that happens in it
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/numbers.h"
#include "tensord/tests/simulation/world.h"

namespace tensord::simulation {
namespace {

constexpr uint64_t kShort = 3000;
constexpr uint64_t kLong = 100000;
constexpr unsigned kSecondsPerSeed = 60;

std::atomic<uint64_t> current_seed{0};

std::string Replay(uint64_t seed) {
  return absl::StrCat("TENSORD_SIMULATION_SEED=", seed,
                      " build/release/bin/simulation_test --gtest_filter='*Seeds'");
}

void OnAlarm(int /*signal*/) {
  char text[200];
  const int size = snprintf(text, sizeof(text),
                            "seed %llu doesn't come to an end; TENSORD_SIMULATION_SEED tells how\n",
                            static_cast<unsigned long long>(current_seed.load()));
  if (write(STDERR_FILENO, text, size) < 0) abort();
  _exit(1);
}

// What happens in a seed's world; the journal says whether it went well.
World::Counts RunSeed(uint64_t seed, Journal* journal) {
  current_seed = seed;
  alarm(kSecondsPerSeed);
  World world(seed, journal);
  world.Run();
  alarm(0);
  return world.counts();
}

void Add(const World::Counts& counts, World::Counts* sum) {
  sum->steps += counts.steps;
  sum->commands += counts.commands;
  sum->breaks += counts.breaks;
  sum->restarts += counts.restarts;
  sum->leases_ended += counts.leases_ended;
  sum->reads += counts.reads;
  sum->uploads += counts.uploads;
}

bool ReplayAskedFor() {
  const char* text = std::getenv("TENSORD_SIMULATION_SEED");
  if (text == nullptr) return false;
  uint64_t seed = 0;
  if (!absl::SimpleAtoi(text, &seed)) {
    ADD_FAILURE() << "TENSORD_SIMULATION_SEED is no number";
    return true;
  }
  Journal journal(/*keep=*/true);
  RunSeed(seed, &journal);
  for (const std::string& line : journal.lines()) std::cout << line << "\n";
  EXPECT_FALSE(journal.failed()) << journal.failure();
  return true;
}

TEST(SimulationTest, Seeds) {
  signal(SIGALRM, OnAlarm);
  if (ReplayAskedFor()) return;
  const uint64_t count = std::getenv("TENSORD_TEST_LONG") != nullptr ? kLong : kShort;
  World::Counts sum;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    Journal journal(/*keep=*/false);
    Add(RunSeed(seed, &journal), &sum);
    ASSERT_FALSE(journal.failed())
        << "seed " << seed << ": " << journal.failure() << "\n  " << Replay(seed);
  }
  std::cout << count << " seeds: " << sum.steps << " steps, " << sum.commands << " commands, "
            << sum.breaks << " connections broken, " << sum.restarts << " restarts, "
            << sum.leases_ended << " leases ended, " << sum.uploads << " uploads\n";
  EXPECT_GT(sum.breaks, 0);
  EXPECT_GT(sum.restarts, 0);
  EXPECT_GT(sum.leases_ended, 0);
  EXPECT_GT(sum.uploads, 0);
}

// What a seed tells of is of no use unless it does so again.
TEST(SimulationTest, ASeedIsTheSameStoryEachTime) {
  signal(SIGALRM, OnAlarm);
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Journal first(/*keep=*/true);
    Journal second(/*keep=*/true);
    RunSeed(seed, &first);
    RunSeed(seed, &second);
    ASSERT_EQ(first.lines(), second.lines()) << Replay(seed);
  }
}

}  // namespace
}  // namespace tensord::simulation
