// Single ops on large tensors beside PyTorch 2, and what an op costs its caller in programs whose
// shapes and scalars change all the time.
#include <time.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "tensord/tests/bench/array_case.h"

namespace tensord::bench {
namespace {

using Unary = Tensor (*)(const Tensor&);

ArrayCase ElementwiseCase(const std::string& name, Unary op) {
  constexpr int64_t kElements = 16 * kMiB;
  return {name + " over 16 Mi float32",
          4,
          [op](const Device& device) {
            const Tensor x = Uniform(device, {kElements}, /*seed=*/1);
            return [op, x] { return op(x); };
          },
          absl::StrCat("x = torch.rand(", kElements, ") | y = torch.empty_like(x)"),
          absl::StrCat("torch.", name, "(x, out=y)"),
          1.0};
}

ArrayCase SortCase() {
  return {"sort 1 Mi float32",
          1,
          [](const Device& device) {
            const Tensor x = Normal(device, {kMiB}, /*seed=*/1);
            return [x] { return Sort(x).values; };
          },
          "x = torch.randn(1 << 20) | out = (torch.empty_like(x), torch.empty(1 << 20).long())",
          "torch.sort(x, out=out)",
          5.0};
}

ArrayCase TopKCase() {
  return {"topk 50 of 4x50257 float32",
          8,
          [](const Device& device) {
            const Tensor x = Normal(device, {4, 50257}, /*seed=*/1);
            return [x] { return TopK(x, 50).values; };
          },
          "x = torch.randn(4, 50257) | out = torch.topk(x, 50)",
          "torch.topk(x, 50, out=out)",
          1.0};
}

ArrayCase TopKOfRowsCase() {
  return {"topk 10 of 1000x1000 float32",
          8,
          [](const Device& device) {
            const Tensor x = Normal(device, {1000, 1000}, /*seed=*/1);
            return [x] { return TopK(x, 10).values; };
          },
          "x = torch.randn(1000, 1000) | out = torch.topk(x, 10)",
          "torch.topk(x, 10, out=out)",
          1.0};
}

Tensor RandomIndices(const Device& device, int64_t n, int64_t size) {
  return Uniform(device, {n}, /*seed=*/3, {.high = static_cast<double>(size)}).To(DType::kInt64);
}

// The rows of GPT-2's table of words.
constexpr int64_t kRows = 50257, kColumns = 768, kIndices = 1024;

ArrayCase EmbeddingCase() {
  return {"embedding of 1,024 of 50257x768 float32",
          128,
          [](const Device& device) {
            const Tensor weight = Uniform(device, {kRows, kColumns}, /*seed=*/1);
            const Tensor indices = RandomIndices(device, kIndices, kRows);
            return [weight, indices] { return Embedding(indices, weight); };
          },
          "w = torch.rand(50257, 768) | i = torch.randint(50257, (1024,)) | y = w[i]",
          "torch.index_select(w, 0, i, out=y)",
          1.0};
}

ArrayCase GatherCase() {
  constexpr int64_t kElements = kMiB;
  return {"gather of 1 Mi of 1 Mi float32",
          8,
          [](const Device& device) {
            const Tensor x = Uniform(device, {kElements}, /*seed=*/1);
            const Tensor indices = RandomIndices(device, kElements, kElements);
            return [x, indices] { return Gather(x, 0, indices); };
          },
          "n = 1 << 20 | x = torch.rand(n) | i = torch.randint(n, (n,)) | y = torch.empty(n)",
          "torch.gather(x, 0, i, out=y)",
          1.0};
}

// Indices into the last axis of a (1024, 1024) tensor.
Tensor RandomColumns(const Device& device) {
  return Reshape(RandomIndices(device, kMiB, 1024), {1024, 1024});
}

ArrayCase GatherColumnsCase() {
  return {"gather along the last axis of 1024x1024 float32",
          8,
          [](const Device& device) {
            const Tensor x = Uniform(device, {1024, 1024}, /*seed=*/1);
            const Tensor indices = RandomColumns(device);
            return [x, indices] { return Gather(x, 1, indices); };
          },
          "x = torch.rand(1024, 1024) | i = torch.randint(1024, (1024, 1024)) | "
          "y = torch.empty_like(x)",
          "torch.gather(x, 1, i, out=y)",
          1.0};
}

ArrayCase ScatterCase() {
  return {"scatter, adds along the last axis of 1024x1024 float32",
          8,
          [](const Device& device) {
            const Tensor x = Uniform(device, {1024, 1024}, /*seed=*/1);
            const Tensor values = Uniform(device, {1024, 1024}, /*seed=*/2);
            const Tensor indices = RandomColumns(device);
            return [=] { return ScatterAdd(x, 1, indices, values); };
          },
          "x = torch.rand(1024, 1024) | i = torch.randint(1024, (1024, 1024)) | "
          "v = torch.rand(1024, 1024) | y = torch.empty_like(x)",
          "torch.scatter_add(x, 1, i, v, out=y)",
          1.0};
}

// What the backward of an embedding does to a gradient that exists.
ArrayCase IndexPutCase() {
  return {
      "index_put, adds 1,024 rows to 50257x768 float32",
      16,
      [](const Device& device) {
        const Tensor rows = Uniform(device, {kIndices, kColumns}, /*seed=*/1);
        const Tensor indices = RandomIndices(device, kIndices, kRows);
        return [rows, indices, gradient = Zeros(device, {kRows, kColumns})]() mutable {
          gradient = IndexPut(gradient, {indices}, rows, {.accumulate = true, .donate = true});
          return gradient;
        };
      },
      "g = torch.zeros(50257, 768) | r = torch.rand(1024, 768) | i = torch.randint(50257, (1024,))",
      "g.index_put_((i,), r, accumulate=True)",
      2.0};
}

using Draw = Tensor (*)(const Device& device, const Shape& shape, Generator& generator);

ArrayCase RandomCase(const std::string& name, Draw draw) {
  constexpr int64_t kElements = 4 * kMiB;
  return {name + " of 4 Mi float32",
          4,
          [draw](const Device& device) {
            return [draw, device, generator = std::make_shared<Generator>(/*seed=*/5)] {
              return draw(device, {kElements}, *generator);
            };
          },
          "x = torch.empty(4 << 20)",
          absl::StrCat("x.", name, "_()"),
          2.0};
}

ArrayCase DropoutCase() {
  constexpr int64_t kElements = 4 * kMiB;
  return {"dropout of 4 Mi float32",
          4,
          [](const Device& device) {
            const Tensor x = Normal(device, {kElements}, /*seed=*/1);
            return [x, generator = std::make_shared<Generator>(/*seed=*/5)] {
              return Dropout(x, 0.5, *generator);
            };
          },
          "x = torch.randn(4 << 20)",
          "torch.nn.functional.dropout(x, 0.5)",
          3.0};
}

constexpr int64_t kSide = 4096;

ArrayCase TransposeCase() {
  return {"transpose 4096x4096 float32",
          4,
          [](const Device& device) {
            const Tensor x = Normal(device, {kSide, kSide}, /*seed=*/2);
            return [x] { return Transpose(x); };
          },
          "x = torch.randn(4096, 4096) | y = torch.empty(4096, 4096)",
          "y.copy_(x.t())",
          1.0};
}

ArrayCase StridedChainCase() {
  return {"relu(transpose * row + row), 4096x4096 float32",
          4,
          [](const Device& device) {
            const Tensor x = Normal(device, {kSide, kSide}, /*seed=*/2);
            const Tensor row = Normal(device, {kSide}, /*seed=*/3);
            return [x, row] { return Relu(Transpose(x) * row + row); };
          },
          "x = torch.randn(4096, 4096) | r = torch.randn(4096)",
          "torch.relu(x.t() * r + r)",
          2.0};
}

ArrayCase ReductionCase(const std::string& name, int64_t axis, const std::string& statement) {
  return {absl::StrCat(name, " over axis ", axis, " of 4096x4096 float32"),
          4,
          [name, axis](const Device& device) {
            const Tensor x = Normal(device, {kSide, kSide}, /*seed=*/2);
            return [name, axis, x] {
              const std::vector<int64_t> axes = {axis};
              return Check(RunOpWithOutputs(name, {x}, {{"axes", axes}})).front();
            };
          },
          "x = torch.randn(4096, 4096) | y = torch.empty(4096)",
          statement,
          1.0};
}

ArrayCase CumSumCase() {
  return {"cumsum of 1 Mi float32",
          8,
          [](const Device& device) {
            const Tensor x = Normal(device, {kMiB}, /*seed=*/1);
            return [x] { return CumSum(x, 0); };
          },
          "x = torch.randn(1 << 20) | y = torch.empty(1 << 20)",
          "torch.cumsum(x, 0, out=y)",
          1.0};
}

// CPU time of the calling thread.
double ThreadNanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Returns the CPU time that `n` calls of `op` take the calling thread, per call.
double CallNanoseconds(const Client& client, int n, const std::function<void()>& op) {
  const double start = ThreadNanoseconds();
  for (int i = 0; i < n; ++i) op();
  const double nanoseconds = (ThreadNanoseconds() - start) / n;
  Check(client.Synchronize());
  return nanoseconds;
}

// What an op costs the calling thread. Absolute figures depend on the machine, so the reference is
// an addition of two tensors in the same run. The commands of a sample, which are ops and drops of
// their results, fit into the client's queue (ConnectOptions::max_pending_commands). So the thread
// never waits for a slower server.
void CallCosts(Bench& bench) {
  const std::string scalar = "an op's cost to the caller: x * 2.0";
  const std::string outputs = "an op's cost to the caller: VarMean, two results";
  const std::string shape = "an op's cost to the caller: a shape that is new at each call";
  const std::string slice = "an op's cost to the caller: a slice that is new at each call";
  if (!bench.WantsAny({scalar, outputs, shape, slice})) return;
  constexpr int kCalls = 10000;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor x = Ones(device, {kSmall});
  const Tensor empty = Zeros(device, {0});
  const Tensor wide = Zeros(device, {0, int64_t{1} << 40});
  int64_t size = 0;
  const std::string reference = "Add of two tensors";
  Comparison comparison(bench);
  comparison.AddSingle(
      scalar, [&] { return CallNanoseconds(client, kCalls, [&] { Check((x * 2.0).status()); }); });
  comparison.AddSingle(outputs, [&] {
    return CallNanoseconds(client, kCalls, [&] { Check(VarMean(x).mean.status()); });
  });
  comparison.AddSingle(slice, [&] {
    return CallNanoseconds(client, kCalls, [&] {
      Check(Slice(wide, {0, 0}, {0, ++size}).status());
    });
  });
  comparison.AddSingle(shape, [&] {
    std::vector<Tensor> tensors;
    for (int i = 0; i < kCalls; ++i) tensors.push_back(Reshape(empty, {0, ++size}));
    auto next = tensors.begin();
    return CallNanoseconds(client, kCalls, [&] { Check(Relu(*next++).status()); });
  });
  comparison.AddSingle(reference, [&] {
    return CallNanoseconds(client, kCalls, [&] { Check(Add(x, x).status()); });
  });
  comparison.Run(25);
  if (client.stats().full_queue_waits.count > 0) {
    bench.Skip("an op's cost to the caller", "the thread waited for room in the client's queue");
    return;
  }
  comparison.AddRow({scalar, "ns", reference, Better::kLower, 0.5, 0.8, scalar});
  comparison.AddRow({outputs, "ns", reference, Better::kLower, 0.5, 0.7, outputs});
  comparison.AddRow({shape, "ns", reference, Better::kLower, 0.5, 0.5, shape});
  comparison.AddRow({slice, "ns", reference, Better::kLower, 0.5, 0.3, slice});
}

// A loop like the decoding of a language model: each step slices a cache to a shape that no earlier
// step had, and computes with it. The last tenth of the steps must take as long as the first.
// Caches of prepared ops fill in the first half, so the memory of both ends must not grow in the
// second.
void DecodeLoop(Bench& bench) {
  const std::string rate = "decode loop, 100,000 steps of a new shape: the last 10,000";
  const std::string memory = "decode loop, 100,000 steps of a new shape: growth of memory";
  if (!bench.WantsAny({rate, memory})) return;
  constexpr int kTenth = 10000;
  constexpr int kTenths = 10;
  const auto daemon = Check(integration::DaemonProcess::Start({"--devices=cpu"}));
  const Client client = Check(Client::Connect(daemon->address()));
  const Tensor cache =
      Uniform(Check(client.device("cpu:0")), {kTenths, kTenths, kTenths, kTenths, kTenths},
              /*seed=*/1);
  const auto memory_bytes = [&] {
    return static_cast<double>(daemon->MemoryBytes("VmRSS") +
                               integration::ProcessMemoryBytes(getpid(), "VmRSS"));
  };
  std::vector<double> seconds;
  double after_half = 0;
  Tensor total = Zeros(cache.device(), {});
  for (int tenth = 0; tenth < kTenths; ++tenth) {
    seconds.push_back(SecondsOf([&] {
      for (int step = 0; step < kTenth; ++step) {
        // The numbers of the steps in another order, so that each tenth has the same work.
        int digits = (tenth * kTenth + step) * 7919 % (kTenths * kTenth);
        std::vector<int64_t> stops;
        for (int axis = 0; axis < cache.shape().rank(); ++axis, digits /= kTenths) {
          stops.push_back(1 + digits % kTenths);
        }
        const Tensor keys = Slice(cache, {0, 0, 0, 0, 0}, stops);
        total = total + Sum(Relu(keys + 0.5));
      }
      Check(client.Synchronize());
    }));
    if (tenth == kTenths / 2 - 1) after_half = memory_bytes();
  }
  const double growth = (memory_bytes() - after_half) / kMiB;
  constexpr double kLimit = 16;
  bench.Add({rate, "steps/s", kTenth / seconds.back(), "the first 10,000", kTenth / seconds.front(),
             seconds.front() / seconds.back(), 0.9});
  bench.Add({memory, "MiB", growth, "limit", kLimit, kLimit / std::max(growth, 1.0), 1.0});
}

}  // namespace

void ArrayCases(Bench& bench) {
  for (const auto& make : {SortCase, TopKCase, TopKOfRowsCase}) RunArrayCase(bench, make());
  for (const auto& make :
       {EmbeddingCase, GatherCase, GatherColumnsCase, IndexPutCase, ScatterCase}) {
    RunArrayCase(bench, make());
  }
  for (const auto& make : {CumSumCase, DropoutCase, TransposeCase, StridedChainCase}) {
    RunArrayCase(bench, make());
  }
  RunArrayCase(bench, RandomCase("uniform", [](const Device& device, const Shape& shape,
                                               Generator& generator) {
                 return Uniform(device, shape, generator);
               }));
  RunArrayCase(bench, RandomCase("normal", [](const Device& device, const Shape& shape,
                                              Generator& generator) {
                 return Normal(device, shape, generator);
               }));
  for (int64_t axis : {0, 1}) {
    for (const auto& [name, torch_name] :
         {std::pair("sum", "sum"), std::pair("mean", "mean"), std::pair("max", "amax")}) {
      RunArrayCase(
          bench,
          ReductionCase(name, axis, absl::StrCat("torch.", torch_name, "(x, ", axis, ", out=y)")));
    }
    RunArrayCase(bench,
                 ReductionCase("var_mean", axis, absl::StrCat("torch.var_mean(x, ", axis, ")")));
  }
  RunArrayCase(bench, ElementwiseCase("sin", &Sin));
  RunArrayCase(bench, ElementwiseCase("cos", &Cos));
  RunArrayCase(bench, ElementwiseCase("erf", &Erf));
  RunArrayCase(bench, ElementwiseCase("log1p", &Log1p));
  CallCosts(bench);
  DecodeLoop(bench);
}

}  // namespace tensord::bench
