// Simulates the session and engine layers in one thread. A seed determines all random events.
//   TENSORD_TEST_LONG=1        runs 100,000 seeds, and 10,000 of them twice
//   TENSORD_SIMULATION_SEED=N  runs seed N only, and prints its trace
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/tests/simulation/world.h"

namespace tensord::simulation {
namespace {

constexpr uint64_t kShort = 3000;
constexpr uint64_t kLong = 100000;
// Wall time. A world takes milliseconds, but other processes may occupy the processors.
constexpr unsigned kSecondsPerSeed = 120;
// Seeds whose worlds are run twice.
constexpr uint64_t kShortTraces = 100;
constexpr uint64_t kLongTraces = 10000;
constexpr size_t kPageBytes = 4096;
constexpr size_t kMaxShiftPages = 30;  // malloc maps larger blocks separately; they shift nothing
// Lines shown before the first one that differs.
constexpr size_t kLinesBefore = 10;

std::atomic<uint64_t> current_seed{0};

std::string Replay(uint64_t seed) {
  return absl::StrCat("TENSORD_SIMULATION_SEED=", seed,
                      " build/release/bin/simulation_test --gtest_filter='*Seeds'");
}

void OnAlarm(int /*signal*/) {
  char text[200];
  const int size =
      snprintf(text, sizeof(text), "simulation_test: the world of seed %llu doesn't end\n",
               static_cast<unsigned long long>(current_seed.load()));
  if (write(STDERR_FILENO, text, size) < 0) abort();
  _exit(1);
}

// Runs a seed's world. The trace has its failure, if any.
World::Counts RunSeed(uint64_t seed, Trace* trace) {
  current_seed = seed;
  alarm(kSecondsPerSeed);
  World world(seed, trace);
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
  sum->interrupted += counts.interrupted;
}

// Compares two traces. If they are equal, returns an empty string. Otherwise returns the first line
// that differs, from both traces, and before it up to kLinesBefore lines that are equal.
std::string FirstDifference(const std::vector<std::string>& first,
                            const std::vector<std::string>& second) {
  const auto [one, two] = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
  if (one == first.end() && two == second.end()) return "";
  const auto at = static_cast<size_t>(one - first.begin());
  std::string text = absl::StrCat("line ", at + 1, ":\n");
  for (size_t i = at - std::min(at, kLinesBefore); i < at; ++i) {
    absl::StrAppend(&text, "    ", first[i], "\n");
  }
  absl::StrAppend(&text, "  1 ", one == first.end() ? "(end)" : *one, "\n");
  absl::StrAppend(&text, "  2 ", two == second.end() ? "(end)" : *two, "\n");
  return text;
}

// If TENSORD_SIMULATION_SEED is set, runs this seed, prints its trace and returns true.
bool MaybeReplay() {
  const char* text = std::getenv("TENSORD_SIMULATION_SEED");
  if (text == nullptr) return false;
  uint64_t seed = 0;
  if (!absl::SimpleAtoi(text, &seed)) {
    ADD_FAILURE() << "TENSORD_SIMULATION_SEED isn't a number";
    return true;
  }
  Trace trace(/*keep=*/true);
  RunSeed(seed, &trace);
  for (const std::string& line : trace.lines()) std::cout << line << "\n";
  EXPECT_FALSE(trace.failed()) << trace.failure();
  return true;
}

TEST(SimulationTest, Seeds) {
  signal(SIGALRM, OnAlarm);
  if (MaybeReplay()) return;
  const uint64_t count = std::getenv("TENSORD_TEST_LONG") != nullptr ? kLong : kShort;
  World::Counts sum;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    Trace trace(/*keep=*/false);
    Add(RunSeed(seed, &trace), &sum);
    ASSERT_FALSE(trace.failed()) << "seed " << seed << ": " << trace.failure() << "\n  "
                                 << Replay(seed);
  }
  std::cout << count << " seeds: " << sum.steps << " steps, " << sum.commands << " commands, "
            << sum.breaks << " connections broken, " << sum.restarts << " restarts, "
            << sum.leases_ended << " leases ended, " << sum.uploads << " uploads, "
            << sum.interrupted << " messages interrupted\n";
  EXPECT_GT(sum.breaks, 0);
  EXPECT_GT(sum.restarts, 0);
  EXPECT_GT(sum.leases_ended, 0);
  EXPECT_GT(sum.uploads, 0);
  EXPECT_GT(sum.interrupted, 0);
}

// Runs each seed's world twice and compares the traces. If they differ, a replay doesn't reproduce
// a failure.
TEST(SimulationTest, SameSeedGivesSameTrace) {
  signal(SIGALRM, OnAlarm);
  const uint64_t count = std::getenv("TENSORD_TEST_LONG") != nullptr ? kLongTraces : kShortTraces;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    Trace first(/*keep=*/true);
    Trace second(/*keep=*/true);
    RunSeed(seed, &first);
    // Shifts the addresses of the second world's allocations. The iteration order of Abseil's hash
    // maps depends on addresses.
    const std::vector<char> shift(kPageBytes * (1 + seed % kMaxShiftPages));
    RunSeed(seed, &second);
    ASSERT_FALSE(first.lines().empty());
    const std::string difference = FirstDifference(first.lines(), second.lines());
    ASSERT_TRUE(difference.empty())
        << "two runs of seed " << seed << " differ first in " << difference << Replay(seed);
  }
}

TEST(SimulationTest, FirstDifferenceNamesTheFirstLineThatDiffers) {
  EXPECT_EQ(FirstDifference({}, {}), "");
  EXPECT_EQ(FirstDifference({"a", "b"}, {"a", "b"}), "");
  EXPECT_EQ(FirstDifference({"a", "b"}, {"a", "c"}), "line 2:\n    a\n  1 b\n  2 c\n");
  EXPECT_EQ(FirstDifference({"a"}, {"a", "c"}), "line 2:\n    a\n  1 (end)\n  2 c\n");
}

}  // namespace
}  // namespace tensord::simulation
