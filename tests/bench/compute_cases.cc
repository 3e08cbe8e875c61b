// Computes with resident tensors. Compares with oneDNN in this process and with PyTorch.
#include <dnnl.hpp>
#include <thread>
#include <unordered_map>

#include "tensord/server/device/cpu/onednn_api.h"
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

using dnnl::memory;

constexpr auto kFloat = memory::data_type::f32;

// gelu(x·Wᵀ + b) or a·b, computed by direct calls of oneDNN. The primitive is created once and run
// many times. The weight of a linear layer is packed once into oneDNN's preferred format.
class Library {
 public:
  // (m,k)·(k,n) -> (m,n)
  Library(int64_t m, int64_t k, int64_t n)
      : Library(memory::desc({m, k}, kFloat, memory::format_tag::ab),
                memory::desc({k, n}, kFloat, memory::format_tag::ab), /*linear=*/false) {}
  // gelu((m,k)·(n,k)ᵀ + (n)) -> (m,n)
  static Library LinearGelu(int64_t m, int64_t k, int64_t n) {
    return Library(memory::desc({m, k}, kFloat, memory::format_tag::ab),
                   memory::desc({k, n}, kFloat, memory::format_tag::ba), /*linear=*/true);
  }

  void Run(int count) {
    for (int i = 0; i < count; ++i) matmul_.execute(stream_, args_);
    stream_.wait();
  }

 private:
  Library(const memory::desc& a, const memory::desc& b, bool linear) {
    const memory::dims rows_cols = {a.dims()[0], b.dims()[1]};
    const memory::desc c(rows_cols, kFloat, memory::format_tag::ab);
    const memory::desc bias({1, rows_cols[1]}, kFloat, memory::format_tag::ab);
    const memory::desc packed(b.dims(), kFloat, memory::format_tag::any);
    dnnl::primitive_attr attr;
    dnnl::post_ops ops;
    if (linear) server::cpu::AppendElementwise(dnnl::algorithm::eltwise_gelu_erf, 0.0f, ops);
    attr.set_post_ops(ops);
    const dnnl::matmul::primitive_desc plan = server::cpu::DescribeMatmul(
        engine_, a, linear ? packed : b, linear ? &bias : nullptr, c, attr);
    matmul_ = dnnl::matmul(plan);
    memory weight = Filled(b);
    if (plan.weights_desc() != b) {
      memory reordered(plan.weights_desc(), engine_);
      dnnl::reorder(weight, reordered).execute(stream_, weight, reordered);
      weight = reordered;
    }
    args_ = {{DNNL_ARG_SRC, Filled(a)}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, Filled(c)}};
    if (linear) args_.emplace(DNNL_ARG_BIAS, Filled(bias));
  }

  memory Filled(const memory::desc& desc) {
    memory filled(desc, engine_);
    auto* data = static_cast<float*>(filled.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) {
      data[i] = static_cast<float>(i % 251) / 251;
    }
    return filled;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, memory> args_;
};

constexpr char kLibrary[] = "oneDNN in process";
constexpr char kTorch[] = "PyTorch eager";

// A case that calls `count` products in a row on resident tensors and waits for them at the end.
struct ProductCase {
  std::string measure;
  double flop;  // of one product
  int count;
  Library reference;
  std::function<Tensor()> op;
  std::string question;  // to PyTorch
};

void RunProduct(Bench& bench, const Client& client, ProductCase product) {
  const auto rate = [&](double seconds) { return 1e-9 * product.flop * product.count / seconds; };
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return rate(SecondsOf([&] {
      for (int i = 0; i < product.count; ++i) Check(product.op().status());
      Check(client.Synchronize());
    }));
  });
  comparison.AddSingle(
      kLibrary, [&] { return rate(SecondsOf([&] { product.reference.Run(product.count); })); });
  comparison.AddPeer(kTorch, bench.torch(), product.question);
  comparison.Run(13);
  comparison.AddRow({product.measure, "GFLOP/s", kLibrary, Better::kHigher, 0.5, 0.97});
  comparison.AddRow({product.measure, "GFLOP/s", kTorch, Better::kHigher, 0.5, 1.0});
}

void SquareProducts(Bench& bench, int64_t n, int count) {
  const std::string measure = absl::StrCat("matmul ", n, "^3 float32, resident");
  if (!bench.Wants(measure)) return;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor a = Uniform(device, {n, n}, /*seed=*/1);
  const Tensor b = Uniform(device, {n, n}, /*seed=*/2);
  RunProduct(bench, client,
             {measure, 2.0 * static_cast<double>(n * n * n), count, Library(n, n, n),
              [&] { return Matmul(a, b); }, absl::StrCat("matmul ", n, " ", count)});
}

void LinearLayer(Bench& bench) {
  const std::string measure = "linear 256x1024 -> 4096 + gelu float32, resident";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kBatch = 256, kIn = 1024, kOut = 4096;
  constexpr int kCount = 16;
  const Client client = bench.Connect();
  const Device device = Check(client.device("cpu:0"));
  const Tensor x = Uniform(device, {kBatch, kIn}, /*seed=*/1);
  const Tensor weight = Uniform(device, {kOut, kIn}, /*seed=*/2);
  const Tensor bias = Uniform(device, {kOut}, /*seed=*/3);
  RunProduct(bench, client,
             {measure, 2.0 * kBatch * kIn * kOut, kCount, Library::LinearGelu(kBatch, kIn, kOut),
              [&] { return Linear(x, weight, bias, {.activation = Activation::kGelu}); },
              absl::StrCat("linear ", kBatch, " ", kIn, " ", kOut, " ", kCount)});
}

// Runs the same eight ops as peers/torch_eager.
Tensor EightOps(const Tensor& x) {
  Tensor y = x * 1.5;
  y = y + 0.5;
  y = Abs(y);
  y = Sqrt(y);
  y = y * 2.0;
  y = y - 1.0;
  y = Relu(y);
  return Neg(y);
}

void ElementwiseChain(Bench& bench) {
  const std::string measure = "8 elementwise ops on 64 Mi float32";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kElements = 64 * kMiB;
  const Client client = bench.Connect();
  const Tensor x = Uniform(Check(client.device("cpu:0")), {kElements}, /*seed=*/1);
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return 1e3 * SecondsOf([&] {
             const Tensor y = EightOps(x);
             Check(client.Synchronize());
           });
  });
  comparison.AddPeer(kTorch, bench.torch(), absl::StrCat("elementwise ", kElements));
  comparison.Run(7);
  comparison.AddRow({measure, "ms", kTorch, Better::kLower, 0.5, 2.0});
}

}  // namespace

void ComputeCases(Bench& bench) {
  SquareProducts(bench, 1024, 8);
  SquareProducts(bench, 2048, 2);
  LinearLayer(bench);
  ElementwiseChain(bench);
}

}  // namespace tensord::bench
