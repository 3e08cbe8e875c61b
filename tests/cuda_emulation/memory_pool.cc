// Stream-ordered memory. A pool keeps nothing: freed memory goes back at once, when the stream gets
// to it.
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// The name is cudart's.
struct CUmemPoolHandle_st {
  int device;
};

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  TENSORD_EMULATION_ENTER(properties->location.id);
  *pool = new CUmemPoolHandle_st{properties->location.id};
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaMallocFromPoolAsync");
  void* data = nullptr;
  const cudaError_t error = AllocateOnDevice(&data, bytes, pool->device);
  if (error != cudaSuccess) return Remember(error);
  // Until the stream gets here the memory is not the caller's: a write that comes earlier is lost.
  const cudaError_t enqueued =
      stream->EnqueueControl([=] { Scribble(data, bytes); }, "cudaMallocFromPoolAsync");
  if (enqueued == cudaSuccess) {
    *out = data;
  } else if (BeginFree(data, "cudaMallocFromPoolAsync", nullptr) == cudaSuccess) {
    FinishFree(data);
  }
  return Remember(enqueued);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaFreeAsync");
  const cudaError_t error = BeginFree(data, "cudaFreeAsync", nullptr);
  if (error != cudaSuccess) return Remember(error);
  return Remember(stream->EnqueueControl([=] { FinishFree(data); }, "cudaFreeAsync"));
}

}  // extern "C"
