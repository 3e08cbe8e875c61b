#include "tensord/tests/bench/array_case.h"

namespace tensord::bench {
namespace {

constexpr char kTorch2[] = "PyTorch 2";

}  // namespace

void RunArrayCase(Bench& bench, const ArrayCase& array_case) {
  if (!bench.Wants(array_case.measure)) return;
  const Client client = bench.Connect();
  const std::function<Tensor()> op = array_case.prepare(Check(client.device("cpu:0")));
  Check(client.Synchronize());
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return 1e3 / array_case.count * SecondsOf([&] {
             for (int i = 0; i < array_case.count; ++i) Check(op().status());
             Check(client.Synchronize());
           });
  });
  comparison.AddPeer(
      kTorch2, bench.FindPeer(kTorch2),
      absl::StrCat(array_case.count, "; ", array_case.setup, "; ", array_case.statement));
  comparison.Run(9);
  comparison.AddRow({array_case.measure, "ms", kTorch2, Better::kLower, 0.5, array_case.goal});
}

}  // namespace tensord::bench
