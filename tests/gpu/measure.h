// Rows of the benchmark, and how one is measured.
//
// A row has contenders: ours, and one reference. Each runs the same work `n` times and waits for
// the end; the time is the host's, from the first call to the end of the wait. n is chosen so that
// a sample takes long enough for the wait not to count. Contenders take turns, round after round.
// The figures are medians over the rounds; the ratio is the median over the rounds of the
// reference's time divided by ours.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/tests/gpu/gpu.h"

namespace tensord::gpu {

enum class Unit { kTeraFlops, kGigabytes, kMicroseconds };  // per second, per second, a repetition

struct Contender {
  std::string name;
  // Does the work `n` times. Returns the seconds that this took.
  std::function<absl::StatusOr<double>(int n)> run;
  // Of the result; null if there is none to compare.
  std::function<absl::StatusOr<Checksum>()> checksum;
};

struct Row {
  std::string name;
  Unit unit = Unit::kGigabytes;
  double work = 0;       // operations, or bytes read and written, of one repetition
  double peak = 0;       // the most work that the GPU could do in a second; 0: unknown
  double tolerance = 0;  // of the results' checksums
  // Makes the contenders: ours, and the reference. What they hold goes with them.
  std::function<absl::StatusOr<Contender>()> ours;
  std::function<absl::StatusOr<Contender>()> direct;  // null: there is no direct call to compare
  std::string torch;  // what PyTorch is asked to do (torch_peer.py); empty: nothing
};

struct Figures {
  double ours_seconds = 0;  // of one repetition
  std::string reference;    // empty: there is none
  double reference_seconds = 0;
  double ratio = 0;  // above 1: ours takes less time
};

struct MeasureOptions {
  int rounds = 7;
  double sample_seconds = 0.03;
};

// Wraps work that waits for its own end.
Contender TimedByHost(std::string name, std::function<absl::Status(int n)> work,
                      std::function<absl::StatusOr<Checksum>()> checksum);

// `reference` may be null. DATA_LOSS if the results differ.
absl::StatusOr<Figures> Measure(const Row& row, Contender& ours, Contender* reference,
                                const MeasureOptions& options);

// The figure of a row in its unit.
double FigureOf(const Row& row, double seconds);
const char* UnitName(Unit unit);

}  // namespace tensord::gpu
