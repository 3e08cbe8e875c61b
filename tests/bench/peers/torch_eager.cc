// PyTorch run eagerly, as on the user's own machine. Answers questions by the protocol of peer.h.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

template <typename Work>
double SecondsOf(Work work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs a chain of `n` dependent additions of 64 elements. Returns op/s.
double Chain(int64_t n) {
  at::Tensor x = at::zeros({64});
  const at::Tensor one = at::ones({64});
  return static_cast<double>(n) / SecondsOf([&] {
           for (int64_t i = 0; i < n; ++i) x = at::add(x, one);
         });
}

// GFLOP/s of `count` products of (n,n)·(n,n).
double Matmul(int64_t n, int64_t count) {
  static at::Tensor a, b;
  if (!a.defined() || a.size(0) != n) {
    a = at::rand({n, n});
    b = at::rand({n, n});
  }
  const double seconds = SecondsOf([&] {
    for (int64_t i = 0; i < count; ++i) at::matmul(a, b);
  });
  return 2e-9 * static_cast<double>(n * n * n * count) / seconds;
}

// GFLOP/s of `count` linear layers (batch,in)·(out,in)ᵀ + (out), each followed by GELU.
double Linear(int64_t batch, int64_t in, int64_t out, int64_t count) {
  static const at::Tensor x = at::rand({batch, in});
  static const at::Tensor weight = at::rand({out, in});
  static const at::Tensor bias = at::rand({out});
  const double seconds = SecondsOf([&] {
    for (int64_t i = 0; i < count; ++i) at::gelu(at::linear(x, weight, bias));
  });
  return 2e-9 * static_cast<double>(batch * in * out * count) / seconds;
}

// Milliseconds of a chain of eight elementwise ops on n elements.
double Elementwise(int64_t n) {
  static at::Tensor x;
  if (!x.defined() || x.size(0) != n) x = at::rand({n});
  return 1e3 * SecondsOf([&] {
           at::Tensor y = at::mul(x, 1.5);
           y = at::add(y, 0.5);
           y = at::abs(y);
           y = at::sqrt(y);
           y = at::mul(y, 2.0);
           y = at::sub(y, 1.0);
           y = at::relu(y);
           y = at::neg(y);
         });
}

// Milliseconds of one op, or of a chain, on a tensor with n elements or n rows. Returns 0 for a name
// that it doesn't know.
double Kernel(const std::string& what, int64_t n) {
  static at::Tensor x, row;
  const std::map<std::string, std::function<at::Tensor()>> known = {
      {"uniform", [&] { return at::rand({n}); }},
      {"normal", [&] { return at::randn({n}); }},
      {"dropout", [&] { return at::dropout(x, 0.5, /*train=*/true); }},
      {"transpose", [&] { return x.t().contiguous(); }},
      {"strided", [&] { return at::relu(at::add(at::mul(x.t(), row), row)); }},
      {"sin", [&] { return at::sin(x); }},
      {"cos", [&] { return at::cos(x); }},
      {"erf", [&] { return at::erf(x); }},
      {"log1p", [&] { return at::log1p(x); }}};
  const auto found = known.find(what);
  if (found == known.end()) return 0;
  const bool matrix = what == "transpose" || what == "strided";
  const std::vector<int64_t> shape = matrix ? std::vector<int64_t>{n, n} : std::vector<int64_t>{n};
  if (!x.defined() || x.sizes() != at::IntArrayRef(shape)) x = at::rand(shape);
  if (what == "strided" && !row.defined()) row = at::rand({n});
  return 1e3 * SecondsOf(found->second);
}

}  // namespace

int main() {
  at::set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
  const c10::InferenceMode no_gradients;
  std::printf("ready\n");
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string what;
    int64_t a = 0, b = 0, c = 0, d = 0;
    in >> what >> a >> b >> c >> d;
    double figure = Kernel(what, a);
    if (what == "chain") figure = Chain(a);
    if (what == "matmul") figure = Matmul(a, b);
    if (what == "linear") figure = Linear(a, b, c, d);
    if (what == "elementwise") figure = Elementwise(a);
    std::printf("ok %.9g\n", figure);
    std::fflush(stdout);
  }
  return 0;
}
