// Stores the messages that a pull receives: copies their bytes to the tensor.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/ring_receiver.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/rpc/worker_pool.h"

namespace tensord::server {

// Owns two messages of a pull: `incoming`, which the call reads, and the current message, whose
// bytes are stored. So the next message can arrive while the current one is stored.
//
//              TakeNext                         CopyToHost, or a worker
//    incoming ──────────▶ current, or its slot ─────────────────────────▶ upload
//
// The thread that copies depends on the tensor's memory. If the host can access it, the caller
// copies (CopyToHost). Otherwise a worker does (WriteByWorker), because the device may block. A
// worker also maps the ring. At most one job of a worker is under way: busy().
//
// Only the thread of the peers' queue calls this object. When a job has ended, the worker posts the
// job's tag to the peers' queue. The caller then calls EndJob(). The tag must keep this object
// alive.
// While busy(), the caller may use only busy(), incoming(), SetReceived() and TakeNext(), and:
//   during a WriteByWorker   it doesn't use the upload, and keeps the upload and the slot alive;
//   during a MapByWorker     it doesn't use the receiver, and keeps the receiver alive.
class MessageStore {
 public:
  // What a worker does.
  enum class Job { kWrite, kMapRing };

  // The pointers must outlive this object. The workers' time is shared among owners: `owner` is the
  // pull's principal.
  MessageStore(ServiceContext* context, Peers* peers, WorkerPool::Owner owner, TensorUpload* upload)
      : context_(context), peers_(peers), owner_(owner), upload_(upload) {}

  // Returns the buffer that the call reads the next message into.
  grpc::ByteBuffer* incoming() { return &incoming_; }
  // Records that the call has read a message.
  void SetReceived() { has_incoming_ = true; }
  // If a message has been read and no worker is busy, makes it the current message, clears
  // incoming() and returns true. The caller may then read the next message.
  bool TakeNext();
  // Decodes the current message. If it is malformed, returns INVALID_ARGUMENT.
  absl::StatusOr<FetchChunk> Decode() { return DecodeFetchResponse(&message_); }

  // The following two functions store the first `bytes` bytes of `chunk`, which Decode() has
  // returned for the current message. The bytes are in `slot`, or in the message if `slot` is null.

  // Copies the bytes to upload->destination(), which must be host-accessible. Doesn't advance the
  // upload, so the caller can discard the bytes.
  void CopyToHost(const FetchChunk& chunk, int64_t bytes, const uint8_t* slot);
  // Has a worker write the bytes and advance the upload. write_status() is the result.
  void WriteByWorker(const FetchChunk& chunk, int64_t bytes, const uint8_t* slot, void* tag);
  // Has a worker call receiver->Map(ring).
  void MapByWorker(const v1::SharedRing& ring, RingReceiver* receiver, void* tag);

  // Returns whether a worker's job is under way: from its start to EndJob().
  bool busy() const { return busy_; }
  // Ends the worker's job, and returns which job it was. Call it once the job's tag has come.
  Job EndJob();
  // Returns the result of the last WriteByWorker().
  const absl::Status& write_status() const { return write_status_; }

  // Return the chunk that was stored last, and how many of its bytes. The parts receive its other
  // bytes.
  const FetchChunk& chunk() const { return chunk_; }
  int64_t chunk_bytes() const { return chunk_bytes_; }
  // Frees the memory of the current message.
  void ClearMessage() { message_.Clear(); }

 private:
  // Has a worker run `work`, which may block. Then posts `tag`.
  void RunByWorker(std::function<void()> work, void* tag);

  ServiceContext* const context_;
  Peers* const peers_;
  const WorkerPool::Owner owner_;
  TensorUpload* const upload_;

  grpc::ByteBuffer incoming_;
  bool has_incoming_ = false;
  grpc::ByteBuffer message_;  // the current message
  FetchChunk chunk_;
  int64_t chunk_bytes_ = 0;
  bool busy_ = false;
  bool maps_ring_ = false;  // the job is kMapRing
  absl::Status write_status_;
  grpc::Alarm worker_done_alarm_;
};

}  // namespace tensord::server
