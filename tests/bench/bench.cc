#include "tensord/tests/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::bench {
namespace {

using Command = std::vector<std::string>;

// The pause before each sample. Threads of the previous contender that spin go to sleep meanwhile.
constexpr auto kSettle = std::chrono::milliseconds(5);

const char* Python() {
  const char* named = std::getenv("TENSORD_BENCH_PYTHON");
  return named != nullptr ? named : "/usr/bin/python3";
}

// Returns the command that starts the peer. For PyTorch this is the C++ program if it was built,
// otherwise the Python script.
Command CommandOf(const std::string& name) {
  const std::string peers = TENSORD_BENCH_PEERS;
  if (name == "echo") return {TENSORD_BENCH_ECHO};
  if (name == "Gloo") {
#ifdef TENSORD_BENCH_GLOO
    return {TENSORD_BENCH_GLOO};
#else
    return {"/bin/echo", "skip built without Gloo"};
#endif
  }
  if (name == "PyTorch 2") return {Python(), peers + "/torch_array.py"};
  if (name == "PyTorch 2, memory") return {Python(), peers + "/torch_memory.py"};
  if (name == "torch RPC") return {Python(), peers + "/torch_rpc.py"};
  if (name == "Dask") return {Python(), peers + "/dask_peer.py"};
#ifdef TENSORD_BENCH_TORCH
  return {TENSORD_BENCH_TORCH};
#else
  return {Python(), peers + "/torch_eager.py"};
#endif
}

cpu_set_t CoresOfThisProgram() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  return cores;
}

// Returns the set with only the `n`-th of these cores.
cpu_set_t NthOf(const cpu_set_t& cores, int n) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores) && n-- == 0) CPU_SET(core, &one);
  }
  return one;
}

void KeepTo(pid_t process, const cpu_set_t& cores) {
  std::error_code ignored;  // a thread may end meanwhile
  const std::string threads = absl::StrCat("/proc/", process, "/task");
  for (const auto& thread : std::filesystem::directory_iterator(threads, ignored)) {
    sched_setaffinity(std::stoi(thread.path().filename()), sizeof(cores), &cores);
  }
}

}  // namespace

SeparateCores::SeparateCores(const std::vector<pid_t>& others)
    : all_(CoresOfThisProgram()), others_(others) {
  if (CPU_COUNT(&all_) < 2) return;
  KeepTo(getpid(), NthOf(all_, 0));
  for (const pid_t other : others_) KeepTo(other, NthOf(all_, 1));
}

SeparateCores::~SeparateCores() {
  KeepTo(getpid(), all_);
  for (const pid_t other : others_) KeepTo(other, all_);
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

double SecondsOf(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at =
      std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

Bench::Bench(bool quick, bool plot, const std::string& filter)
    : quick_(quick), plot_(plot), filter_(filter, std::regex::icase) {}

bool Bench::Wants(const std::string& measure) const { return std::regex_search(measure, filter_); }

bool Bench::WantsAny(const std::vector<std::string>& measures) const {
  return std::any_of(measures.begin(), measures.end(),
                     [this](const std::string& measure) { return Wants(measure); });
}

integration::DaemonProcess& Bench::daemon() {
  if (daemon_ == nullptr) daemon_ = Check(integration::DaemonProcess::Start({}));
  return *daemon_;
}

Client Bench::Connect(const ConnectOptions& options) {
  return Check(Client::Connect(daemon().address(), options));
}

Peer& Bench::echo() {
  Peer* const echo = FindPeer("echo");
  if (echo == nullptr) Check(absl::UnavailableError("no echo server: " + skipped_.back().second));
  return *echo;
}

Peer* Bench::FindPeer(const std::string& name) {
  const auto [at, is_new] = peers_.try_emplace(name);
  if (!is_new) return at->second.get();
  auto peer = Peer::Start(CommandOf(name), /*spins=*/name == "torch RPC");
  if (peer.ok()) {
    at->second = *std::move(peer);
  } else {
    Skip(name, std::string(peer.status().message()));
  }
  return at->second.get();
}

void Bench::Add(Row row) {
  if (!Wants(row.measure)) return;
  // Prints the progress, because a run takes minutes.
  std::fprintf(stderr, "  %-58s %10.4g %s\n", row.measure.c_str(), row.ours, row.unit.c_str());
  rows_.push_back(std::move(row));
}

void Bench::Skip(const std::string& what, const std::string& why) {
  skipped_.emplace_back(what, why);
}

void Comparison::Add(const std::string& name, Sample sample) {
  contenders_.push_back({name, std::move(sample)});
}

void Comparison::AddSingle(const std::string& name, std::function<double()> sample) {
  Add(name, [sample = std::move(sample)] { return std::vector<double>{sample()}; });
}

void Comparison::AddPeer(const std::string& name, Peer* peer, const std::string& question) {
  if (peer == nullptr) return;
  Add(name, [this, name, peer, question] {
    auto answer = peer->Ask(question);
    if (answer.ok()) return *std::move(answer);
    bench_.Skip(name, std::string(answer.status().message()));
    return std::vector<double>();
  });
}

void Comparison::Run(int rounds) {
  if (bench_.quick()) rounds = (rounds + 1) / 2;
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < contenders_.size();) {
      std::this_thread::sleep_for(kSettle);
      std::vector<double> sample = contenders_[i].sample();
      if (sample.empty()) {  // the contender has failed
        samples_.erase(contenders_[i].name);
        contenders_.erase(contenders_.begin() + static_cast<ptrdiff_t>(i));
        continue;
      }
      if (round >= 0) samples_[contenders_[i].name].push_back(std::move(sample));
      ++i;
    }
  }
}

double Comparison::Value(const std::string& name, double quantile) const {
  std::vector<double> all;
  for (const auto& sample : samples_.at(name)) all.insert(all.end(), sample.begin(), sample.end());
  return Quantile(std::move(all), quantile);
}

double Comparison::Ratio(const std::string& ours, const std::string& reference, Better better,
                         double quantile) const {
  const auto divide = [&](double a, double b) { return better == Better::kHigher ? a / b : b / a; };
  const auto& a = samples_.at(ours);
  const auto& b = samples_.at(reference);
  if (a.front().size() != 1 || b.front().size() != 1) {
    return divide(Value(ours, quantile), Value(reference, quantile));
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(divide(a[i][0], b[i][0]));
  return Quantile(std::move(ratios), 0.5);
}

void Comparison::AddRow(const RowSpec& spec) const {
  if (!Has(spec.reference) || !Has(spec.ours)) return;
  bench_.Add({.measure = spec.measure,
              .unit = spec.unit,
              .ours = Value(spec.ours, spec.quantile),
              .reference = spec.reference,
              .reference_value = Value(spec.reference, spec.quantile),
              .ratio = Ratio(spec.ours, spec.reference, spec.better, spec.quantile),
              .goal = spec.goal});
}

}  // namespace tensord::bench
