// Fetches one part of a tensor from another server, with a call of its own.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tensord/server/device/buffer.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/peers.h"

namespace tensord::server {

// Runs on the thread of the peers' queue. Only that thread may use it, except for Cancel(). Its
// operations on the queue keep it alive.
class RangeFetch final : public PeerOperation, public std::enable_shared_from_this<RangeFetch> {
 public:
  // Fetches bytes `begin` to `end` of a tensor into the same range of `buffer`, which the host may
  // write. `on_progress` runs after each chunk, and when the fetch has ended.
  RangeFetch(Peers* peers, BufferRef buffer, int64_t begin, int64_t end,
             std::function<void()> on_progress);

  // Starts the call, over the peers' connection of this number. Call it once. `request` needs no
  // offset and no limit.
  void Start(const std::string& address, int connection, v1::FetchRequest request);
  // Cancels the call. The fetch ends soon after. Thread-safe.
  void Cancel() override { context_.TryCancel(); }
  // Cancels the call. From now on, the fetch neither runs `on_progress` nor writes to the buffer.
  void Abandon();

  int64_t begin() const { return begin_; }
  // Returns how many bytes, from begin() on, have been written to the buffer.
  int64_t stored_bytes() const { return stored_bytes_; }
  bool complete() const { return stored_bytes_ == end_ - begin_; }
  // Returns whether the call has ended: no more bytes will come.
  bool ended() const { return ended_; }

 private:
  friend class CallEvent<RangeFetch>;
  using Event = CallEvent<RangeFetch>;

  void OnStarted(bool ok);
  void OnRequestSent(bool ok);
  void OnRead(bool ok);
  void OnFinished(bool ok);
  void AfterEvent() {}
  // Writes the received chunk to the buffer. If the message is invalid or out of range, returns
  // false.
  bool StoreChunk();
  void Finish();

  Peers* const peers_;
  const BufferRef buffer_;
  const int64_t begin_;
  const int64_t end_;
  std::function<void()> on_progress_;
  v1::FetchRequest request_;

  Event started_{&RangeFetch::OnStarted};
  Event request_sent_{&RangeFetch::OnRequestSent};
  Event read_{&RangeFetch::OnRead};
  Event finished_{&RangeFetch::OnFinished};
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;  // destroyed before context_
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  int64_t stored_bytes_ = 0;
  bool abandoned_ = false;
  bool ended_ = false;
};

}  // namespace tensord::server
