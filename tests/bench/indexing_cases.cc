// Reads and writes rows of a table at indices. Compares with PyTorch.
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

constexpr char kTorch[] = "PyTorch eager";
constexpr int64_t kRows = 50257, kColumns = 768, kIndices = 1024;  // GPT-2's table of words
constexpr int64_t kElements = 1 << 20;

// A case that calls `op` `count` times and waits for all results at the end.
void RunCase(Bench& bench, const Client& client, const std::string& measure, int count,
             const std::string& question, double goal, const std::function<void()>& op) {
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return 1e3 / count * SecondsOf([&] {
             for (int i = 0; i < count; ++i) op();
             Check(client.Synchronize());
           });
  });
  comparison.AddPeer(kTorch, bench.torch(), absl::StrCat(question, " ", count));
  comparison.Run(13);
  comparison.AddRow({measure, "ms", kTorch, Better::kLower, 0.5, goal});
}

Tensor RandomIndices(const Device& device, int64_t n, int64_t size) {
  return Uniform(device, {n}, /*seed=*/3, {.high = static_cast<double>(size)}).To(DType::kInt64);
}

void EmbeddingRows(Bench& bench) {
  const std::string measure = "embedding of 1,024 of 50257x768 float32";
  if (!bench.Wants(measure)) return;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor weight = Uniform(device, {kRows, kColumns}, /*seed=*/1);
  const Tensor indices = RandomIndices(device, kIndices, kRows);
  RunCase(bench, client, measure, 16, "embedding", 1.0,
          [&] { Check(Embedding(indices, weight).status()); });
}

void GatherElements(Bench& bench) {
  const std::string measure = "gather of 1 Mi of 1 Mi float32";
  if (!bench.Wants(measure)) return;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor x = Uniform(device, {kElements}, /*seed=*/1);
  const Tensor indices = RandomIndices(device, kElements, kElements);
  RunCase(bench, client, measure, 8, "gather", 1.0, [&] { Check(Gather(x, 0, indices).status()); });
}

// What the backward of an embedding does to a gradient that exists.
void AddRows(Bench& bench) {
  const std::string measure = "index_put, adds 1,024 rows to 50257x768 float32";
  if (!bench.Wants(measure)) return;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  Tensor gradient = Zeros(device, {kRows, kColumns});
  const Tensor rows = Uniform(device, {kIndices, kColumns}, /*seed=*/1);
  const Tensor indices = RandomIndices(device, kIndices, kRows);
  RunCase(bench, client, measure, 16, "index_put", 2.0, [&] {
    gradient = IndexPut(gradient, {indices}, rows, {.accumulate = true, .donate = true});
    Check(gradient.status());
  });
}

}  // namespace

void IndexingCases(Bench& bench) {
  EmbeddingRows(bench);
  GatherElements(bench);
  AddRows(bench);
}

}  // namespace tensord::bench
