// The base of the handlers of Read and Fetch. They send a tensor's memory in chunks.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "tensord/server/rpc/bulk/bulk_call.h"

namespace tensord::server {

// Reads a chunk from the device while gRPC sends the previous one. So a call holds at most two
// chunks, which count as unsent responses of the caller until the call ends. If the host can access
// the tensor's memory, a call holds none: gRPC sends from that memory.
class SendCall : public BulkCall {
 public:
  SendCall(BulkContext* bulk, std::unique_ptr<GrpcCall> grpc_call)
      : BulkCall(bulk, std::move(grpc_call)) {}

 protected:
  // Makes a shutdown of the server wait for this call. If the server is shutting down already,
  // returns UNAVAILABLE.
  absl::Status JoinReads();

  // Sets the range to send: the tensor's bytes from `begin` to `end`. If the tensor isn't done,
  // `received` is the memory that its upload fills, which the host can access.
  void SetRange(TensorRef tensor, int64_t begin, int64_t end, BufferRef received = nullptr);
  // Returns whether SetRange() has been called.
  bool begun() const { return tensor_ != nullptr; }
  // Returns whether the whole range has been passed to gRPC, or sent by other means.
  bool sent_all() const { return sent_all_; }

  int64_t next_offset() const { return offset_; }
  int64_t end() const { return end_; }
  const BufferRef& buffer() const { return buffer_; }
  // Returns how many bytes from next_offset() on may be sent now.
  int64_t SendableBytes();
  // Reports that the next `bytes` have been sent by other means than SendNext().
  void Sent(int64_t bytes) {
    offset_ += bytes;
    CountSent(bytes);
  }
  // Ends the call with OK, after all bytes have been sent by other means.
  void Succeed();

  // The size of a chunk. A chunk fits into a core's cache, where it stays between two copies.
  static constexpr int64_t kChunkBytes = 512 << 10;

  // Sends the prepared chunk, if any, and prepares the next one. After the last chunk, ends the
  // call. Call it only if begun().
  virtual void SendNext();
  // Ends the call if the tensor has failed. Returns whether it has.
  bool FailIfTensorFailed();

  void OnWritten(bool ok) override;
  void Fail(const absl::Status& status) override { Finish(status); }
  // Returns the end of the bytes that may be sent of a tensor that isn't done.
  virtual int64_t AvailableEnd() { return 0; }
  // Runs SendNext() when more bytes may be sent, or the tensor is done. Doesn't block.
  virtual void AwaitMore() {}
  // Ends the call with the tensor's own error.
  virtual void FailWithTensor(const absl::Status& status) { Fail(status); }

  bool first_ = true;     // the spec hasn't been sent
  bool writing_ = false;  // OnWritten hasn't come yet

 private:
  // Sets chunk_ to the bytes from offset_ on: at once, or when the device has read them.
  void PrepareChunk();
  // Waits until two chunks, or the rest of the tensor, fit into the limits of unsent responses.
  // Then sends.
  void AwaitRoom();

  TensorRef tensor_;
  BufferRef buffer_;
  std::optional<grpc::Slice> chunk_;  // the next chunk to send
  int64_t offset_ = 0;                // its position in the tensor
  int64_t end_ = 0;
  int64_t available_end_ = 0;
  bool sent_all_ = false;
};

}  // namespace tensord::server
