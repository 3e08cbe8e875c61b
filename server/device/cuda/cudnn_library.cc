#include "tensord/server/device/cuda/cudnn_library.h"

#include "absl/strings/str_cat.h"

namespace tensord::server::cuda {
namespace {

absl::StatusCode CodeOf(cudnn::Status status) {
  switch (status) {
    case cudnn::Status::kInternalErrorHostAllocationFailed:
    case cudnn::Status::kInternalErrorDeviceAllocationFailed:
      return absl::StatusCode::kResourceExhausted;
    default:
      break;
  }
  switch (static_cast<int>(status) / 1000) {
    case 3:
      return absl::StatusCode::kUnimplemented;
    case 5:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudnnLibrary::ToStatus(cudnn::Status status, absl::string_view call) const {
  if (status == cudnn::Status::kSuccess) return absl::OkStatus();
  return absl::Status(CodeOf(status), absl::StrCat(call, " failed: ", GetErrorString(status), " (",
                                                   static_cast<int>(status), ")"));
}

}  // namespace tensord::server::cuda
