#include "tensord/server/device/self_test.h"

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {
namespace {

constexpr auto kFenceTimeout = std::chrono::seconds(10);

// The fence's callback shares it, because the callback may run after AwaitFence() has returned.
struct Fenced {
  Mutex mu;
  CondVar changed;
  bool reached ABSL_GUARDED_BY(mu) = false;
  absl::Status status ABSL_GUARDED_BY(mu);
};

absl::Status AwaitFence(Device& device) {
  auto fenced = std::make_shared<Fenced>();
  device.Fence([fenced](absl::Status status) {
    MutexLock lock(&fenced->mu);
    fenced->reached = true;
    fenced->status = std::move(status);
    fenced->changed.SignalAll();
  });
  const auto deadline = std::chrono::steady_clock::now() + kFenceTimeout;
  MutexLock lock(&fenced->mu);
  while (!fenced->reached && std::chrono::steady_clock::now() < deadline) {
    fenced->changed.WaitFor(&fenced->mu, kFenceTimeout);
  }
  if (!fenced->reached) return absl::DeadlineExceededError("the self-test's kernel doesn't end");
  return fenced->status;
}

}  // namespace

absl::Status SelfTest(Device& device) {
  using Numbers = std::array<int32_t, 64>;
  const TensorSpec spec{DType::kInt32, {static_cast<int64_t>(Numbers().size())}};
  const int64_t bytes = spec.size_bytes();
  Numbers numbers;
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i) - 9;
  TENSORD_ASSIGN_OR_RETURN(const BufferRef in, device.Allocate(bytes));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef out, device.Allocate(bytes));
  TENSORD_RETURN_IF_ERROR(device.Write(*in, 0, numbers.data(), bytes));
  static const OpSchema* const kAdd = FindOp("add");
  const Attributes no_attrs;
  const std::array<Operand, 2> operands = {{{&spec, in->data()}, {&spec, in->data()}}};
  const Operand sum = {&spec, out->data()};
  const MemoryAccount::Ref account = MemoryAccount::Open({.device = device.name().ToString()});
  TENSORD_RETURN_IF_ERROR(
      device.Launch({{*account, device}, kAdd, &no_attrs, operands, absl::MakeConstSpan(&sum, 1)}));
  TENSORD_RETURN_IF_ERROR(AwaitFence(device));
  Numbers sums = {};
  TENSORD_RETURN_IF_ERROR(device.Read(*out, 0, sums.data(), bytes));
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] != 2 * numbers[i]) return absl::InternalError("the self-test's sums are wrong");
  }
  return absl::OkStatus();
}

}  // namespace tensord::server
