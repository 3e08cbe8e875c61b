#include "tensord/server/device/cuda/dnn.h"

#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"

namespace tensord::server::cuda {
namespace {

constexpr size_t kMaxConvPlans = 512;
constexpr uintptr_t kMaxConvAlignment = 16;  // of the widest load or store of a kernel

// Returns the greatest power of two that divides all addresses, at most kMaxConvAlignment.
int64_t AlignmentOf(const ConvAddresses& addresses) {
  uintptr_t bits = kMaxConvAlignment;
  for (const void* address : {addresses.x, addresses.w, addresses.y, addresses.bias}) {
    bits |= reinterpret_cast<uintptr_t>(address);
  }
  return static_cast<int64_t>(bits & (~bits + 1));
}

}  // namespace

Dnn::~Dnn() {
  plan_by_key_.clear();
  plans_.clear();  // before their handle
  if (handle_ != nullptr) library_->Destroy(handle_);
}

absl::Status Dnn::CreateHandle() {
  if (handle_ != nullptr) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(library_, LoadCudnn());
  return library_->ToStatus(library_->Create(&handle_), "cudnnCreate");
}

absl::StatusOr<const ConvPlan*> Dnn::FindPlan(const ConvProblem& problem,
                                              const ConvAddresses& addresses) {
  TENSORD_RETURN_IF_ERROR(CreateHandle());
  const Key key = {problem, AlignmentOf(addresses)};
  if (const auto it = plan_by_key_.find(key); it != plan_by_key_.end()) {
    plans_.splice(plans_.begin(), plans_, it->second);
  } else {
    absl::StatusOr<ConvPlan> plan =
        MakeConvPlan(*library_, handle_, problem, key.alignment, kMaxWorkspaceBytes);
    // A failure other than UNIMPLEMENTED isn't kept, because it may pass.
    if (!plan.ok() && !absl::IsUnimplemented(plan.status())) return plan.status();
    if (plans_.size() >= kMaxConvPlans) {
      plan_by_key_.erase(plans_.back().key);
      plans_.pop_back();
    }
    plans_.push_front({key, std::move(plan)});
    plan_by_key_[key] = plans_.begin();
  }
  const Kept& kept = plans_.front();
  if (!kept.plan.ok()) return kept.plan.status();
  return &*kept.plan;
}

absl::Status Dnn::Execute(const ConvPlan& plan, const ConvAddresses& addresses, void* workspace) {
  if (handle_stream_ != stream_) {
    TENSORD_RETURN_IF_ERROR(
        library_->ToStatus(library_->SetStream(handle_, stream_), "cudnnSetStream"));
    handle_stream_ = stream_;
  }
  int64_t numbers[4] = {};
  void* pointers[4] = {};
  int64_t count = 0;
  const auto assign = [&](ConvTensor tensor, void* address) {
    if (address == nullptr) return;
    numbers[count] = static_cast<int64_t>(tensor);
    pointers[count++] = address;
  };
  assign(ConvTensor::kX, addresses.x);
  assign(ConvTensor::kW, addresses.w);
  assign(ConvTensor::kY, addresses.y);
  assign(ConvTensor::kBias, addresses.bias);
  CudnnDescriptor pack(*library_, cudnn::DescriptorType::kVariantPack);
  pack.Set(cudnn::Attribute::kVariantPackUniqueIds, absl::MakeConstSpan(numbers, count))
      .Set(cudnn::Attribute::kVariantPackDataPointers, cudnn::AttributeType::kVoidPtr, count,
           pointers)
      .Set(cudnn::Attribute::kVariantPackWorkspace, cudnn::AttributeType::kVoidPtr, 1, &workspace);
  TENSORD_RETURN_IF_ERROR(pack.Finalize());
  return library_->ToStatus(library_->Execute(handle_, plan.plan, pack.get()),
                            "cudnnBackendExecute");
}

}  // namespace tensord::server::cuda
