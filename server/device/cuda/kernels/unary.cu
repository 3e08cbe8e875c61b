#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

template <typename F, typename List>
constexpr ByDType<UnaryLauncher> Unary(List list) {
  return LaunchersFor<UnaryLauncher, UnaryFamily<F>>(list);
}

constexpr UnaryKernel kKernels[] = {
    {"neg", Unary<Neg>(NumericTypes())},          {"abs", Unary<Abs>(NumericTypes())},
    {"relu", Unary<Relu>(NumericTypes())},        {"exp", Unary<Exp>(FloatingTypes())},
    {"log", Unary<Log>(FloatingTypes())},         {"sqrt", Unary<Sqrt>(FloatingTypes())},
    {"rsqrt", Unary<Rsqrt>(FloatingTypes())},     {"tanh", Unary<Tanh>(FloatingTypes())},
    {"sigmoid", Unary<Sigmoid>(FloatingTypes())}, {"silu", Unary<Silu>(FloatingTypes())},
    {"gelu", Unary<GeluErf>(FloatingTypes())},    {"gelu_tanh", Unary<GeluTanh>(FloatingTypes())},
};

}  // namespace

std::span<const UnaryKernel> UnaryKernels() { return kKernels; }

}  // namespace tensord::server::cuda
