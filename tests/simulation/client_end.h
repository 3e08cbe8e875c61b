// The client's end of a session stream. It uses the library's command queue and reply table. It is
// a test double for internal/stream.h, with Links in place of gRPC.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/tests/simulation/clock.h"
#include "tensord/tests/simulation/link.h"
#include "tensord/tests/simulation/model.h"
#include "tensord/tests/simulation/trace.h"

namespace tensord::simulation {

// A client with one session. It reconnects until the stream ends for good.
class ClientEnd {
 public:
  struct Options {
    int number = 0;
    int principal = 0;
    std::string session;
    std::chrono::seconds lease{0};  // also how long it tries to reconnect
    int64_t max_pending_commands = 0;
    int64_t max_pending_bytes = 0;
    // After a reconnect, sends unacknowledged commands at once, as the protocol permits. The
    // library waits for the server's acknowledgement first.
    bool eager = false;
  };
  ClientEnd(Options options, const ExpectedErrors& expected_errors, Trace* trace);

  const Options& options() const { return options_; }
  std::string name() const { return absl::StrCat("client ", options_.number); }
  internal::CommandQueue& queue() { return queue_; }
  internal::ReplyTable& replies() { return replies_; }
  Model& model() { return model_; }

  // Called by the transport.
  const std::shared_ptr<Link>& link() const { return link_; }  // null without a connection
  bool MayConnect() const { return !over_ && link_ == nullptr && Clock::Now() >= retry_at_; }
  void Connect(std::shared_ptr<Link> link);
  // Sends the next message. Returns false if there is none, or if it can't be sent yet.
  bool Send();
  void OnMessage(const std::string& bytes);
  // Handles the end of the connection. `broken` says that the network failed.
  void OnEnd(const absl::Status& status, bool broken);
  // Ends the stream if the client has tried to reconnect for the length of a lease.
  void EndIfLeaseExpired();
  // Works as the library's Close(): sends no more commands.
  void Close();
  // Returns whether the stream has ended for good. status() is then the reason.
  bool over() const { return over_; }
  bool closed() const { return closed_; }
  absl::Status status() const { return queue_.status(); }
  bool lease_expired() const { return lease_expired_; }  // EndIfLeaseExpired() ended the stream
  bool draining() const { return draining_; }
  uint64_t received() const { return received_; }
  Clock::Time retry_at() const { return retry_at_; }

  // Called by the script. An answer that a read or a barrier waits for.
  struct PendingAnswer {
    ValueRef value;  // null: a barrier
    uint64_t command;
  };
  void AddPending(uint64_t id, PendingAnswer pending) { pending_[id] = std::move(pending); }
  const std::map<uint64_t, PendingAnswer>& pending() const { return pending_; }
  // Sets a function that is called when a barrier has been answered, with its command's number.
  void set_on_barrier(std::function<void(uint64_t)> check) { on_barrier_ = std::move(check); }

 private:
  void CheckAnswers(const v1::SessionStreamResponse& response);
  void TakeAnswers();
  void End(const absl::Status& reason);
  absl::Status ClassifyCloseStatus(const absl::Status& status) const;

  const Options options_;
  Trace* const trace_;
  internal::Counters counters_;
  internal::CommandQueue queue_;
  internal::ReplyTable replies_;
  Model model_;
  std::function<void(uint64_t)> on_barrier_;

  std::shared_ptr<Link> link_;
  bool ever_connected_ = false;
  bool awaits_answer_ = false;  // waits for the response to the message that attaches
  bool draining_ = false;
  bool over_ = false;
  bool closed_ = false;
  bool lease_expired_ = false;
  int attempts_ = 0;
  bool connected_ = false;  // the stream is attached to the session
  Clock::Time lost_at_ = Clock::Now();
  Clock::Time retry_at_ = Clock::Now();
  uint64_t received_ = 0;
  uint64_t answers_ = 0;
  std::map<uint64_t, PendingAnswer> pending_;
};

}  // namespace tensord::simulation
