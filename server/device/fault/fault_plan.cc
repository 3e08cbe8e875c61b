#include "tensord/server/device/fault/fault_plan.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// The names of the steps, in the order of FaultPlan::Step.
constexpr absl::string_view kStepWords[] = {"alloc", "kernel", "copy", "fence"};
constexpr int64_t kMaxDelayMs = 60000;

// Returns the index of the step with this name. If there is none, returns the number of steps.
size_t FindStep(absl::string_view word) {
  return std::find(std::begin(kStepWords), std::end(kStepWords), word) - std::begin(kStepWords);
}

}  // namespace

absl::Status FaultPlan::Apply(absl::string_view order) {
  const std::vector<absl::string_view> words = absl::StrSplit(order, ' ', absl::SkipEmpty());
  if (words.size() == 1 && words[0] == "die") {
    MutexLock lock(&mu_);
    dead_ = true;
    return absl::OkStatus();
  }
  if (words.size() == 1 && words[0] == "clear") {
    MutexLock lock(&mu_);
    due_.fill(0);
    delay_.fill({});
    failing_makes_ = 0;
    return absl::OkStatus();
  }
  int64_t number = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &number) || number < 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", order, "\" is not an order for a device"));
  }
  constexpr absl::string_view kDelay = "delay-";
  if (words[0].substr(0, kDelay.size()) == kDelay) {
    return SetDelay(words[0].substr(kDelay.size()), number);
  }
  return SetCount(words[0], number);
}

absl::Status FaultPlan::SetCount(absl::string_view word, int64_t count) {
  MutexLock lock(&mu_);
  if (word == "no-return") {
    failing_makes_ = count;
    return absl::OkStatus();
  }
  const size_t step = FindStep(word);
  if (step == kSteps) {
    return absl::InvalidArgumentError(absl::StrCat("there is no fault \"", word, "\""));
  }
  due_[step] = count;
  return absl::OkStatus();
}

absl::Status FaultPlan::SetDelay(absl::string_view word, int64_t delay_ms) {
  const size_t step = FindStep(word);
  if (step == kSteps || step == static_cast<size_t>(Step::kAllocation)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" can't be delayed"));
  }
  MutexLock lock(&mu_);
  delay_[step] = std::chrono::milliseconds(std::min(delay_ms, kMaxDelayMs));
  return absl::OkStatus();
}

absl::Status FaultPlan::At(Step step, bool may_be_late) {
  const auto index = static_cast<size_t>(step);
  std::chrono::milliseconds delay;
  bool strikes = false;
  {
    MutexLock lock(&mu_);
    delay = delay_[index];
    strikes = due_[index] > 0 && --due_[index] == 0;
  }
  if (may_be_late && delay.count() > 0) std::this_thread::sleep_for(delay);
  if (!strikes) return absl::OkStatus();
  if (step == Step::kAllocation) {
    return absl::ResourceExhaustedError(
        absl::StrCat(device_.ToString(), " is out of memory (a fault that was asked for)"));
  }
  return absl::DataLossError(
      absl::StrCat("a ", kStepWords[index], " failed (a fault that was asked for)"));
}

absl::Status FaultPlan::Make() {
  MutexLock lock(&mu_);
  if (failing_makes_ == 0) return absl::OkStatus();
  --failing_makes_;
  return absl::UnavailableError("it can't be made (a fault that was asked for)");
}

absl::Status FaultPlan::ConsumeLoss() {
  MutexLock lock(&mu_);
  if (!dead_) return absl::OkStatus();
  dead_ = false;
  return absl::DataLossError("it died (a fault that was asked for)");
}

FaultPlan& FaultPlans::Add(DeviceName device) {
  MutexLock lock(&mu_);
  std::unique_ptr<FaultPlan>& plan = plans_[device.ToString()];
  if (plan == nullptr) plan = std::make_unique<FaultPlan>(device);
  return *plan;
}

absl::Status FaultPlans::Apply(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
  FaultPlan* plan = nullptr;
  {
    MutexLock lock(&mu_);
    const auto found = plans_.find(std::string(parts[0]));
    if (found != plans_.end()) plan = found->second.get();
  }
  if (plan == nullptr || parts.size() < 2) {
    return absl::NotFoundError(
        absl::StrCat("\"", line, "\" doesn't name a faulty device and an order"));
  }
  return plan->Apply(parts[1]);
}

}  // namespace tensord::server
