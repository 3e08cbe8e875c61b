// An upload: fills a tensor, from its first byte to its last, with data of a client or another
// server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// Not thread-safe. The destructor calls Interrupt().
//
// A client's upload calls Await(), then Begin(). A pull from another server calls Claim(), then
// AllocateMemory().
class TensorUpload {
 public:
  explicit TensorUpload(ServiceContext* context) : context_(context) {}
  ~TensorUpload();

  // Finds the caller's session. Calls `ready` when the first spec.after_command() commands of the
  // session's stream have taken effect: on any thread, possibly before this function returns. Then
  // call Begin(). If this function returns an error, it never calls `ready`.
  absl::Status Await(const PrincipalRef& principal, const v1::WriteSpec& spec,
                     std::function<void(absl::Status)> ready);

  // Allocates the memory, or continues the upload that an earlier call has parked. If the spec is
  // resumable, another call may call `stop` to abort this one: from any thread, while begun().
  absl::Status Begin(const v1::WriteSpec& spec, std::function<void()> stop);
  bool begun() const { return upload_.has_value(); }
  // If the upload is resumable, lets other calls fill parts of the tensor (PartUpload). Call it
  // after Begin(). The caller must then write only bytes that Check() has accepted.
  void OpenParts();

  // Claim() and AllocateMemory() are the two steps of Begin(), for a promised tensor. After Claim()
  // no other call can fill the tensor. Claim() holds the tensor only weakly, and doesn't use the
  // session; `stop` is also called when the tensor is destroyed. AllocateMemory() holds the tensor,
  // and allocates the memory at the first call. If the tensor no longer exists, it returns
  // CANCELLED. ReleaseTensor() holds the tensor only weakly again: call AllocateMemory() before the
  // next function that fills it.
  absl::Status Claim(const SessionRef& session, const v1::WriteSpec& spec,
                     std::function<void()> stop);
  absl::Status AllocateMemory();
  void ReleaseTensor();
  bool resumable() const { return resumable_; }

  // Checks that a chunk of `bytes` at `offset` continues the upload. Counts complete parts before
  // `offset` as received, and drops parts that contain bytes of the chunk. If the tensor's device
  // is lost, returns DATA_LOSS. If the offset is wrong, returns ABORTED for a resumable upload,
  // otherwise INVALID_ARGUMENT. If the chunk exceeds the tensor, returns INVALID_ARGUMENT.
  absl::Status Check(int64_t offset, int64_t bytes);
  // Counts complete parts that follow the received bytes without a gap as received.
  void CountParts();
  int64_t written_bytes() const { return written_bytes_; }
  int64_t size_bytes() const { return size_bytes_; }

  // Returns whether the host can access the tensor's memory. Only then may destination() be used.
  bool host_accessible() const { return upload_->tensor->device().host_accessible(); }
  // Returns where the next byte must be written.
  uint8_t* destination() const {
    return static_cast<uint8_t*>(upload_->buffer->data()) + written_bytes_;
  }
  const BufferRef& buffer() const { return upload_->buffer; }
  // Reports that `bytes` have been written at destination().
  void Advance(int64_t bytes);
  // Each writes the next bytes by the function of Device with the same name. They may block.
  absl::Status Write(const void* data, int64_t bytes);
  absl::Status WriteFrom(HostMemory& memory, int64_t offset, int64_t bytes);
  absl::Status WriteBy(int64_t bytes, Device::Fill fill);
  // Undoes the last Write() of `bytes`, whose data was invalid. Don't call it after Advance():
  // other calls may have sent the bytes already.
  void Rewind(int64_t bytes) { written_bytes_ -= bytes; }

  // Ends the upload after the last byte, and returns the tensor. If bytes are missing, fails the
  // upload with INVALID_ARGUMENT and returns that error.
  absl::StatusOr<TensorRef> Finish();
  // Ends the upload early. If it is resumable, parks the received bytes for the next call;
  // otherwise calls Fail(CANCELLED). If it has not begun or has ended, only releases the session.
  void Interrupt();
  // Fails the upload. If the tensor is promised, it fails with `status`; otherwise its handle stays
  // free. If `status` is ABORTED and the upload is resumable, does the same as Interrupt().
  void Fail(const absl::Status& status);

 private:
  // Removes the upload from this object and returns it. If it has not begun or the tensor no longer
  // exists, returns nullopt.
  std::optional<Engine::Upload> TakeOut();
  UploadParts& parts() const { return upload_->tensor->upload()->parts(); }

  ServiceContext* const context_;
  SessionUse use_;  // set for a client's upload
  SessionRef session_;
  std::weak_ptr<Tensor> claimed_;  // the tensor, while upload_ doesn't hold it
  std::optional<Engine::Upload> upload_;
  bool resumable_ = false;
  int64_t size_bytes_ = 0;
  int64_t written_bytes_ = 0;
};

}  // namespace tensord::server
