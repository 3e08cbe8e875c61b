#include "tensord/tests/cuda_emulation/grid.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/fiber.h"

__thread uint3 threadIdx, blockIdx;
__thread uint3 blockDim, gridDim;

namespace tensord::cuda_emulation {

// Declared in device_code.h, which redefines words that other headers use.
void BlockBarrier(int line);
void WarpBarrier();
unsigned Lane();
unsigned long* WarpExchange();

namespace {

constexpr int kWholeBlock = -1;

// A fiber whose CUDA thread waits at a barrier.
struct Waiting {
  Fiber* fiber;
  uint3 thread;
  int warp;  // the warp that it waits for, or kWholeBlock
  int line;  // of the barrier, for kWholeBlock
};

// The block that an OS thread runs.
struct Block {
  const std::function<void()>* thread = nullptr;
  unsigned next = 0, count = 0;   // threads that have been started; all threads
  std::vector<int> warp_threads;  // of each warp, those that have not returned
  std::vector<Waiting> waiting;
  std::vector<std::array<unsigned long, kWarpThreads>> exchange;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
};
thread_local Block block;

unsigned LinearIndex(uint3 t) { return (t.z * blockDim.y + t.y) * blockDim.x + t.x; }
unsigned Warp() { return LinearIndex(threadIdx) / kWarpThreads; }

uint3 ThreadAt(unsigned n) {
  return {n % blockDim.x, n / blockDim.x % blockDim.y, n / (blockDim.x * blockDim.y)};
}

// Returns the linear index of the thread that is started as the `n`th.
unsigned NthThread(unsigned n) {
  const int order = TheOptions().thread_order;
  if (order == 1) return block.count - 1 - n;
  const unsigned mask = block.count - 1;
  if (order > 1 && (block.count & mask) == 0) {  // odd factors permute the numbers below 2^k
    return (n * (2 * static_cast<unsigned>(order) + 1) + static_cast<unsigned>(order)) & mask;
  }
  return n;
}

// The code of each fiber: runs threads of the block until all have been started.
void RunThreads() {
  while (true) {
    while (block.next < block.count) {
      threadIdx = ThreadAt(NthThread(block.next++));
      (*block.thread)();
      --block.warp_threads[Warp()];
    }
    block.idle.push_back(Fiber::Current());
    Fiber::Suspend();
  }
}

Fiber* IdleFiber() {
  if (block.idle.empty()) {
    block.fibers.push_back(std::make_unique<Fiber>(&RunThreads));
    return block.fibers.back().get();
  }
  Fiber* fiber = block.idle.back();
  block.idle.pop_back();
  return fiber;
}

void WaitAt(int warp, int line) {
  block.waiting.push_back({Fiber::Current(), threadIdx, warp, line});
  Fiber::Suspend();  // RunBlock() sets threadIdx before it resumes the fiber
}

// Checks the waiting threads, which are all at block barriers. Returns a description of the misuse,
// or an empty string.
std::string CheckBlockBarrier() {
  if (block.waiting.size() != block.count) {
    return "some threads of a block returned while others wait in __syncthreads()";
  }
  for (const Waiting& waiting : block.waiting) {
    if (waiting.line != block.waiting[0].line) {
      return "the threads of a block wait in different __syncthreads()";
    }
  }
  return "";
}

// Moves the threads whose barrier is complete from block.waiting to `released`. Returns a
// description of the misuse, or an empty string.
std::string ReleaseWaiting(std::vector<Waiting>* released) {
  std::vector<int> arrived(block.warp_threads.size());
  size_t at_block = 0;
  for (const Waiting& waiting : block.waiting) {
    waiting.warp == kWholeBlock ? ++at_block : static_cast<size_t>(++arrived[waiting.warp]);
  }
  if (at_block == block.waiting.size()) {
    released->swap(block.waiting);
    block.waiting = *released;
    std::string misuse = CheckBlockBarrier();
    block.waiting.clear();
    return misuse;
  }
  std::vector<Waiting> stay;
  for (const Waiting& waiting : block.waiting) {
    const bool complete =
        waiting.warp != kWholeBlock && arrived[waiting.warp] == block.warp_threads[waiting.warp];
    (complete ? *released : stay).push_back(waiting);
  }
  block.waiting = std::move(stay);
  return released->empty() ? "some threads of a warp never reach the warp barrier of the others"
                           : "";
}

std::string RunBlock() {
  block.next = 0;
  block.waiting.clear();
  block.warp_threads.assign((block.count + kWarpThreads - 1) / kWarpThreads, kWarpThreads);
  if (block.count % kWarpThreads != 0) {
    block.warp_threads.back() = static_cast<int>(block.count % kWarpThreads);
  }
  block.exchange.resize(block.warp_threads.size());
  while (block.next < block.count) IdleFiber()->Resume();
  while (!block.waiting.empty()) {
    std::vector<Waiting> released;
    std::string misuse = ReleaseWaiting(&released);
    if (!misuse.empty()) return misuse;
    for (const Waiting& waiting : released) {
      threadIdx = waiting.thread;
      waiting.fiber->Resume();
    }
  }
  return "";
}

}  // namespace

void BlockBarrier(int line) { WaitAt(kWholeBlock, line); }
void WarpBarrier() { WaitAt(static_cast<int>(Warp()), 0); }
unsigned Lane() { return LinearIndex(threadIdx) % kWarpThreads; }
unsigned long* WarpExchange() { return block.exchange[Warp()].data(); }

std::string RunGrid(dim3 grid, dim3 threads, const std::function<void()>& thread) {
  block.thread = &thread;
  block.count = threads.x * threads.y * threads.z;
  blockDim = {threads.x, threads.y, threads.z};
  gridDim = {grid.x, grid.y, grid.z};
  const bool descending = TheOptions().thread_order == 1;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx =
            descending ? uint3{grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z} : uint3{x, y, z};
        std::string misuse = RunBlock();
        if (misuse.empty()) continue;
        AbandonGrid();
        return misuse;
      }
    }
  }
  return "";
}

void AbandonGrid() {
  if (Fiber::Current() != nullptr) Fiber::OnJumpedOut();
  block.idle.clear();
  block.waiting.clear();
  block.fibers.clear();
}

}  // namespace tensord::cuda_emulation
