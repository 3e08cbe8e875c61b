// Runs kernels as tasks of a stream, and converts their faults into errors of CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace tensord::cuda_emulation {

// If Options::catch_faults is set, installs the process's handler of SIGSEGV, SIGBUS and SIGILL.
// Only the first call has an effect. Thread-safe.
void InstallFaultHandler();

// Gives the calling OS thread the signal stack that RunCatchingFaults() needs. Create and destroy
// it on that thread.
class FaultHandling {
 public:
  FaultHandling();
  ~FaultHandling();
  FaultHandling(const FaultHandling&) = delete;
  FaultHandling& operator=(const FaultHandling&) = delete;

 private:
  std::vector<char> signal_stack_;
};

// Runs a device's work on an OS thread that has FaultHandling. One of these signals ends the
// work, without destroying its objects, and gives the device a sticky error:
// cudaErrorMisalignedAddress for SIGILL, cudaErrorIllegalAddress for the others
// (Options::catch_faults). `what` names the work in the report.
void RunCatchingFaults(int device, const char* what, const std::function<void()>& work);

// launch.h declares these functions, too, for .cu files. See there.
void TranslateArguments(void* arguments, size_t bytes);
cudaError_t EnqueueKernel(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> thread);

}  // namespace tensord::cuda_emulation
