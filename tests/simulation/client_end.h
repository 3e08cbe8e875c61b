// The client's end: its command queue and reply table as they are, and what internal/stream.h does
// with them on gRPC, on Links.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/tests/simulation/clock.h"
#include "tensord/tests/simulation/journal.h"
#include "tensord/tests/simulation/link.h"
#include "tensord/tests/simulation/model.h"

namespace tensord::simulation {

// A client and its session, from the session's opening until the stream ends for good.
class ClientEnd {
 public:
  struct Options {
    int number = 0;
    int principal = 0;
    std::string session;
    std::chrono::seconds lease{0};  // also how long it tries to come back
    int64_t max_pending_commands = 0;
    int64_t max_pending_bytes = 0;
    // Sends again at once what isn't acknowledged, as the protocol allows; the library waits until
    // it hears how much has come.
    bool eager = false;
  };
  ClientEnd(Options options, const Troubles& troubles, Journal* journal);

  const Options& options() const { return options_; }
  std::string name() const { return absl::StrCat("client ", options_.number); }
  internal::CommandQueue& queue() { return queue_; }
  internal::ReplyTable& replies() { return replies_; }
  Model& model() { return model_; }

  // The transport's side.
  const std::shared_ptr<Link>& link() const { return link_; }  // null where there is none
  bool MayConnect() const { return !over_ && link_ == nullptr && Clock::Now() >= retry_at_; }
  void Connect(std::shared_ptr<Link> link);
  // Sends what there is to send; false where there is nothing, or it may not be sent now.
  bool Send();
  void OnMessage(const std::string& bytes);
  // The connection has ended; `broken`: by itself.
  void OnEnd(const absl::Status& status, bool broken);
  // Ends the stream where it has tried to come back for long enough.
  void MaybeGiveUp();
  // As the library's Close: no more is sent.
  void Close();
  // The stream has ended, and why.
  bool over() const { return over_; }
  bool closed() const { return closed_; }
  absl::Status status() const { return queue_.status(); }
  bool gave_up() const { return gave_up_; }  // after trying to come back for long enough
  bool draining() const { return draining_; }
  uint64_t received() const { return received_; }
  Clock::Time retry_at() const { return retry_at_; }

  // The program's side: what has been asked and not answered yet.
  struct Question {
    ValueRef value;  // null: a barrier
    uint64_t command;
  };
  void Ask(uint64_t id, Question question) { questions_[id] = std::move(question); }
  const std::map<uint64_t, Question>& questions() const { return questions_; }
  // What is to be looked at when a barrier's answer has come, with the command's number.
  void set_on_barrier(std::function<void(uint64_t)> check) { on_barrier_ = std::move(check); }

 private:
  void CheckAnswers(const v1::SessionStreamResponse& response);
  void TakeAnswers();
  void End(const absl::Status& reason);
  absl::Status Verdict(const absl::Status& status) const;

  const Options options_;
  Journal* const journal_;
  internal::Counters counters_;
  internal::CommandQueue queue_;
  internal::ReplyTable replies_;
  Model model_;
  std::function<void(uint64_t)> on_barrier_;

  std::shared_ptr<Link> link_;
  bool ever_connected_ = false;
  bool awaits_answer_ = false;  // to the message that attaches
  bool draining_ = false;
  bool over_ = false;
  bool closed_ = false;
  bool gave_up_ = false;
  int attempts_ = 0;
  bool connected_ = false;  // the session's stream stands
  Clock::Time lost_at_ = Clock::Now();
  Clock::Time retry_at_ = Clock::Now();
  uint64_t received_ = 0;
  uint64_t answers_ = 0;
  std::map<uint64_t, Question> questions_;
};

}  // namespace tensord::simulation
