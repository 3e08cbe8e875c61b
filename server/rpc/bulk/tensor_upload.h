// A tensor that is filled from its first byte to its last by what a client sends, or another
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

// Used by one thread at a time. Going away unfinished, it leaves nothing behind.
class TensorUpload {
 public:
  explicit TensorUpload(ServiceContext* context) : context_(context) {}
  ~TensorUpload();

  // Finds the caller's session and calls back, on any thread, when Begin() may be called: its
  // stream has brought what the spec waits for. May call back before it returns. An error: it
  // won't.
  absl::Status Await(const PrincipalRef& principal, const v1::WriteSpec& spec,
                     std::function<void(absl::Status)> ready);

  // Takes the memory, or goes on with what an earlier call has left. `stop` is to break the call
  // off, where it says that it is resumable: from any thread, as long as begun().
  absl::Status Begin(const v1::WriteSpec& spec, std::function<void()> stop);
  bool begun() const { return upload_.has_value(); }

  // As Begin(), of a tensor that is promised, in two steps. From the first on nobody else brings
  // it, but it is held only weakly, and its session not in use: `stop` is also called when nobody
  // wants it any more. The second takes the memory, and CANCELLED says that nobody does.
  absl::Status Claim(const SessionRef& session, const v1::WriteSpec& spec,
                     std::function<void()> stop);
  absl::Status TakeMemory();
  // Whether anybody but this holds the tensor, once its memory has been taken.
  bool wanted() const { return upload_->tensor.use_count() > 1; }
  bool resumable() const { return resumable_; }

  // Whether `bytes` may come next, and at `offset` of the tensor. DATA_LOSS where its device is
  // lost; ABORTED where the upload is resumable and stands elsewhere.
  absl::Status Check(int64_t offset, int64_t bytes) const;
  int64_t written_bytes() const { return written_bytes_; }
  int64_t size_bytes() const { return upload_->tensor->spec().size_bytes(); }

  // Where the next byte goes; the host may write there only where this says so.
  bool host_accessible() const { return upload_->tensor->device().host_accessible(); }
  uint8_t* destination() const {
    return static_cast<uint8_t*>(upload_->buffer->data()) + written_bytes_;
  }
  const BufferRef& buffer() const { return upload_->buffer; }
  // `bytes` have been put at destination().
  void Advance(int64_t bytes);
  // Write the next bytes, as the functions of Device with these names. They may block.
  absl::Status Write(const void* data, int64_t bytes);
  absl::Status WriteFrom(HostMemory& memory, int64_t offset, int64_t bytes);
  absl::Status WriteBy(int64_t bytes, Device::Fill fill);

  // The client has said all: the tensor, or what is missing.
  absl::StatusOr<TensorRef> Finish();
  // The client has gone. What has come is kept where the upload is resumable; otherwise it fails.
  void BreakOff();
  // A promise fails with `status`, another handle stays free. ABORTED is as BreakOff.
  void Fail(const absl::Status& status);

 private:
  // The upload is over; none where nobody wants the tensor any more.
  std::optional<Engine::Upload> TakeOut();

  ServiceContext* const context_;
  SessionUse use_;  // of a client's upload
  SessionRef session_;
  std::weak_ptr<Tensor> claimed_;  // what upload_ lacks between Claim and TakeMemory
  std::optional<Engine::Upload> upload_;
  bool resumable_ = false;
  int64_t written_bytes_ = 0;
};

}  // namespace tensord::server
