// The session's command stream: the thread that sends and the one that receives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <grpcpp/client_context.h>

#include "absl/status/status.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {

// Sends what comes into `queue`, and brings what the server answers into `replies`. When the stream
// ends, for whatever reason, both are closed with it and `on_end` is called, from the receiving
// thread.
class Stream {
 public:
  // `stub`, `queue` and `replies` must outlive this object.
  Stream(v1::TensorService::Stub* stub, const std::string& session, std::string address,
         CommandQueue* queue, ReplyTable* replies, std::function<void()> on_end);
  ~Stream() { Stop(); }

  // Ends the stream at once and waits for both threads. Not thread-safe.
  void Stop();

 private:
  using Call = grpc::ClientReaderWriter<v1::SessionStreamRequest, v1::SessionStreamResponse>;

  void SendLoop(const std::string& session);
  void ReceiveLoop();
  absl::Status EndOfStream(const grpc::Status& status) const;

  const std::string address_;
  CommandQueue* const queue_;
  ReplyTable* const replies_;
  const std::function<void()> on_end_;

  grpc::ClientContext context_;
  std::unique_ptr<Call> call_;
  std::thread sender_;  // joined by the receiver
  std::thread receiver_;
};

}  // namespace tensord::internal
