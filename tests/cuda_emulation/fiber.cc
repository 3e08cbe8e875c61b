#include "tensord/tests/cuda_emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tensord/tests/cuda_emulation/address_space.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#error "The CUDA emulation switches stacks in x86-64 assembly: use TENSORD_CUDA=OFF here"
#endif

// void TensordSwitchStack(void** save_to, void* load): saves the registers that a function must
// preserve and the stack pointer, and continues where the registers at `load` were saved.
asm(R"(
.text
.globl TensordSwitchStack
.type TensordSwitchStack,@function
TensordSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size TensordSwitchStack,.-TensordSwitchStack
)");
extern "C" void TensordSwitchStack(void** save_to, void* load);

namespace tensord::cuda_emulation {
namespace {

constexpr int kSavedRegisters = 6;

// The OS thread's own stack, while a fiber runs.
struct Caller {
  Fiber* fiber = nullptr;
  void* stack_pointer = nullptr;
  const void* stack_bottom = nullptr;  // AddressSanitizer's
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};
thread_local Caller caller;

}  // namespace

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* memory = mmap(nullptr, PageBytes() + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("cuda emulation: no memory for a thread's stack");
    std::abort();
  }
  mapping_ = static_cast<char*>(memory);
  mprotect(mapping_, PageBytes(), PROT_NONE);
  void** top = reinterpret_cast<void**>(mapping_ + PageBytes() + kStackBytes);
  *--top = nullptr;  // the return address of Start(), which doesn't return; aligns the stack, too
  *--top = reinterpret_cast<void*>(&Fiber::Start);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  stack_pointer_ = top;
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  munmap(mapping_, PageBytes() + kStackBytes);
}

void Fiber::Start() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &caller.stack_bottom, &caller.stack_bytes);
#endif
  caller.fiber->entry_();
  std::abort();  // entry() must not return
}

void Fiber::Resume() {
  caller.fiber = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller.fake_stack, mapping_ + PageBytes(), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  caller.tsan_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, 0);
#endif
  TensordSwitchStack(&caller.stack_pointer, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller.fake_stack, nullptr, nullptr);
#endif
  caller.fiber = nullptr;
}

void Fiber::Suspend() {
  Fiber* const fiber = caller.fiber;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber->fake_stack_, caller.stack_bottom, caller.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller.tsan_fiber, 0);
#endif
  TensordSwitchStack(&fiber->stack_pointer_, caller.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber->fake_stack_, &caller.stack_bottom, &caller.stack_bytes);
#endif
}

Fiber* Fiber::Current() { return caller.fiber; }

void Fiber::OnJumpedOut() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, caller.stack_bottom, caller.stack_bytes);
  __sanitizer_finish_switch_fiber(caller.fake_stack, nullptr, nullptr);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller.tsan_fiber, 0);
#endif
  caller.fiber = nullptr;
}

}  // namespace tensord::cuda_emulation
