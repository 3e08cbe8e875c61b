// Fetches one part of a tensor from another server, with a call of its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tensord/server/device/buffer.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/source_call.h"

namespace tensord::server {

// Runs on the thread of the peers' queue. Only that thread may use it, except for Cancel(). Its
// call keeps it alive.
class RangeFetch final : public PeerOperation,
                         private SourceCall::User,
                         public std::enable_shared_from_this<RangeFetch> {
 public:
  // Fetches bytes `begin` to `end` of a tensor into the same range of `buffer`, which the host may
  // write, over the peers' connection of this number to the server at `address`. `on_progress` runs
  // after each chunk, and when the fetch has ended.
  RangeFetch(Peers* peers, const std::string& address, int connection, BufferRef buffer,
             int64_t begin, int64_t end, std::function<void()> on_progress);

  // Starts the call. Call it once. `request` needs no offset and no limit.
  void Start(v1::FetchRequest request);
  // Cancels the call. The fetch ends soon after. Thread-safe.
  void Cancel() override { call_->Cancel(); }
  // Cancels the call. From now on, the fetch neither runs `on_progress` nor writes to the buffer.
  void Abandon();

  int64_t begin() const { return begin_; }
  // Returns how many bytes, from begin() on, have been written to the buffer.
  int64_t stored_bytes() const { return stored_bytes_; }
  bool complete() const { return stored_bytes_ == end_ - begin_; }
  // Returns whether the call has ended: no more bytes will come.
  bool ended() const { return ended_; }

 private:
  void OnMessageRead() override;
  void OnSending() override {}
  void OnCallEnded() override;
  // Writes the received chunk to the buffer. If the message is invalid or out of range, returns
  // false.
  bool StoreChunk();

  Peers* const peers_;
  const BufferRef buffer_;
  const int64_t begin_;
  const int64_t end_;
  std::function<void()> on_progress_;
  grpc::ByteBuffer incoming_;
  const std::shared_ptr<SourceCall> call_;
  int64_t stored_bytes_ = 0;
  bool abandoned_ = false;
  bool ended_ = false;
};

}  // namespace tensord::server
