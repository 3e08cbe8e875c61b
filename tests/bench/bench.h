// Common code of the benchmark's cases.
//
// A case compares tensord ("ours") with one or more references that do the same in another way. In
// each round every contender runs once, so that noise of the machine affects all alike. The table
// has medians and ratios. To add a row:
//
//   Comparison comparison(bench);
//   comparison.AddSingle(kOurs, [&] { return OpsPerSecond(...); });
//   comparison.AddPeer("PyTorch", bench.torch(), "chain 1000");
//   comparison.Run(9);
//   comparison.AddRow({.measure = "…", .unit = "op/s", .reference = "PyTorch", .goal = 1.5});
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/bench/peer.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/mib.h"

namespace tensord::bench {

using Clock = std::chrono::steady_clock;

inline constexpr double kGiB = 1024.0 * 1024 * 1024;
inline constexpr char kOurs[] = "ours";

// If the status is an error, prints it and exits with 1.
void Check(const absl::Status& status);
template <typename T>
T Check(absl::StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}

double SecondsOf(const std::function<void()>& work);
double MicrosecondsSince(Clock::time_point start);
double Quantile(std::vector<double> values, double q);

enum class Better { kHigher, kLower };

// A row of the table.
struct Row {
  std::string measure;
  std::string unit;
  double ours = 0;
  std::string reference;
  double reference_value = 0;
  double ratio = 0;            // above 1: ours is better
  std::optional<double> goal;  // the lowest acceptable ratio, if any

  bool met() const { return !goal || ratio >= *goal; }
};

// A curve of the plot.
struct Series {
  std::string chart;  // the title of the chart that contains the curve
  std::string x_label;
  std::string y_label;
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// One run of the benchmark: its options, daemon, peers and results. Not thread-safe.
class Bench {
 public:
  Bench(bool quick, bool plot, const std::string& filter);

  bool quick() const { return quick_; }
  bool plot() const { return plot_; }
  // Returns whether the filter selects rows of this name.
  bool Wants(const std::string& measure) const;
  // Returns whether the filter selects any of these.
  bool WantsAny(const std::vector<std::string>& measures) const;

  // Returns the daemon that most cases use. The first call starts it.
  integration::DaemonProcess& daemon();
  Client Connect(const ConnectOptions& options = {});
  // Returns the echo server of wire.h. Exits the program if it can't be started.
  Peer& echo();
  Peer* torch() { return FindPeer("PyTorch eager"); }
  // Returns the peer of this name. The first call starts it. If it can't be started, returns null,
  // and the first call records the peer as skipped.
  Peer* FindPeer(const std::string& name);

  void Add(Row row);
  void Add(Series series) { series_.push_back(std::move(series)); }
  void Skip(const std::string& what, const std::string& why);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Series>& series() const { return series_; }
  const std::vector<std::pair<std::string, std::string>>& skipped() const { return skipped_; }

 private:
  const bool quick_;
  const bool plot_;
  const std::regex filter_;
  std::unique_ptr<integration::DaemonProcess> daemon_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  std::vector<Row> rows_;
  std::vector<Series> series_;
  std::vector<std::pair<std::string, std::string>> skipped_;
};

// The properties of a row that aren't measured.
struct RowSpec {
  std::string measure;
  std::string unit;
  std::string reference;
  Better better = Better::kHigher;
  double quantile = 0.5;
  std::optional<double> goal = {};
  std::string ours = kOurs;
};

// Contenders that do the same work, and run alternately.
class Comparison {
 public:
  // Measures once. Returns one figure, or many (latencies). If it returns none, the contender has
  // failed and is removed.
  using Sample = std::function<std::vector<double>()>;
  struct Contender {
    std::string name;
    Sample sample;
  };

  explicit Comparison(Bench& bench) : bench_(bench) {}
  void Add(const std::string& name, Sample sample);
  void AddSingle(const std::string& name, std::function<double()> sample);
  // Adds a contender that sends `question` to the peer. If `peer` is null, does nothing.
  void AddPeer(const std::string& name, Peer* peer, const std::string& question);

  // Runs one round that isn't recorded, and then `rounds`; with --quick about half of them.
  void Run(int rounds);

  // Returns the number of contenders.
  size_t size() const { return contenders_.size(); }
  bool Has(const std::string& name) const { return samples_.count(name) != 0; }
  double Value(const std::string& name, double quantile = 0.5) const;
  // Returns how many times better `ours` is. If each sample is a single figure, this is the median
  // over the rounds of their ratios. Otherwise it is the ratio of the quantiles of all figures.
  double Ratio(const std::string& ours, const std::string& reference, Better better,
               double quantile) const;
  // Adds a row to the bench. If ours or the reference has no samples, does nothing.
  void AddRow(const RowSpec& spec) const;

 private:
  Bench& bench_;
  std::vector<Contender> contenders_;
  std::map<std::string, std::vector<std::vector<double>>> samples_;  // by contender and round
};

// Programs that several case files use.

inline constexpr int64_t kSmall = 64;

// Runs one op and reads its result, `n` times. Returns the microseconds of each.
std::vector<double> OpAndRead(const Tensor& x, int n);
// Calls `n` dependent additions and waits for the last. Returns op/s.
double Chain(const Client& client, const Tensor& x, int n);

// A tensor of bytes on the server, and local memory of the same size.
class Transfer {
 public:
  Transfer(Client client, int64_t size);
  absl::Span<uint8_t> local() { return absl::MakeSpan(local_); }
  // Each transfers the bytes once, waits until all have arrived, and returns GiB/s.
  double Upload();
  double Download();

 private:
  Client client_;
  Device device_;
  std::vector<uint8_t> local_;
  Tensor remote_;
};

// While this object exists, this program runs on one core and the `others` on a second core. As on
// two machines, each end then sleeps and is woken up. Otherwise the scheduler may run both ends on
// one core for minutes, then on two, and latencies differ by a factor of two. Does nothing on a
// machine with one core.
class SeparateCores {
 public:
  explicit SeparateCores(const std::vector<pid_t>& others);
  ~SeparateCores();
  SeparateCores(const SeparateCores&) = delete;
  SeparateCores& operator=(const SeparateCores&) = delete;

 private:
  const cpu_set_t all_;
  const std::vector<pid_t> others_;
};

// The case files.
void LatencyCases(Bench& bench);
void OpCases(Bench& bench);
void TransferCases(Bench& bench);
void SessionCases(Bench& bench);
void FairnessCases(Bench& bench);
void ClusterCases(Bench& bench);
void ComputeCases(Bench& bench);
void ArrayCases(Bench& bench);
void NetworkCases(Bench& bench);
void ModelCases(Bench& bench);
void MemoryCases(Bench& bench);
void CudaCases(Bench& bench);  // compiled with CUDA only
void PeerCases(Bench& bench);

// Returns the table as text.
std::string Table(const Bench& bench);
std::string Json(const Bench& bench);
// Returns the series as charts in one SVG picture.
std::string Svg(const std::vector<Series>& series);

}  // namespace tensord::bench
