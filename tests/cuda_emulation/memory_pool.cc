// Stream-ordered allocation. A pool caches nothing: memory is freed when the stream reaches the
// free.
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
  if (error != cudaSuccess) return RecordError(error);
  // Until the stream reaches this task the memory isn't the caller's: earlier writes are lost.
  const cudaError_t enqueued =
      stream->EnqueueControl([=] { FillWithPattern(data, bytes); }, "cudaMallocFromPoolAsync");
  if (enqueued == cudaSuccess) {
    *out = data;
  } else if (BeginFree(data, "cudaMallocFromPoolAsync", nullptr) == cudaSuccess) {
    FinishFree(data);
  }
  return RecordError(enqueued);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaFreeAsync");
  const cudaError_t error = BeginFree(data, "cudaFreeAsync", nullptr);
  if (error != cudaSuccess) return RecordError(error);
  return RecordError(stream->EnqueueControl([=] { FinishFree(data); }, "cudaFreeAsync"));
}

}  // extern "C"
