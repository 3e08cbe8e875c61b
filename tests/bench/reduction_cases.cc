// Reductions and scans of resident tensors. Compares with PyTorch.
#include <functional>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

constexpr char kTorch[] = "PyTorch eager";

struct ReductionCase {
  std::string measure;
  std::string question;             // peers/torch_eager, without the count
  std::function<Tensor()> compute;  // one op
  int count;                        // ops between two waits
};

void Run(Bench& bench, const Client& client, const ReductionCase& reduction) {
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return 1e3 / reduction.count * SecondsOf([&] {
             for (int i = 0; i < reduction.count; ++i) Check(reduction.compute().status());
             Check(client.Synchronize());
           });
  });
  comparison.AddPeer(kTorch, bench.torch(), absl::StrCat(reduction.question, " ", reduction.count));
  comparison.Run(9);
  comparison.AddRow({reduction.measure, "ms", kTorch, Better::kLower, 0.5, 1.0});
}

void Reductions(Bench& bench) {
  constexpr int64_t kRows = 4096;
  struct Kind {
    const char* name;
    Tensor (*compute)(const Tensor& x, int64_t axis);
  };
  const Kind kinds[] = {
      {"sum", [](const Tensor& x, int64_t axis) { return Sum(x, {.axes = {axis}}); }},
      {"mean", [](const Tensor& x, int64_t axis) { return Mean(x, {.axes = {axis}}); }},
      {"max", [](const Tensor& x, int64_t axis) { return Max(x, {.axes = {axis}}); }},
      {"var_mean", [](const Tensor& x, int64_t axis) { return VarMean(x, {.axes = {axis}}).var; }}};
  for (const Kind& kind : kinds) {
    for (const int64_t axis : {0, 1}) {
      const std::string measure = absl::StrCat(kind.name, " of 4096x4096 float32, axis ", axis);
      if (!bench.Wants(measure)) continue;
      const Client client = bench.Connect();
      const Tensor x = Uniform(Check(client.device("cpu:0")), {kRows, kRows}, /*seed=*/1);
      Run(bench, client,
          {measure, absl::StrCat(kind.name, " ", axis, " ", kRows),
           [&] { return kind.compute(x, axis); }, 4});
    }
  }
}

void Scans(Bench& bench) {
  const std::string measure = "cumsum of 1 Mi float32";
  if (!bench.Wants(measure)) return;
  const Client client = bench.Connect();
  const Tensor x = Uniform(Check(client.device("cpu:0")), {kMiB}, /*seed=*/1);
  Run(bench, client, {measure, absl::StrCat("cumsum ", kMiB), [&] { return CumSum(x, 0); }, 16});
}

}  // namespace

void ReductionCases(Bench& bench) {
  Reductions(bench);
  Scans(bench);
}

}  // namespace tensord::bench
