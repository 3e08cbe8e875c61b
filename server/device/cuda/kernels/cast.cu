#include "tensord/server/device/cuda/kernels/elementwise.cuh"

namespace tensord::server::cuda {
namespace {

template <typename From>
struct CastFrom {
  template <typename To>
  static cudaError_t Launch(const void* in, void* out, int64_t size, cudaStream_t stream) {
    using In = CastKernelFrom<From, To>;
    using Out = CastKernelTo<From, To>;
    return LaunchUnary<CastTo<MathOf<Out>>, In, Out>(in, out, size, stream);
  }
};

template <typename... From>
constexpr auto CastTable(Types<From...>) {
  ByDType<ByDType<UnaryLauncher>> table;
  ((table.launchers[kDTypeNumber<From>] = LaunchersFor<UnaryLauncher, CastFrom<From>>(AllTypes())),
   ...);
  return table;
}

constexpr ByDType<ByDType<UnaryLauncher>> kCasts = CastTable(AllTypes());

}  // namespace

UnaryLauncher CastLauncher(int from_dtype, int to_dtype) { return kCasts[from_dtype][to_dtype]; }

}  // namespace tensord::server::cuda
