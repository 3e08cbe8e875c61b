#include "tensord/client/internal/shared_ring.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tensord/client/internal/interruption.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/stream_copy.h"

namespace tensord::internal {

absl::StatusOr<std::unique_ptr<SharedRing>> SharedRing::Open(v1::TensorService::Stub* stub,
                                                             const std::string& session,
                                                             CallRegistry* calls) {
  std::unique_ptr<SharedRing> ring(new SharedRing(calls));
  const Interruption::CallScope interruptible(ring->call_.context());
  ring->stream_ = stub->SharedMemory(ring->call_.context());
  v1::SharedMemoryRequest request;
  request.mutable_open()->set_session(session);
  v1::SharedMemoryResponse response;
  if (!ring->stream_->Write(request) || !ring->stream_->Read(&response) || !response.has_ring()) {
    ring->broken_ = response.response_case() != v1::SharedMemoryResponse::RESPONSE_NOT_SET;
    const grpc::Status status = ring->End();
    return StatusFromCode(status.error_code(), status.error_message(), status.error_details());
  }
  TENSORD_ASSIGN_OR_RETURN(
      ring->ring_,
      SharedMapping::Map({.socket_name = response.ring().socket_name(),
                          .secret = response.ring().secret(),
                          .slot_bytes = response.ring().slot_bytes(),
                          .slots = response.ring().slots()},
                         SharedMapping::Access::kReadWrite, std::numeric_limits<int64_t>::max()));
  return ring;
}

SharedRing::~SharedRing() {
  if (stream_ != nullptr) {
    call_.context()->TryCancel();
    stream_->Finish();
  }
}

grpc::Status SharedRing::End() {
  v1::SharedMemoryResponse unread;
  if (broken_) call_.context()->TryCancel();
  while (stream_->Read(&unread)) {  // the status comes after all messages
  }
  const grpc::Status status = stream_->Finish();
  stream_.reset();
  if (!status.ok() && !broken_) return status;
  return grpc::Status(grpc::StatusCode::INTERNAL, "the server ended a transfer too early");
}

bool SharedRing::SendSlot(uint32_t slot, int64_t bytes) {
  v1::SharedMemoryRequest request;
  request.mutable_slot()->set_slot(slot);
  request.mutable_slot()->set_bytes(bytes);
  return stream_->Write(request);
}

bool SharedRing::ReceiveSlot(uint32_t slot, int64_t max_bytes, int64_t* bytes) {
  v1::SharedMemoryResponse response;
  if (!stream_->Read(&response)) return false;
  *bytes = response.slot().bytes();
  broken_ =
      !response.has_slot() || response.slot().slot() != slot || *bytes < 0 || *bytes > max_bytes;
  return !broken_;
}

grpc::Status SharedRing::Upload(const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                                const Progress& progress) {
  const Interruption::CallScope interruptible(call_.context());
  v1::SharedMemoryRequest request;
  *request.mutable_write() = spec;
  if (!stream_->Write(request)) return End();
  const auto total_bytes = static_cast<int64_t>(data.size());
  const uint32_t slots = ring_->slots();
  int64_t sent_bytes = 0;
  for (uint32_t n = 0; sent_bytes < total_bytes; ++n) {
    int64_t freed = 0;
    if (n >= slots && !ReceiveSlot(n % slots, 0, &freed)) return End();
    const int64_t bytes = std::min(ring_->slot_bytes(), total_bytes - sent_bytes);
    std::memcpy(ring_->slot(n % slots), data.data() + sent_bytes, bytes);
    if (!SendSlot(n % slots, bytes)) return End();
    sent_bytes += bytes;
    if (progress) progress(sent_bytes, total_bytes);
  }
  v1::SharedMemoryResponse response;
  while (stream_->Read(&response)) {
    if (response.has_written()) return grpc::Status::OK;
  }
  return End();
}

grpc::Status SharedRing::Download(const v1::ReadRequest& request, absl::Span<uint8_t> out,
                                  const Progress& progress) {
  const Interruption::CallScope interruptible(call_.context());
  v1::SharedMemoryRequest read;
  *read.mutable_read() = request;
  read.mutable_read()->set_limit_bytes(static_cast<int64_t>(out.size()));
  if (!stream_->Write(read)) return End();
  const auto total_bytes = static_cast<int64_t>(out.size());
  const uint32_t slots = ring_->slots();
  int64_t filled_bytes = 0;
  for (uint32_t n = 0; filled_bytes < total_bytes; ++n) {
    const int64_t max_bytes = std::min(ring_->slot_bytes(), total_bytes - filled_bytes);
    int64_t bytes = 0;
    if (!ReceiveSlot(n % slots, max_bytes, &bytes)) return End();
    if (n == 0) call_.SetUnderWay(true);
    StreamCopy(out.data() + filled_bytes, ring_->slot(n % slots), bytes);
    if (ring_->withdrawn() || !SendSlot(n % slots, 0)) return End();
    filled_bytes += bytes;
    if (progress) progress(filled_bytes, total_bytes);
  }
  call_.SetUnderWay(false);
  return grpc::Status::OK;
}

}  // namespace tensord::internal
