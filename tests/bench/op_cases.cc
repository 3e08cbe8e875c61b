// Op throughput: single calls, a recorded program, and many clients at once.
#include <algorithm>
#include <thread>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

// Published figures of other machines; the benchmark doesn't run ggml.
constexpr double kGgmlRpcOpsPerSecond = 127000;
constexpr double kGgmlStoredGraphOpsPerSecond = 2.86e6;

void DependentChain(Bench& bench) {
  const std::string measure = "dependent chain of 64-element adds, call by call";
  if (!bench.Wants(measure)) return;
  constexpr int kOps = 200000;
  const Client client = bench.Connect();
  const Tensor x = Ones(Check(client.device("cpu:0")), {kSmall});
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return Chain(client, x, kOps); });
  comparison.AddPeer("PyTorch eager", bench.torch(), absl::StrCat("chain ", kOps));
  comparison.Run(11);
  comparison.AddRow({measure, "op/s", "PyTorch eager", Better::kHigher, 0.5, 1.5});
  const double rate = comparison.Value(kOurs);
  bench.Add({measure, "op/s", rate, "ggml-rpc (published)", kGgmlRpcOpsPerSecond,
             rate / kGgmlRpcOpsPerSecond, 20.0});
}

// A program of `n` dependent additions: (x) -> x + n·step.
Program RecordChain(const Device& device, const Tensor& step, int n) {
  return Check(Program::Record(device, {step.spec()}, [&](absl::Span<const Tensor> inputs) {
    Tensor y = inputs[0];
    for (int i = 0; i < n; ++i) y = Add(y, step);
    return std::vector<Tensor>{y};
  }));
}

void RecordedChain(Bench& bench) {
  const std::string measure = "dependent chain, a program of 1,000 adds, rerun";
  if (!bench.Wants(measure)) return;
  constexpr int kOps = 1000, kRuns = 1000;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor one = Ones(device, {kSmall});
  const Program program = RecordChain(device, one, kOps);
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return kOps * kRuns / SecondsOf([&] {
             Tensor y = one;
             for (int i = 0; i < kRuns; ++i) y = program.Run({y})[0];
             Check(client.Synchronize());
           });
  });
  comparison.AddPeer("PyTorch eager", bench.torch(), absl::StrCat("chain ", 200000));
  comparison.Run(11);
  const double rate = comparison.Value(kOurs);
  constexpr double kWanted = 10e6;
  bench.Add({measure, "op/s", rate, "limit of 10 M", kWanted, rate / kWanted, 1.0});
  bench.Add({measure,
             "op/s",
             rate,
             "ggml stored graph (published)",
             kGgmlStoredGraphOpsPerSecond,
             rate / kGgmlStoredGraphOpsPerSecond,
             {}});
  comparison.AddRow({measure, "op/s", "PyTorch eager"});
}

constexpr int kClients = 64;
constexpr int kOpsEach = 1000;

// Runs kOpsEach ops and reads the last result. Returns whether it is correct.
bool OneShare(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < kOpsEach; ++i) y = Add(y, x);
  const auto values = y.Read<float>();
  return values.ok() && values->front() == static_cast<float>(kOpsEach + 1);
}

struct ClientsResult {
  int served = 0;
  double slowest_seconds = 0;
  double wall_seconds = 0;
};

// Runs OneShare on each of these tensors, all at once. Each belongs to a different, connected
// client.
ClientsResult RunClients(const std::vector<Tensor>& starts) {
  std::vector<double> seconds(starts.size());
  std::vector<int> served(starts.size());
  ClientsResult result;
  result.wall_seconds = SecondsOf([&] {
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < starts.size(); ++i) {
      threads.emplace_back([&, i] {
        served[i] = OneShare(starts[i]) ? 1 : 0;
        seconds[i] = std::chrono::duration<double>(Clock::now() - begin).count();
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  result.served = static_cast<int>(std::count(served.begin(), served.end(), 1));
  result.slowest_seconds = *std::max_element(seconds.begin(), seconds.end());
  return result;
}

// The fair share of each of 64 clients is a 64th of the rate of a single client. With this rate,
// each client needs as long for its program as a single client needs for 64 such programs. This
// time is the reference.
void ManyClients(Bench& bench) {
  const std::string served = "64 clients, 1,000 ops and a read each: served";
  const std::string slowest = "64 clients, 1,000 ops and a read each: the slowest";
  const std::string together = "64 clients, 1,000 ops and a read each: together";
  if (!bench.WantsAny({served, slowest, together})) return;
  std::vector<Client> clients;
  std::vector<Tensor> starts;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(bench.Connect());
    starts.push_back(Ones(Check(clients.back().device("cpu:0")), {kSmall}));
    Check(clients.back().Synchronize());
  }
  int least_served = kClients;
  ClientsResult result;
  Comparison comparison(bench);
  comparison.AddSingle("slowest", [&] {
    result = RunClients(starts);
    least_served = std::min(least_served, result.served);
    return result.slowest_seconds;
  });
  comparison.AddSingle("together", [&] { return kClients * (kOpsEach + 1) / result.wall_seconds; });
  double alone_seconds = 0;
  comparison.AddSingle("fair share", [&] {
    return alone_seconds = SecondsOf([&] {
             for (int i = 0; i < kClients; ++i) OneShare(starts[0]);
           });
  });
  comparison.AddSingle("one client alone",
                       [&] { return kClients * (kOpsEach + 1) / alone_seconds; });
  comparison.Run(9);
  bench.Add({served, "clients", static_cast<double>(least_served), "all", kClients,
             static_cast<double>(least_served) / kClients, 1.0});
  comparison.AddRow({slowest, "s", "fair share", Better::kLower, 0.5, 0.5, "slowest"});
  comparison.AddRow({together, "op/s", "one client alone", Better::kHigher, 0.5, 1.0, "together"});
}

// Plots op/s over the number of ops between two waits.
void OpsOverBatch(Bench& bench) {
  if (!bench.plot()) return;
  const Client client = bench.Connect();
  const Tensor x = Ones(Check(client.device("cpu:0")), {kSmall});
  Series ours = {
      "ops a second over ops between waits", "ops between two waits", "op/s", "tensord", {}};
  Series local = ours;
  local.name = "PyTorch eager, local";
  for (int n = 1; n <= 100000; n *= 10) {
    const int repeats = std::clamp(10000 / n, 3, 200);
    std::vector<double> rates;
    for (int i = 0; i < repeats; ++i) rates.push_back(Chain(client, x, n));
    ours.points.emplace_back(n, Quantile(rates, 0.5));
    if (bench.torch() == nullptr) continue;
    rates.clear();
    for (int i = 0; i < repeats; ++i) {
      rates.push_back(Check(bench.torch()->Ask(absl::StrCat("chain ", n))).front());
    }
    local.points.emplace_back(n, Quantile(rates, 0.5));
  }
  bench.Add(ours);
  if (!local.points.empty()) bench.Add(local);
}

}  // namespace

void OpCases(Bench& bench) {
  DependentChain(bench);
  RecordedChain(bench);
  ManyClients(bench);
  OpsOverBatch(bench);
}

}  // namespace tensord::bench
