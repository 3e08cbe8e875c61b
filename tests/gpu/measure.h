// Rows of the benchmark, and how a row is measured.
//
// A row has contenders: ours, and at most one reference. A sample is the time, by the host's clock,
// in which a contender runs the same work `n` times and waits for its end. n is chosen so that the
// time of the wait itself doesn't matter. Each round takes one sample of each contender. The
// results are medians over the rounds. The ratio is the median over the rounds of the reference's
// time divided by ours.
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

// Units of results: TFLOP/s, GB/s, and µs per repetition.
enum class Unit { kTeraFlops, kGigabytes, kMicroseconds };

struct Contender {
  std::string name;
  // Does the work `n` times, and waits for its end. Returns the time in seconds.
  std::function<absl::StatusOr<double>(int n)> run;
  // Returns the checksum of the result. Null if there is no result to compare.
  std::function<absl::StatusOr<Checksum>()> checksum;
};

struct Row {
  std::string name;
  Unit unit = Unit::kGigabytes;
  double work = 0;       // of one repetition: operations, or bytes read and written
  double peak = 0;       // the GPU's theoretical peak of `work` per second; 0: unknown
  double tolerance = 0;  // relative, for Agree() (test_data.h)
  // These create the contenders: ours, and the reference. A contender owns its memory.
  std::function<absl::StatusOr<Contender>()> ours;
  std::function<absl::StatusOr<Contender>()> direct;  // null: no reference but PyTorch
  std::string torch;  // the arguments of torch_peer.py's command `load`; empty: no row with PyTorch
};

struct Figures {
  double ours_seconds = 0;  // of one repetition
  std::string reference;    // its name; empty: there is no reference
  double reference_seconds = 0;
  double ratio = 0;  // reference's time / ours; above 1, ours is faster
};

struct MeasureOptions {
  int rounds = 7;
  double sample_seconds = 0.03;
};

// Makes a contender whose time is measured by the host's clock. `work` runs `n` repetitions and
// blocks until they are done.
Contender TimedByHost(std::string name, std::function<absl::Status(int n)> work,
                      std::function<absl::StatusOr<Checksum>()> checksum);

// Measures a row. `reference` may be null. Returns DATA_LOSS if the two results differ.
absl::StatusOr<Figures> Measure(const Row& row, Contender& ours, Contender* reference,
                                const MeasureOptions& options);

// Converts the time of one repetition to the row's unit.
double FigureOf(const Row& row, double seconds);
const char* UnitName(Unit unit);

}  // namespace tensord::gpu
