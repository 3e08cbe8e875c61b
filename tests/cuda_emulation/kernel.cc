#include "tensord/tests/cuda_emulation/kernel.h"

#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/address_space.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/grid.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

constexpr size_t kSignalStackBytes = 64 << 10;

// Limits of every GPU since compute capability 3.0.
constexpr uint64_t kMaxBlockThreads = 1024;
constexpr unsigned kMaxBlockX = 1024, kMaxBlockY = 1024, kMaxBlockZ = 64;
constexpr unsigned kMaxGridX = 0x7fffffff, kMaxGridY = 65535, kMaxGridZ = 65535;

// SIGILL: kernels are compiled so that they execute an invalid instruction before an access to an
// address that isn't aligned to the accessed type (CMakeLists.txt, nvrtc.cc).
constexpr int kMisalignment = SIGILL;
constexpr int kFaultSignals[] = {SIGSEGV, SIGBUS, kMisalignment};
struct sigaction previous_actions[NSIG];

// Where the handler continues; null while no device work runs.
thread_local sigjmp_buf* after_fault = nullptr;
thread_local const void* fault_address = nullptr;
thread_local int fault_signal = 0;

void OnFault(int signal, siginfo_t* info, void*) {
  if (after_fault != nullptr) {
    fault_address = info->si_addr;
    fault_signal = signal;
    siglongjmp(*after_fault, 1);
  }
  // This thread runs no device work, so host code caused the fault.
  if (IsDeviceAddress(info->si_addr)) {
    static constexpr char kText[] =
        "cuda emulation: host code accessed device memory; only kernels and copies can\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  }
  // Restores the previous handler. The instruction then faults again.
  sigaction(signal, &previous_actions[signal], nullptr);
}

void InstallHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int signal : kFaultSignals) sigaction(signal, &action, &previous_actions[signal]);
}

void RunKernel(int device, dim3 grid, dim3 block, const std::function<void()>& thread) {
  std::string misuse;
  RunCatchingFaults(device, "a kernel", [&] { misuse = RunGrid(grid, block, thread); });
  if (misuse.empty()) return;
  Report(absl::StrCat("a kernel on device ", device, ": ", misuse));
  SetStickyError(device, cudaErrorLaunchFailure);
}

bool IsLaunchable(dim3 grid, dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= kMaxBlockThreads && block.x <= kMaxBlockX &&
         block.y <= kMaxBlockY && block.z <= kMaxBlockZ && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
         grid.x <= kMaxGridX && grid.y <= kMaxGridY && grid.z <= kMaxGridZ;
}

}  // namespace

void InstallFaultHandler() {
  static std::once_flag installed;
  if (TheOptions().catch_faults) std::call_once(installed, InstallHandler);
}

FaultHandling::FaultHandling() : signal_stack_(kSignalStackBytes) {
  stack_t stack = {};
  stack.ss_sp = signal_stack_.data();
  stack.ss_size = signal_stack_.size();
  sigaltstack(&stack, nullptr);
}

FaultHandling::~FaultHandling() {
  stack_t stack = {};
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
}

void RunCatchingFaults(int device, const char* what, const std::function<void()>& work) {
  sigjmp_buf jump;
  if (sigsetjmp(jump, /*savemask=*/1) != 0) {
    after_fault = nullptr;
    AbandonGrid();
    if (Stream::Current() != nullptr && Stream::Current()->was_reset()) return;
    if (fault_signal == kMisalignment) {
      Report(absl::StrCat(what, " on device ", device, " accessed a misaligned address"));
      SetStickyError(device, cudaErrorMisalignedAddress);
      return;
    }
    const void* address = ToDeviceAddress(fault_address);
    Report(absl::StrCat(what, " on device ", device, " accessed 0x",
                        absl::Hex(reinterpret_cast<uintptr_t>(address)), ", which is ",
                        DescribeAddress(address), " and not accessible"));
    SetStickyError(device, cudaErrorIllegalAddress);
    return;
  }
  if (TheOptions().catch_faults) after_fault = &jump;
  work();
  after_fault = nullptr;
}

void TranslateArguments(void* arguments, size_t bytes) {
  auto* words = static_cast<char*>(arguments);
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += alignof(void*)) {
    void* word = nullptr;
    std::memcpy(&word, words + at, sizeof(word));
    if (!IsDeviceAddress(word)) continue;
    word = KernelAddress(word, CurrentDevice());
    std::memcpy(words + at, &word, sizeof(word));
  }
}

cudaError_t EnqueueKernel(dim3 grid, dim3 block, cudaStream_t handle,
                          std::function<void()> thread) {
  StreamRef stream;
  if (const cudaError_t error = UseStream(handle, "a launch", &stream); error != cudaSuccess) {
    return error;
  }
  const int device = stream->device();
  if (device != CurrentDevice()) {
    Report(absl::StrCat("a launch into a stream of device ", device, " while device ",
                        CurrentDevice(), " is current"));
    return RecordError(cudaErrorInvalidResourceHandle);
  }
  if (!IsLaunchable(grid, block)) {
    Report(absl::StrCat("a launch of ", grid.x, "x", grid.y, "x", grid.z, " blocks of ", block.x,
                        "x", block.y, "x", block.z, " threads"));
    return RecordError(cudaErrorInvalidConfiguration);
  }
  return RecordError(stream->EnqueueWork([device, grid, block, thread = std::move(thread)] {
    RunKernel(device, grid, block, thread);
  }));
}

}  // namespace tensord::cuda_emulation
