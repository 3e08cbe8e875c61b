#include "tensord/server/device/cuda/kernels/broadcast.cuh"
#include "tensord/server/device/cuda/kernels/elementwise.h"
#include "tensord/server/device/cuda/kernels/unit.h"

namespace tensord::server::cuda {
namespace {

struct Select {
  template <typename T>
  __device__ T operator()(bool condition, T x, T y) const {
    return condition ? x : y;
  }
};

}  // namespace

cudaError_t LaunchWhere(const void* condition, const void* x, const void* y, void* out,
                        int element_bytes, const StridedLoop<3>& loop, cudaStream_t stream) {
  const auto launch = [&]<typename T>(T) {
    return LaunchBroadcast<Select>(static_cast<T*>(out), loop, stream,
                                   static_cast<const Bool*>(condition), static_cast<const T*>(x),
                                   static_cast<const T*>(y));
  };
  return element_bytes == 16 ? launch(uint4{}) : WithUnit(element_bytes, launch);
}

}  // namespace tensord::server::cuda
