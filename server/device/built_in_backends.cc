#include "tensord/server/device/backend.h"
#include "tensord/server/device/cpu/cpu_device.h"
#ifdef TENSORD_HAVE_CUDA
#include "tensord/server/device/cuda/cuda_device.h"
#endif

namespace tensord::server {

std::vector<Backend> BuiltInBackends() {
  return {CpuBackend(),
#ifdef TENSORD_HAVE_CUDA
          CudaBackend()
#else
          UnavailableBackend(DeviceKind::kCuda, "built without CUDA")
#endif
  };
}

}  // namespace tensord::server
