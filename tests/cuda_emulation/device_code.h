// Declarations for device code that a host compiler compiles: built-in variables, barriers,
// shuffles, intrinsics. Includes no header of the C++ standard library, because kernels that are
// compiled at run time have their own small standard library.
//
// For kernels that are compiled with the program, launch.h includes this file after
// <cuda_runtime.h>. For kernels that are compiled at run time, nvrtc.cc defines
// TENSORD_CUDA_EMULATION_RTC and includes this file first.
#pragma once

#ifdef TENSORD_CUDA_EMULATION_RTC
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
// NVRTC declares the C math functions without a header.
#include <math.h>
#endif

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local  // the threads of a block are fibers of one OS thread
#define __launch_bounds__(...)

// The built-in variables of the CUDA thread that the calling OS thread runs.
extern __thread uint3 threadIdx, blockIdx;
extern __thread uint3 blockDim, gridDim;
#define warpSize 32

namespace tensord::cuda_emulation {

// Blocks until all threads of the block are at a barrier with this line number. If some never get
// there, the kernel fails with cudaErrorLaunchFailure.
void BlockBarrier(int line);

// Blocks until all threads of the warp that have not returned are here.
void WarpBarrier();

// Returns the calling CUDA thread's index in its warp, 0 to 31.
unsigned Lane();
// Returns an array with one element for each lane of the calling CUDA thread's warp.
unsigned long* WarpExchange();

template <typename T>
T ExchangeInWarp(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= sizeof(unsigned long));
  unsigned long* values = WarpExchange();
  __builtin_memcpy(&values[Lane()], &value, sizeof(T));
  WarpBarrier();
  T result;
  __builtin_memcpy(&result, &values[from_lane], sizeof(T));
  WarpBarrier();
  return result;
}

}  // namespace tensord::cuda_emulation

// This is a macro, because __LINE__ identifies the barrier. A function would have to use its return
// address, and compilers may duplicate calls.
#define __syncthreads() ::tensord::cuda_emulation::BlockBarrier(__LINE__)

// Masks are ignored: all threads of the warp that have not returned take part.
inline void __syncwarp(unsigned = ~0u) { tensord::cuda_emulation::WarpBarrier(); }
template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = warpSize) {
  const unsigned first = tensord::cuda_emulation::Lane() & ~(width - 1);
  return tensord::cuda_emulation::ExchangeInWarp(value, first | (lane & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane_mask, int = warpSize) {
  const unsigned lane = tensord::cuda_emulation::Lane();
  return tensord::cuda_emulation::ExchangeInWarp(value, lane ^ lane_mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = warpSize) {
  const unsigned lane = tensord::cuda_emulation::Lane();
  const bool inside = (lane & (width - 1)) + delta < static_cast<unsigned>(width);
  return tensord::cuda_emulation::ExchangeInWarp(value, inside ? lane + delta : lane);
}

// The devices' threads run these, so they are atomic for all threads of the process.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <typename T>
T atomicCAS(T* address, T expected, T desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return expected;
}
template <typename T>
T atomicExch(T* address, T value) {
  return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
}

// Each operation rounds its result: the build compiles these sources with -ffp-contract=off.
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }

template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

#ifdef TENSORD_CUDA_EMULATION_RTC
// Lets the emulation of cudaLaunchKernel() call a kernel by its name.
namespace tensord::cuda_emulation {
template <unsigned... I>
struct Indices {};
template <unsigned kCount, unsigned... I>
struct MakeIndices : MakeIndices<kCount - 1, kCount - 1, I...> {};
template <unsigned... I>
struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};
template <typename... P, unsigned... I>
void CallWith(void (*kernel)(P...), void** arguments, Indices<I...>) {
  kernel(*static_cast<P*>(arguments[I])...);
}
template <typename... P>
void Call(void (*kernel)(P...), void** arguments) {
  CallWith(kernel, arguments, typename MakeIndices<sizeof...(P)>::type());
}
template <typename... P>
int ParameterBytes(void (*)(P...), unsigned* bytes) {
  ((*bytes++ = sizeof(P)), ...);
  return sizeof...(P);
}
}  // namespace tensord::cuda_emulation

#define TENSORD_CUDA_EMULATION_ENTRY(kernel)                        \
  extern "C" void tensord_call_##kernel(void** arguments) {         \
    tensord::cuda_emulation::Call(&kernel, arguments);              \
  }                                                                 \
  extern "C" int tensord_parameters_##kernel(unsigned* bytes) {     \
    return tensord::cuda_emulation::ParameterBytes(&kernel, bytes); \
  }
#endif
