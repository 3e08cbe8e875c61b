// What the cases of the benchmark have in common.
//
// A case compares "ours" with one or more references that do the same in another way. All of them
// take turns, round after round, so that a noisy machine is noisy to all; what is printed are
// medians and ratios. To add a row:
//
//   Turns turns(bench, {{"ours", [&] { return OpsPerSecond(...); }},
//                       {"PyTorch", [&] { return peer.Ask(...); }}});
//   turns.Run(9);
//   turns.AddRow({.measure = "…", .unit = "op/s", .reference = "PyTorch", .goal = 1.5});
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

namespace tensord::bench {

using Clock = std::chrono::steady_clock;

inline constexpr int64_t kMiB = 1 << 20;
inline constexpr double kGiB = 1024.0 * 1024 * 1024;
inline constexpr char kOurs[] = "ours";

// Ends the program where something that has to work doesn't.
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

// A line of the table.
struct Row {
  std::string measure;
  std::string unit;
  double ours = 0;
  std::string reference;  // what it is measured against
  double reference_value = 0;
  double ratio = 0;  // above 1: ours is better
  // The least ratio that will do; none where the row is there to be read.
  std::optional<double> goal;

  bool met() const { return !goal || ratio >= *goal; }
};

// A curve of the plot.
struct Series {
  std::string chart;  // the chart it is in: its title
  std::string x_label;
  std::string y_label;
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// One run: what was asked for, what takes part, what came out.
class Bench {
 public:
  Bench(bool quick, bool plot, const std::string& filter);

  bool quick() const { return quick_; }
  bool plot() const { return plot_; }
  // Whether a row of this name is wanted.
  bool Wants(const std::string& measure) const;
  // Whether any of them is.
  bool WantsAny(const std::vector<std::string>& measures) const;

  // The server that most cases use, started with the first call.
  integration::DaemonProcess& daemon();
  Client Connect(const ConnectOptions& options = {});
  // The echo server of wire.h, which has to be there.
  Peer& echo();
  // The programs measured against, started with the first call; null where they can't be, which is
  // said once.
  Peer* torch() { return FindPeer("PyTorch eager"); }
  // Any of them, by name.
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

// What a row is made of, besides the figures.
struct RowSpec {
  std::string measure;
  std::string unit;
  std::string reference;
  Better better = Better::kHigher;
  double quantile = 0.5;
  std::optional<double> goal = {};
  std::string ours = kOurs;
};

// Some who do the same, in turns.
class Turns {
 public:
  // Gives one figure, or many (latencies). None: it can't go on, and is left out.
  using Sample = std::function<std::vector<double>()>;
  struct Contender {
    std::string name;
    Sample sample;
  };

  explicit Turns(Bench& bench) : bench_(bench) {}
  void Join(const std::string& name, Sample sample);
  void JoinOne(const std::string& name, std::function<double()> sample);
  // A peer that answers `question`; nothing where the peer isn't there.
  void JoinPeer(const std::string& name, Peer* peer, const std::string& question);

  // One round that doesn't count, then `rounds`; with --quick about half.
  void Run(int rounds);

  // How many have joined.
  size_t size() const { return contenders_.size(); }
  bool Has(const std::string& name) const { return samples_.count(name) != 0; }
  double Value(const std::string& name, double quantile = 0.5) const;
  // How much better the first is: of single figures the median over the rounds of their ratio, of
  // many the ratio of the quantiles of all.
  double Ratio(const std::string& ours, const std::string& reference, Better better,
               double quantile) const;
  // Nothing where the filter doesn't want it or the reference isn't there.
  void AddRow(const RowSpec& spec) const;

 private:
  Bench& bench_;
  std::vector<Contender> contenders_;
  std::map<std::string, std::vector<std::vector<double>>> samples_;  // by round
};

// What several families do, on resident tensors of 64 elements or of bytes.

inline constexpr int64_t kSmall = 64;

// Submits one op and reads its result: microseconds of each.
std::vector<double> OpAndRead(const Tensor& x, int n);
// Op/s of a chain of `n` dependent additions, each a call, waited for at the end.
double Chain(const Client& client, const Tensor& x, int n);

// A tensor of bytes on the server, and memory of the same size here.
class Transfer {
 public:
  Transfer(Client client, int64_t size);
  absl::Span<uint8_t> here() { return absl::MakeSpan(here_); }
  // GiB/s until the server has it, or until it is here.
  double Upload();
  double Download();

 private:
  Client client_;
  Device device_;
  std::vector<uint8_t> here_;
  Tensor there_;
};

// While it lives, this program keeps to one core and the others to a second, where there are two:
// as on two machines, each end sleeps and is woken. Left alone, the scheduler has the ends of an
// exchange now on one core and now on two, for minutes, and one takes half as long as the other.
class Apart {
 public:
  explicit Apart(const std::vector<pid_t>& others);
  ~Apart();
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  const cpu_set_t all_;
  const std::vector<pid_t> others_;
};

// The cases, by family.
void LatencyCases(Bench& bench);
void OpCases(Bench& bench);
void TransferCases(Bench& bench);
void SessionCases(Bench& bench);
void ClusterCases(Bench& bench);
void ComputeCases(Bench& bench);
void CudaCases(Bench& bench);  // compiled with CUDA only
void PeerCases(Bench& bench);

// The table, as text.
std::string Table(const Bench& bench);
std::string Json(const Bench& bench);
// The series as charts in one SVG picture.
std::string Svg(const std::vector<Series>& series);

}  // namespace tensord::bench
