// float32 matrix products through a server against the same library called in this process, in
// turns.
//   usage: matmul_bench ADDRESS [SIZE] [ROUNDS]
// Prints GFLOP/s of both (medians over the rounds) and their ratio.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "dnnl.h"
#include "tensord/client/tensord.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProductsPerRound = 8;

double Seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "matmul_bench: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

// Products on resident tensors, one call after another, waited for at the end.
void ThroughServer(const tensord::Client& client, const tensord::Tensor& a,
                   const tensord::Tensor& b) {
  for (int i = 0; i < kProductsPerRound; ++i) Check(tensord::Matmul(a, b).status());
  Check(client.Synchronize());
}

void InProcess(int64_t n, const std::vector<float>& a, const std::vector<float>& b,
               std::vector<float>& c) {
  for (int i = 0; i < kProductsPerRound; ++i) {
    if (dnnl_sgemm('N', 'N', n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f, c.data(), n) !=
        dnnl_success) {
      Check(absl::InternalError("oneDNN refused"));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: matmul_bench ADDRESS [SIZE] [ROUNDS]\n");
    return 2;
  }
  const int64_t n = argc > 2 ? std::atoll(argv[2]) : 1024;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  auto client = tensord::Client::Connect(argv[1]);
  Check(client.status());
  const tensord::Device device = client->TryDevice(0);
  const tensord::Tensor a = tensord::Uniform(device, {n, n}, /*seed=*/1);
  const tensord::Tensor b = tensord::Uniform(device, {n, n}, /*seed=*/2);
  auto host_a = a.Read<float>();
  auto host_b = b.Read<float>();
  Check(host_a.status());
  Check(host_b.status());
  std::vector<float> host_c(n * n);
  ThroughServer(*client, a, b);
  InProcess(n, *host_a, *host_b, host_c);

  std::vector<double> server_seconds, local_seconds, ratios;
  for (int i = 0; i < rounds; ++i) {
    server_seconds.push_back(Seconds([&] { ThroughServer(*client, a, b); }));
    local_seconds.push_back(Seconds([&] { InProcess(n, *host_a, *host_b, host_c); }));
    ratios.push_back(local_seconds.back() / server_seconds.back());
  }
  const double flop = 2.0 * n * n * n * kProductsPerRound;
  std::printf(
      "%lld x %lld x %lld float32 on %s: server %.1f GFLOP/s, in process %.1f GFLOP/s, "
      "ratio %.3f\n",
      static_cast<long long>(n), static_cast<long long>(n), static_cast<long long>(n),
      device.name().c_str(), flop / Median(server_seconds) * 1e-9,
      flop / Median(local_seconds) * 1e-9, Median(ratios));
  return 0;
}
