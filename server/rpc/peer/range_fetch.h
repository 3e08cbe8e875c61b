// A part of a tensor, fetched from another server by a call of its own, beside others.
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

// Driven by the thread of the peers' queue, which alone may use it but for Cancel(), and kept alive
// by what it has begun there.
class RangeFetch final : public std::enable_shared_from_this<RangeFetch> {
 public:
  // Bytes `begin` to `end` of the tensor that `buffer`, which the host may write, holds. `news` is
  // called whenever it has come further, and when it has ended.
  RangeFetch(Peers* peers, BufferRef buffer, int64_t begin, int64_t end,
             std::function<void()> news);

  // Once. Over the peers' connection of this number; `request` is what is fetched, but for offset
  // and limit.
  void Start(const std::string& address, int connection, v1::FetchRequest request);
  // Has it end soon. From any thread.
  void Cancel() { context_.TryCancel(); }
  // Has it end soon, without news, and leave the memory alone from here on.
  void Abandon();

  int64_t begin() const { return begin_; }
  // How many bytes from its beginning on are there.
  int64_t landed() const { return landed_; }
  bool complete() const { return landed_ == end_ - begin_; }
  // Whether no more will come.
  bool ended() const { return ended_; }

 private:
  friend class CallEvent<RangeFetch>;
  using Event = CallEvent<RangeFetch>;

  void OnStarted(bool ok);
  void OnAsked(bool ok);
  void OnRead(bool ok);
  void OnFinished(bool ok);
  void AfterEvent() {}
  // False where what has come is no part of it.
  bool Land();
  void Finish();

  Peers* const peers_;
  const BufferRef buffer_;
  const int64_t begin_;
  const int64_t end_;
  std::function<void()> news_;
  v1::FetchRequest request_;

  Event started_{&RangeFetch::OnStarted};
  Event asked_{&RangeFetch::OnAsked};
  Event read_{&RangeFetch::OnRead};
  Event finished_{&RangeFetch::OnFinished};
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;  // before its context goes
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  int64_t landed_ = 0;
  bool abandoned_ = false;
  bool ended_ = false;
};

}  // namespace tensord::server
