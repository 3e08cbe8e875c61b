// Calls of all kernels with so many elements that the work takes milliseconds, or more.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// A kernel has so many elements that it checks its stop token several times.
struct LargeCall {
  const char* name;
  std::string op;
  std::vector<TensorSpec> inputs;
  Attributes attrs;
};

inline std::ostream& operator<<(std::ostream& out, const LargeCall& call) {
  return out << call.name;
}

// Returns calls of all kernels of the CPU backend. Of the elementwise ops, only some are among
// them: all have the same kernels.
absl::Span<const LargeCall> LargeCalls();

// Makes the operands of a call, on a CPU device with two threads.
class LargeCallTest : public testing::TestWithParam<LargeCall> {
 protected:
  void SetUp() override;

  // Overwrites the outputs, and runs the kernel.
  absl::Status Launch(MemoryAccount& account);
  absl::Status Launch() { return Launch(*account_); }

  // Returns the bytes of all outputs.
  std::string Result() const;

  const MemoryAccount::Ref account_ = MemoryAccount::Open({.device = "cpu:0"});
  std::unique_ptr<Device> device_;

 private:
  // Sets the elements to increasing numbers from `start` to start + 1, or to integers from 0 on.
  absl::Status FillWithIncreasingNumbers(const TensorSpec& spec, double start,
                                         const Buffer& buffer);

  OpPlan plan_;
  std::vector<BufferRef> inputs_;
  std::vector<Operand> operands_;
  std::vector<BufferRef> outputs_;
  std::vector<Operand> results_;
};

}  // namespace tensord::server
