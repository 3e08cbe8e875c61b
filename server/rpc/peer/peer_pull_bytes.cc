// PeerPull: handles the source's messages and answers them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/peer/peer_pull.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {

void PeerPull::ProcessNext() {
  if (!store_.TakeNext()) return;
  attempt_->call->ReadNext();  // while this message is stored
  if (!failure_.ok() || attempt_->handed_over || CancelIfWithdrawn()) return;
  const absl::StatusOr<FetchChunk> chunk = store_.Decode();
  if (chunk.ok()) {
    HandleChunk(*chunk);
  } else {
    Fail(chunk.status());
  }
  if (!store_.busy()) upload_.ReleaseTensor();
}

void PeerPull::HandleChunk(const FetchChunk& chunk) {
  attempt_->call->SetAnswered();
  if (chunk.has_spec) {
    const absl::Status same = CheckSpec(chunk.spec);
    if (!same.ok()) return Fail(same);
  }
  if (chunk.has_ring) return MapRing(chunk.ring);
  if (chunk.has_slot || chunk.data_bytes > 0) StoreChunk(chunk);
}

absl::Status PeerPull::CheckSpec(const v1::TensorSpec& spec) const {
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec theirs, FromProto(spec));
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec ours, FromProto(request_.tensor().spec()));
  if (theirs == ours) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ticket is for a ", theirs.ToString(),
                                                 ", but tensor ", request_.tensor().handle(),
                                                 " was promised as a ", ours.ToString()));
}

void PeerPull::MapRing(const v1::SharedRing& ring) {
  if (!std::exchange(attempt_->wants_ring, false)) {
    return Fail(absl::InternalError("the source offers shared memory that wasn't requested"));
  }
  store_.MapByWorker(ring, &attempt_->ring, worker_done_.Begin(shared_from_this()));
}

void PeerPull::OnRingMapped() {
  const bool mapped = attempt_->ring.mapped();
  if (!mapped) peers_->DisableSharingWith(request_.source_address());
  v1::FetchRequest answer;
  answer.set_ring_mapped(mapped);
  attempt_->call->Send(answer);
}

void PeerPull::StoreChunk(const FetchChunk& chunk) {
  if (chunk.has_slot) {
    const absl::Status due = attempt_->ring.CheckSlot(chunk.slot);
    if (!due.ok()) return Fail(due);
  }
  const absl::Status taken = upload_.AllocateMemory();
  if (!taken.ok()) return Fail(taken);
  progress_.Begin();
  if (chunk.offset != upload_.written_bytes()) {
    return Fail(absl::InternalError(absl::StrCat(
        "the source sent byte ", chunk.offset, ", but byte ", upload_.written_bytes(), " is due")));
  }
  const int64_t all_bytes = chunk.has_slot ? chunk.slot.bytes() : chunk.data_bytes;
  // The parts receive the bytes from AttemptEnd() on.
  const int64_t bytes =
      parts_.empty() ? all_bytes : std::min(all_bytes, AttemptEnd() - chunk.offset);
  const absl::Status fits = upload_.Check(chunk.offset, bytes);
  if (!fits.ok()) return Fail(fits);
  const uint8_t* const slot = chunk.has_slot ? attempt_->ring.slot() : nullptr;
  if (upload_.host_accessible()) {
    store_.CopyToHost(chunk, bytes, slot);
    if (CancelIfWithdrawn()) return;
    upload_.Advance(bytes);
    OnChunkStored();
  } else {
    store_.WriteByWorker(chunk, bytes, slot, worker_done_.Begin(shared_from_this()));
  }
}

bool PeerPull::CancelIfWithdrawn() {
  if (!attempt_->ring.withdrawn()) return false;
  attempt_->call->Cancel();
  return true;
}

void PeerPull::OnChunkStored() {
  const FetchChunk& chunk = store_.chunk();
  CountReceived(store_.chunk_bytes(), chunk.has_slot);
  store_.ClearMessage();
  if (!chunk.has_slot) return OnMessageStored();
  attempt_->ring.MarkCopied();
  v1::FetchRequest emptied;
  emptied.mutable_slot()->set_slot(chunk.slot.slot());
  attempt_->call->Send(emptied);
}

void PeerPull::OnMessageStored() {
  if (attempt_->bytes == 0) attempt_->first_byte = progress_.last_byte();
  attempt_->bytes += store_.chunk().data_bytes;
  if (!parts_.empty() && upload_.written_bytes() == AttemptEnd()) {
    attempt_->handed_over = true;
    attempt_->call->Cancel();
  } else {
    MaybeSpread();
  }
}

}  // namespace tensord::server
