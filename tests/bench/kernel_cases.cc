// Single kernels over large resident tensors: random numbers, transposes, functions of libm.
// Compares with PyTorch.
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

constexpr char kTorch[] = "PyTorch eager";

// A case that runs an expression once and waits for it.
struct KernelCase {
  std::string measure;
  double goal;
  std::string question;  // to PyTorch
  std::function<Tensor()> op;
};

void RunKernel(Bench& bench, const Client& client, const KernelCase& kernel) {
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return 1e3 * SecondsOf([&] {
             const Tensor y = kernel.op();
             Check(client.Synchronize());
           });
  });
  comparison.AddPeer(kTorch, bench.torch(), kernel.question);
  comparison.Run(9);
  comparison.AddRow({kernel.measure, "ms", kTorch, Better::kLower, 0.5, kernel.goal});
}

}  // namespace

void KernelCases(Bench& bench) {
  constexpr int64_t kDrawn = 4 * kMiB, kSide = 4096, kLong = 16 * kMiB;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor drawn = Normal(device, {kDrawn}, /*seed=*/1);
  const Tensor square = Normal(device, {kSide, kSide}, /*seed=*/2);
  const Tensor row = Normal(device, {kSide}, /*seed=*/3);
  const Tensor positive = Uniform(device, {kLong}, /*seed=*/4, {.low = 0.1, .high = 4});
  Generator generator(/*seed=*/5);
  const std::vector<KernelCase> cases = {
      {"uniform, 4 Mi float32", 2, absl::StrCat("uniform ", kDrawn),
       [&] { return Uniform(device, {kDrawn}, generator); }},
      {"normal, 4 Mi float32", 2, absl::StrCat("normal ", kDrawn),
       [&] { return Normal(device, {kDrawn}, generator); }},
      {"dropout, 4 Mi float32", 3, absl::StrCat("dropout ", kDrawn),
       [&] { return Dropout(drawn, 0.5, generator); }},
      {"transpose 4096x4096 float32", 1, absl::StrCat("transpose ", kSide),
       [&] { return Transpose(square); }},
      {"relu(transpose * row + row), 4096x4096 float32", 2, absl::StrCat("strided ", kSide),
       [&] { return Relu(Transpose(square) * row + row); }},
      {"sin, 16 Mi float32", 1, absl::StrCat("sin ", kLong), [&] { return Sin(positive); }},
      {"cos, 16 Mi float32", 1, absl::StrCat("cos ", kLong), [&] { return Cos(positive); }},
      {"erf, 16 Mi float32", 1, absl::StrCat("erf ", kLong), [&] { return Erf(positive); }},
      {"log1p, 16 Mi float32", 1, absl::StrCat("log1p ", kLong), [&] { return Log1p(positive); }}};
  for (const KernelCase& kernel : cases) {
    if (bench.Wants(kernel.measure)) RunKernel(bench, client, kernel);
  }
}

}  // namespace tensord::bench
