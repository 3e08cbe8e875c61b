#include "tensord/server/rpc/bulk/tensor_upload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

// A part has a call of its own (PartUpload), and only Write has such calls.
absl::Status CheckWholeTensor(const v1::WriteSpec& spec) {
  if (!spec.has_part()) return absl::OkStatus();
  return absl::InvalidArgumentError("only the spec of a Write may have the field \"part\"");
}

}  // namespace

TensorUpload::~TensorUpload() { Interrupt(); }

absl::Status TensorUpload::Await(const PrincipalRef& principal, const v1::WriteSpec& spec,
                                 std::function<void(absl::Status)> ready) {
  TENSORD_ASSIGN_OR_RETURN(use_, context_->sessions->Use(principal, spec.session()));
  session_ = use_.ref();
  return session_->WhenReceived(spec.after_command(), std::move(ready));
}

absl::Status TensorUpload::Begin(const v1::WriteSpec& wanted, std::function<void()> stop) {
  TENSORD_RETURN_IF_ERROR(CheckWholeTensor(wanted));
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(wanted.spec()));
  if (!wanted.resumable()) stop = nullptr;
  TENSORD_ASSIGN_OR_RETURN(
      upload_, context_->engine->BeginUpload(*session_, wanted.handle(), spec, wanted.device(),
                                             std::move(stop)));
  resumable_ = wanted.resumable() && upload_->promised;
  size_bytes_ = spec.size_bytes();
  written_bytes_ = upload_->written_bytes;
  return absl::OkStatus();
}

void TensorUpload::OpenParts() {
  if (resumable_) parts().Open(upload_->buffer, written_bytes_);
}

absl::Status TensorUpload::Claim(const SessionRef& session, const v1::WriteSpec& wanted,
                                 std::function<void()> stop) {
  session_ = session;
  TENSORD_RETURN_IF_ERROR(CheckWholeTensor(wanted));
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(wanted.spec()));
  TENSORD_ASSIGN_OR_RETURN(
      upload_, context_->engine->ClaimUpload(*session_, wanted.handle(), spec, wanted.device(),
                                             std::move(stop)));
  resumable_ = upload_->promised;
  size_bytes_ = spec.size_bytes();
  written_bytes_ = upload_->written_bytes;
  claimed_ = std::exchange(upload_->tensor, nullptr);
  return absl::OkStatus();
}

absl::Status TensorUpload::AllocateMemory() {
  if (upload_->tensor == nullptr) upload_->tensor = claimed_.lock();
  if (upload_->tensor == nullptr) return absl::CancelledError("the tensor no longer exists");
  return context_->engine->AllocateMemory(*session_, &*upload_);
}

void TensorUpload::ReleaseTensor() {
  if (begun()) upload_->tensor.reset();
}

absl::Status TensorUpload::Check(int64_t offset, int64_t bytes) {
  if (const absl::Status* loss = upload_->buffer->device().loss()) return *loss;
  if (offset > written_bytes_) CountParts();
  if (offset != written_bytes_) {
    if (resumable_) return Engine::UploadContinuedError(upload_->tensor->handle());
    return absl::InvalidArgumentError(absl::StrCat("a chunk has offset ", offset, ", but ",
                                                   written_bytes_, " bytes have been received"));
  }
  const TensorSpec& spec = upload_->tensor->spec();
  if (bytes > spec.size_bytes() - written_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("a ", spec.ToString(), " takes ",
                                                   spec.size_bytes(), " bytes, but at least ",
                                                   written_bytes_ + bytes, " were sent"));
  }
  if (resumable_ && !parts().ClaimBytes(offset, offset + bytes)) {
    return Engine::UploadContinuedError(upload_->tensor->handle());
  }
  return absl::OkStatus();
}

void TensorUpload::CountParts() {
  if (resumable_) written_bytes_ = parts().TakeComplete(written_bytes_);
}

void TensorUpload::Advance(int64_t bytes) {
  written_bytes_ += bytes;
  if (upload_->promised) upload_->tensor->upload()->ReportReceived(upload_->buffer, written_bytes_);
}

absl::Status TensorUpload::Write(const void* data, int64_t bytes) {
  TENSORD_RETURN_IF_ERROR(
      upload_->tensor->device().Write(*upload_->buffer, written_bytes_, data, bytes));
  written_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status TensorUpload::WriteFrom(HostMemory& memory, int64_t offset, int64_t bytes) {
  TENSORD_RETURN_IF_ERROR(
      upload_->tensor->device().WriteFrom(*upload_->buffer, written_bytes_, memory, offset, bytes));
  written_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status TensorUpload::WriteBy(int64_t bytes, Device::Fill fill) {
  TENSORD_RETURN_IF_ERROR(
      upload_->tensor->device().WriteBy(*upload_->buffer, written_bytes_, bytes, fill));
  written_bytes_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<TensorRef> TensorUpload::Finish() {
  const TensorRef tensor = upload_->tensor;
  const TensorSpec& spec = tensor->spec();
  if (written_bytes_ != spec.size_bytes()) {
    const absl::Status status =
        absl::InvalidArgumentError(absl::StrCat("a ", spec.ToString(), " takes ", spec.size_bytes(),
                                                " bytes, but only ", written_bytes_, " were sent"));
    Fail(status);
    return status;
  }
  const SessionUse use = std::move(use_);
  const SessionRef session = session_;
  const absl::Status status =
      context_->engine->FinishUpload(*session, *TakeOut(), absl::OkStatus());
  if (!status.ok()) return status;
  return tensor;
}

std::optional<Engine::Upload> TensorUpload::TakeOut() {
  std::optional<Engine::Upload> upload = std::exchange(upload_, std::nullopt);
  use_ = SessionUse();
  session_.reset();
  if (upload.has_value() && upload->tensor == nullptr) upload->tensor = claimed_.lock();
  if (upload.has_value() && upload->tensor == nullptr) return std::nullopt;
  return upload;
}

void TensorUpload::Interrupt() {
  if (!upload_.has_value() || !resumable_) return Fail(absl::CancelledError("the client has gone"));
  if (upload_->tensor != nullptr) CountParts();
  std::optional<Engine::Upload> upload = TakeOut();
  if (!upload.has_value()) return;
  upload->tensor->upload()->Park(
      {std::move(upload->buffer), written_bytes_, std::move(upload->in_flight)});
}

void TensorUpload::Fail(const absl::Status& status) {
  if (begun() && resumable_ && absl::IsAborted(status)) return Interrupt();
  const SessionUse use = std::move(use_);
  const SessionRef session = session_;
  std::optional<Engine::Upload> upload = TakeOut();
  if (!upload.has_value()) return;
  context_->engine->FinishUpload(*session, *std::move(upload), status).IgnoreError();
}

}  // namespace tensord::server
