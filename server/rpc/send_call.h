// What the calls of Read and Fetch have in common: a tensor's memory to the wire, chunk by chunk.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>

#include "tensord/server/rpc/bulk_call.h"

namespace tensord::server {

// One chunk is on its way while the next is read from the device: no more than two are held, and
// none where the host can reach the tensor's memory.
class SendCall : public BulkCall {
 protected:
  SendCall(BulkContext* bulk, CallQueue* queue) : BulkCall(bulk, queue) {}
  ~SendCall() override;

  // The stream, of whichever kind.
  virtual void Write(const grpc::ByteBuffer& message, void* tag) = 0;
  virtual void WriteAndFinish(const grpc::ByteBuffer& message, void* tag) = 0;
  virtual void Finish(const grpc::Status& status, void* tag) = 0;

  // Counts it among those that a drain waits for. False where the server is shutting down.
  bool Enter();

  // The tensor can be read: its bytes from `begin` to `end` are to be sent. Where it isn't done
  // yet, `received` is what there is of it, in memory that the host reaches.
  void SetRange(TensorRef tensor, int64_t begin, int64_t end, BufferRef received = nullptr);
  bool begun() const { return tensor_ != nullptr; }
  // Whether all of it has been handed to gRPC.
  bool sent_all() const { return sent_all_; }

  int64_t next_offset() const { return offset_; }
  int64_t end() const { return end_; }
  const BufferRef& buffer() const { return buffer_; }
  // How many of the next bytes may be sent now.
  int64_t Sendable();
  // So many of them have been sent by other means than GoOn's.
  void Sent(int64_t bytes) { offset_ += bytes; }
  // All of them have: the call ends.
  void Succeed();

  // Fits a core's cache on its way from one buffer to the next.
  static constexpr int64_t kChunkBytes = 512 << 10;

  // Sends what is there and sees to the next, and ends the call after the last. Once begun.
  void GoOn();
  // Whether the tensor has failed, and the call has been ended by that.
  bool TensorFailed();
  // kWritten: what was written has gone, or the client has.
  void Written(bool ok);

  void Fail(const absl::Status& status) override;
  // Of a tensor that isn't done: how much may be sent.
  virtual int64_t Available() { return 0; }
  // Has kWoken come when there is more than that, or the tensor is done.
  virtual void AwaitMore() {}
  // Ends the call with the tensor's own error.
  virtual void FailWithTensor(const absl::Status& status) { Fail(status); }

  grpc::ByteBuffer request_bytes_;
  bool first_ = true;     // the spec hasn't been sent
  bool writing_ = false;  // kWritten is to come

 private:
  // Has chunk_ made for offset_, now or when the device has given it.
  void Prepare();

  TensorRef tensor_;
  BufferRef buffer_;
  std::optional<grpc::Slice> chunk_;  // what goes out next
  int64_t offset_ = 0;                // of that
  int64_t end_ = 0;
  int64_t available_ = 0;  // of it
  bool counted_ = false;
  bool sent_all_ = false;
};

// With its stream.
template <typename Stream>
class SendCallBy : public SendCall {
 protected:
  SendCallBy(BulkContext* bulk, CallQueue* queue) : SendCall(bulk, queue), stream_(&context()) {}

  void Write(const grpc::ByteBuffer& message, void* tag) final { stream_.Write(message, tag); }
  void WriteAndFinish(const grpc::ByteBuffer& message, void* tag) final {
    stream_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, tag);
  }
  void Finish(const grpc::Status& status, void* tag) final { stream_.Finish(status, tag); }

  Stream stream_;
};

}  // namespace tensord::server
