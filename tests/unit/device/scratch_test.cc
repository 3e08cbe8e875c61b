// The memory that the kernels of the CPU backend need in addition to their operands.
#include <malloc.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/scratch_memory.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/sanitized.h"
#include "tensord/tests/unit/device/large_calls.h"

namespace tensord::server {
namespace {

// Returns a number of KiB of /proc/self/status, in bytes.
int64_t ProcessBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == key + ":" && file >> kib) return kib * 1024;
  }
  return 0;
}

// Makes the peak of the resident memory, VmHWM, what is resident now. Returns false if the system
// doesn't allow that.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

class ScratchTest : public LargeCallTest {
 protected:
  void SetUp() override {
    LargeCallTest::SetUp();
    operand_bytes_ = device_->memory().used_bytes;
    ASSERT_TRUE(Launch().ok());
    scratch_bytes_ = device_->memory().peak_bytes - operand_bytes_;
  }

  // Expects that no memory is charged except that of the operands.
  void ExpectNothingIsHeld() {
    EXPECT_EQ(device_->memory().used_bytes, operand_bytes_);
    EXPECT_EQ(device_->scratch_bytes(), 0);
    EXPECT_EQ(account_->used_bytes(), 0);
  }

  int64_t operand_bytes_ = 0;
  int64_t scratch_bytes_ = 0;  // the most that a launch holds at a time
};

TEST_P(ScratchTest, IsChargedBeforeItExists) {
  ExpectNothingIsHeld();
  if (scratch_bytes_ > 0) {
    const MemoryAccount::Ref limited =
        MemoryAccount::Open({.device = "cpu:0", .session_limit_bytes = scratch_bytes_ - 1});
    ExpectError(Launch(*limited), absl::StatusCode::kResourceExhausted,
                {"bytes for its results", "bytes for intermediate values", "a session may hold"});
    EXPECT_EQ(limited->used_bytes(), 0);
    ExpectNothingIsHeld();
  }
  if (kSanitized) return;  // sanitizers take memory of their own
  // Not charged: blocks of a size class are up to an eighth larger than requested, and OpenBLAS,
  // oneDNN and malloc need memory that doesn't grow with the operands.
  constexpr int64_t kUncharged = 16 << 20;
  device_->ReleaseUnusedMemory();
  device_->ReleaseUnusedMemory();
  malloc_trim(0);
  if (!ResetPeak()) GTEST_SKIP() << "the system doesn't reset the peak of the resident memory";
  const int64_t before = ProcessBytes("VmHWM");
  ASSERT_TRUE(Launch().ok());
  EXPECT_LE(ProcessBytes("VmHWM") - before, scratch_bytes_ + scratch_bytes_ / 8 + kUncharged);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ScratchTest, testing::ValuesIn(LargeCalls()),
                         [](const testing::TestParamInfo<LargeCall>& param) {
                           return param.param.name;
                         });

// A sort of 1 Mi elements on a device that has room for its operands, but not for its scratch
// memory beside `ballast_`.
class ScratchLimitTest : public testing::Test {
 protected:
  static constexpr int64_t kLimitBytes = 64 << 20;
  static constexpr int64_t kElements = 1 << 20;

  void SetUp() override {
    x_ = *device_->Allocate(4 * kElements);
    std::memset(x_->data(), 1, x_->size_bytes());
    values_ = *device_->Allocate(4 * kElements);
    indices_ = *device_->Allocate(8 * kElements);
    ballast_ = *AllocateFor(*account_, *device_, kLimitBytes - 20 * kElements);
  }

  KernelCall Call() {
    return {context_, plan_.schema, &plan_.attrs, absl::MakeConstSpan(&input_, 1), outputs_};
  }

  absl::Status Sort() {
    input_.data = x_->data();
    outputs_[0].data = values_->data();
    outputs_[1].data = indices_->data();
    return device_->Launch(Call());
  }

  const std::unique_ptr<Device> device_ = *MakeCpuDevice({DeviceKind::kCpu, 0}, kLimitBytes, 1);
  const MemoryAccount::Ref account_ = MemoryAccount::Open({.device = "cpu:0"});
  const LaunchContext context_ = {*account_, *device_};
  const TensorSpec spec_ = {DType::kFloat32, {kElements}};
  const OpPlan plan_ = *PlanOp("sort", {spec_}, {});
  Operand input_ = {&spec_, nullptr};
  std::vector<Operand> outputs_ = {{&plan_.outputs[0], nullptr}, {&plan_.outputs[1], nullptr}};
  BufferRef x_, values_, indices_, ballast_;
};

TEST_F(ScratchLimitTest, OpThatExceedsTheDeviceIsRefused) {
  const int64_t before = device_->memory().used_bytes;
  ExpectError(Sort(), absl::StatusCode::kResourceExhausted,
              {"needs 12582912 bytes for its results", "bytes for intermediate values",
               "cpu:0 is out of memory", "4194304 bytes are free of its limit of 67108864 bytes",
               "delete tensors", "the caller holds 46137344 bytes there, other callers 16777216"});
  EXPECT_EQ(device_->memory().used_bytes, before);
  ballast_.reset();
  EXPECT_TRUE(Sort().ok());
  EXPECT_EQ(account_->used_bytes(), 0);
}

TEST_F(ScratchLimitTest, SpareMemoryIsFreedFirst) {
  struct Spare final : SpareMemory {
    bool FreeUnused(const MemoryAccount* /*account*/) override {
      const bool any = memory != nullptr;
      memory.reset();
      return any;
    }
    BufferRef memory;
  } spare;
  spare.memory = std::move(ballast_);
  device_->spares().Add(&spare);
  EXPECT_TRUE(Sort().ok());
  EXPECT_TRUE(spare.memory == nullptr);
  device_->spares().Remove(&spare);
}

TEST_F(ScratchLimitTest, RefusedAllocationNamesTheScratchOfARunningOp) {
  const auto scratch = ScratchMemory::Allocate(Call(), 4 << 20);
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  EXPECT_EQ(device_->scratch_bytes(), 4 << 20);
  const MemoryAccount::Ref other = MemoryAccount::Open({.device = "cpu:0"});
  ExpectError(AllocateFor(*other, *device_, 1), absl::StatusCode::kResourceExhausted,
              {"4194304 bytes of these are intermediate values of an op that runs"});
}

}  // namespace
}  // namespace tensord::server
