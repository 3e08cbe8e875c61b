#include "tensord/server/rpc/bulk/part_upload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

absl::Status DroppedError() {
  return absl::AbortedError(
      "the part has been dropped: the tensor's main Write has ended, or sends these bytes");
}

}  // namespace

absl::Status PartUpload::Await(const PrincipalRef& principal, const v1::WriteSpec& spec,
                               std::function<void(absl::Status)> ready) {
  principal_ = principal;
  TENSORD_ASSIGN_OR_RETURN(use_, context_->sessions->Use(principal, spec.session()));
  return use_.ref()->WhenReceived(spec.after_command(), std::move(ready));
}

absl::Status PartUpload::CheckConnections() const {
  const Budget& connections = principal_->budget(PrincipalLimit::kConnections);
  const int64_t limit = connections.limit();
  if (connections.used() <= limit - limit / 4) return absl::OkStatus();
  return principal_->Refuse(
      {.reason = "PRINCIPAL_CONNECTIONS_EXCEEDED",
       .subject = "principal",
       .limit = "max-connections-per-principal",
       .value = limit,
       .message = "the caller has almost as many connections as the limit allows, so uploads can't "
                  "use further ones"});
}

absl::Status PartUpload::Begin(const v1::WriteSpec& wanted, std::function<void()> stop) {
  TENSORD_RETURN_IF_ERROR(CheckConnections());
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(wanted.spec()));
  TENSORD_ASSIGN_OR_RETURN(DeviceSlot* const slot, context_->engine->FindDevice(wanted.device()));
  TENSORD_ASSIGN_OR_RETURN(const TensorRef tensor, use_.ref()->Find(wanted.handle()));
  if (tensor->upload() == nullptr || tensor->spec() != spec || tensor->slot() != slot) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", wanted.handle(), " isn't promised as ", spec.ToString(), " on ",
        slot->device->name().ToString(), ", so no part of such a tensor can be uploaded"));
  }
  const v1::WritePart& part = wanted.part();
  if (part.offset() < 0 || part.size_bytes() <= 0 ||
      part.offset() > spec.size_bytes() - part.size_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a part of ", part.size_bytes(), " bytes at offset ", part.offset(),
                     " is empty, or not inside the tensor of ", spec.size_bytes(), " bytes"));
  }
  part_.begin = part.offset();
  part_.end = part.offset() + part.size_bytes();
  part_.stop = std::move(stop);
  TENSORD_ASSIGN_OR_RETURN(buffer_, tensor->upload()->parts().Add(&part_));
  tensor_ = tensor;
  next_byte_ = part_.begin;
  return absl::OkStatus();
}

absl::Status PartUpload::Write(int64_t offset, int64_t bytes, Device::Fill fill) {
  if (const absl::Status* loss = buffer_->device().loss()) return *loss;
  if (offset != next_byte_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a chunk has offset ", offset, ", but the next byte of the part is ", next_byte_));
  }
  if (bytes > part_.end - next_byte_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the part ends at byte ", part_.end, ", but bytes up to ", offset + bytes, " were sent"));
  }
  if (!parts().BeginCopy(&part_)) return DroppedError();
  absl::Status status;
  if (host_accessible()) {
    fill(0, bytes, static_cast<uint8_t*>(buffer_->data()) + offset);
  } else {
    status = tensor_->device().WriteBy(*buffer_, offset, bytes, fill);
  }
  parts().EndCopy(&part_);
  next_byte_ += bytes;
  return status;
}

absl::StatusOr<TensorRef> PartUpload::Finish() {
  if (next_byte_ != part_.end) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the part ends at byte ", part_.end, ", but only bytes up to ", next_byte_, " were sent"));
  }
  // Drops the buffer before the tensor can become done: ops reuse its memory only if nothing else
  // refers to it.
  buffer_.reset();
  if (!parts().Complete(&part_)) return DroppedError();
  use_ = SessionUse();
  return std::exchange(tensor_, nullptr);
}

void PartUpload::End() {
  if (begun()) parts().Remove(&part_);
  buffer_.reset();
  tensor_.reset();
  use_ = SessionUse();
}

}  // namespace tensord::server
