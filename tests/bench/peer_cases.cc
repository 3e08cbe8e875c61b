// Compares with other libraries for remote computation, in Python: torch RPC and Dask.
#include <functional>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

struct PeerCase {
  std::string measure;
  std::string unit;
  Better better;
  std::optional<double> goal;
  std::string question;
  Comparison::Sample ours;
};

void AgainstOne(Bench& bench, const std::string& name, const std::string& chain_question) {
  constexpr int64_t kBytes = 256 * kMiB;
  const Client client = bench.Connect();
  const Tensor x = Ones(Check(client.device("cpu:0")), {kSmall});
  Transfer transfer(client, kBytes);
  const auto one = [](double value) { return std::vector<double>{value}; };
  const std::vector<PeerCase> cases = {
      {"one op and its result, p50",
       "us",
       Better::kLower,
       {},
       "op 50",
       [&] { return OpAndRead(x, 50); }},
      {"dependent chain of 64-element adds, call by call",
       "op/s",
       Better::kHigher,
       {},
       chain_question,
       [&] { return one(Chain(client, x, 200000)); }},
      {"upload, 256 MiB", "GiB/s", Better::kHigher, 1.0, absl::StrCat("upload ", kBytes),
       [&] { return one(transfer.Upload()); }},
      {"download, 256 MiB", "GiB/s", Better::kHigher, 1.0, absl::StrCat("download ", kBytes),
       [&] { return one(transfer.Download()); }}};
  for (const PeerCase& peer_case : cases) {
    if (!bench.Wants(peer_case.measure)) continue;
    Peer* const peer = bench.FindPeer(name);
    if (peer == nullptr) return;
    Comparison comparison(bench);
    comparison.Add(kOurs, peer_case.ours);
    comparison.AddPeer(name, peer, peer_case.question);
    comparison.Run(5);
    comparison.AddRow(
        {peer_case.measure, peer_case.unit, name, peer_case.better, 0.5, peer_case.goal});
  }
}

}  // namespace

void PeerCases(Bench& bench) {
  AgainstOne(bench, "torch RPC", "chain 500");
  AgainstOne(bench, "Dask", "chain 100");
}

}  // namespace tensord::bench
