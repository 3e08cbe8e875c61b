// The base of the handlers of Read and Fetch: a tensor's memory to the wire, chunk by chunk.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "tensord/server/rpc/bulk/bulk_call.h"

namespace tensord::server {

// One chunk is on its way while the next is read from the device: no more than two are held, and
// none if the host can reach the tensor's memory.
class SendCall : public BulkCall {
 public:
  SendCall(BulkContext* bulk, std::unique_ptr<GrpcCall> grpc_call)
      : BulkCall(bulk, std::move(grpc_call)) {}

 protected:
  // Has a shutdown of the server wait for this call's end. Returns UNAVAILABLE if the server is
  // shutting down already.
  absl::Status JoinReads();

  // Sets what is to be sent: the tensor's bytes from `begin` to `end`. If the tensor isn't done
  // yet, `received` is what there is of it, in memory that the host reaches.
  void SetRange(TensorRef tensor, int64_t begin, int64_t end, BufferRef received = nullptr);
  // Returns whether SetRange() has been called.
  bool begun() const { return tensor_ != nullptr; }
  // Returns whether all of it has been handed to gRPC.
  bool sent_all() const { return sent_all_; }

  int64_t next_offset() const { return offset_; }
  int64_t end() const { return end_; }
  const BufferRef& buffer() const { return buffer_; }
  // Returns how many of the next bytes may be sent now.
  int64_t SendableBytes();
  // Reports that so many of them have been sent by other means than SendNext().
  void Sent(int64_t bytes) { offset_ += bytes; }
  // Ends the call: all bytes have been sent by other means.
  void Succeed();

  // Fits a core's cache on its way from one buffer to the next.
  static constexpr int64_t kChunkBytes = 512 << 10;

  // Sends what is there and prepares the next chunk. Ends the call after the last. Call it once
  // begun().
  virtual void SendNext();
  // Ends the call if the tensor has failed. Returns whether it has.
  bool FailIfTensorFailed();

  void OnWritten(bool ok) override;
  void Fail(const absl::Status& status) override { Finish(status); }
  // Of a tensor that isn't done: returns up to where its bytes may be sent.
  virtual int64_t AvailableEnd() { return 0; }
  // Waits until there is more than that or the tensor is done, and then runs SendNext().
  virtual void AwaitMore() {}
  // Ends the call with the tensor's own error.
  virtual void FailWithTensor(const absl::Status& status) { Fail(status); }

  bool first_ = true;     // the spec hasn't been sent
  bool writing_ = false;  // OnWritten is to come

 private:
  // Makes chunk_ from offset_ on, now or when the device has read it.
  void PrepareChunk();

  TensorRef tensor_;
  BufferRef buffer_;
  std::optional<grpc::Slice> chunk_;  // what goes out next
  int64_t offset_ = 0;                // of that
  int64_t end_ = 0;
  int64_t available_end_ = 0;
  bool sent_all_ = false;
};

}  // namespace tensord::server
