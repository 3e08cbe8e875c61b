// PyTorch run eagerly, as on the user's own machine. Answers questions by the protocol of peer.h.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

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

// Milliseconds of one call of `function`, which is called `count` times.
template <typename Function>
double MillisecondsOf(int64_t count, Function function) {
  return 1e3 / static_cast<double>(count) * SecondsOf([&] {
           for (int64_t i = 0; i < count; ++i) function();
         });
}

// Milliseconds of one reduction of (n,n) over an axis.
double Reduction(const std::string& what, int64_t axis, int64_t n, int64_t count) {
  static at::Tensor x;
  if (!x.defined() || x.size(0) != n) x = at::rand({n, n});
  if (what == "sum") return MillisecondsOf(count, [&] { at::sum(x, axis); });
  if (what == "mean") return MillisecondsOf(count, [&] { at::mean(x, axis); });
  if (what == "max") return MillisecondsOf(count, [&] { at::amax(x, axis); });
  return MillisecondsOf(count, [&] { at::var_mean(x, at::IntArrayRef(axis), /*unbiased=*/true); });
}

// Milliseconds of one cumulative sum of n elements.
double Cumsum(int64_t n, int64_t count) {
  static at::Tensor x;
  if (!x.defined() || x.size(0) != n) x = at::rand({n});
  return MillisecondsOf(count, [&] { at::cumsum(x, 0); });
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
    double figure = 0;
    if (what == "chain") figure = Chain(a);
    if (what == "matmul") figure = Matmul(a, b);
    if (what == "linear") figure = Linear(a, b, c, d);
    if (what == "elementwise") figure = Elementwise(a);
    if (what == "sum" || what == "mean" || what == "max" || what == "var_mean") {
      figure = Reduction(what, a, b, c);
    }
    if (what == "cumsum") figure = Cumsum(a, b);
    std::printf("ok %.9g\n", figure);
    std::fflush(stdout);
  }
  return 0;
}
