// The upload of one part of a tensor, while another call uploads the tensor (TensorUpload).
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/session/upload_parts.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// Fills the range of a v1::WritePart from its first byte to its last. Errors don't affect the
// tensor. Used by one thread at a time. The destructor calls End().
class PartUpload {
 public:
  // `context` outlives this object.
  explicit PartUpload(ServiceContext* context) : context_(context) {}
  ~PartUpload() { End(); }
  PartUpload(const PartUpload&) = delete;
  PartUpload& operator=(const PartUpload&) = delete;

  // Does the same as TensorUpload::Await().
  absl::Status Await(const PrincipalRef& principal, const v1::WriteSpec& spec,
                     std::function<void(absl::Status)> ready);
  // Begins the part, which must be set in the spec. Errors are those of v1::WritePart. `stop` is
  // called when the part has been dropped: from any thread, while begun(). It must not block.
  absl::Status Begin(const v1::WriteSpec& spec, std::function<void()> stop);
  bool begun() const { return tensor_ != nullptr; }

  // Returns whether the host can access the tensor's memory. Otherwise Write() may block.
  bool host_accessible() const { return tensor_->device().host_accessible(); }
  // Writes a chunk of `bytes` bytes, which `fill` supplies as for Device::WriteBy(). If the
  // tensor's device is lost, returns DATA_LOSS. If the chunk isn't the next one of the part, or
  // exceeds the part, returns INVALID_ARGUMENT. If the part has been dropped, returns ABORTED.
  absl::Status Write(int64_t offset, int64_t bytes, Device::Fill fill);

  // Ends the part after its last byte, and returns the tensor, which needn't be done. If bytes are
  // missing, returns INVALID_ARGUMENT. If the part has been dropped, returns ABORTED.
  absl::StatusOr<TensorRef> Finish();
  // Ends the part early: what it has written doesn't count.
  void End();

 private:
  // Refuses a part if the caller has few connections left. They are reserved for other clients.
  absl::Status CheckConnections() const;
  UploadParts& parts() const { return tensor_->upload()->parts(); }

  ServiceContext* const context_;
  PrincipalRef principal_;
  SessionUse use_;
  TensorRef tensor_;  // set while begun
  BufferRef buffer_;
  UploadPart part_;
  int64_t next_byte_ = 0;
};

}  // namespace tensord::server
