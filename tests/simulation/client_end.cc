#include "tensord/tests/simulation/client_end.h"

#include <algorithm>

namespace tensord::simulation {
namespace {

constexpr std::chrono::milliseconds kFirstPause(10);
constexpr std::chrono::milliseconds kMaxPause(1000);

}  // namespace

ClientEnd::ClientEnd(Options options, const ExpectedErrors& expected_errors, Trace* trace)
    : options_(std::move(options)),
      trace_(trace),
      queue_(options_.max_pending_commands, options_.max_pending_bytes, &counters_),
      model_(expected_errors) {}

void ClientEnd::Connect(std::shared_ptr<Link> link) {
  link_ = std::move(link);
  awaits_answer_ = ever_connected_ && !options_.eager;
  link_->Send(&link_->to_server, queue_.Attach(options_.session));
  connected_ = connected_ || !ever_connected_;
  ever_connected_ = true;
}

bool ClientEnd::Send() {
  if (link_ == nullptr || over_ || awaits_answer_ || !link_->MayWrite(link_->to_server)) {
    return false;
  }
  const bool announced = queue_.num_unsent_commands() > 0 || queue_.has_answers_to_acknowledge();
  const internal::CommandQueue::Message message = queue_.Take();
  if (message == nullptr) return false;
  if (!announced) trace_->Fail(name(), ": the queue has a message that it hasn't announced");
  link_->Send(&link_->to_server, *message);
  return true;
}

void ClientEnd::OnMessage(const std::string& bytes) {
  v1::SessionStreamResponse response;
  if (!response.ParseFromString(bytes)) return trace_->Fail(name(), ": invalid message");
  CheckAnswers(response);
  draining_ = draining_ || response.draining();
  queue_.Acknowledge(response.commands_received(), response.answers(),
                     static_cast<int64_t>(bytes.size()));
  replies_.Deliver(&response);
  awaits_answer_ = false;
  connected_ = true;
  attempts_ = 0;
  TakeAnswers();
}

void ClientEnd::CheckAnswers(const v1::SessionStreamResponse& response) {
  const uint64_t count =
      response.errors_size() + response.elements_size() + response.barriers_size();
  if (response.answers() != answers_ + count) {
    trace_->Fail(name(), ": the server counts ", response.answers(), " answers, but sent ",
                 answers_, " and ", count, " more");
  }
  answers_ = response.answers();
  if (response.commands_received() < received_ || response.commands_received() > queue_.pushed()) {
    trace_->Fail(name(), ": the server acknowledges ", response.commands_received(),
                 " commands, before ", received_, ", of ", queue_.pushed());
  }
  received_ = response.commands_received();
  for (const v1::HandleError& error : response.errors()) {
    trace_->Note("    error of tensor ", error.handle(), ": ", error.message());
    if (const std::string wrong = model_.OnHandleError(error); !wrong.empty()) {
      trace_->Fail(name(), ": ", wrong);
    }
  }
  const auto expected = [&](uint64_t id, bool barrier) {
    const auto asked = pending_.find(id);
    if (asked != pending_.end() && (asked->second.value == nullptr) == barrier) return;
    trace_->Fail(name(), ": pending answer ", id, " was answered before, or never expected");
  };
  for (const v1::Elements& elements : response.elements()) expected(elements.request_id(), false);
  for (const v1::BarrierDone& done : response.barriers()) expected(done.barrier_id(), true);
}

void ClientEnd::TakeAnswers() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto& [id, pending] = *it;
    if (!replies_.Arrived(id)) {
      ++it;
      continue;
    }
    const absl::StatusOr<v1::Elements> answer = replies_.Await(id);
    if (pending.value == nullptr) {
      trace_->Note("    barrier ", id, " is done");
      on_barrier_(pending.command);
    } else {
      trace_->Note("    tensor ", pending.value->handle,
                   " is read: ", absl::StatusCodeToString(answer.status().code()));
      if (const std::string wrong = model_.Read(*pending.value, answer); !wrong.empty()) {
        trace_->Fail(name(), ": ", wrong);
      }
    }
    it = pending_.erase(it);
  }
}

void ClientEnd::OnEnd(const absl::Status& status, bool broken) {
  if (over_) return;
  link_ = nullptr;
  if (draining_ && !broken) {
    for (const auto& [id, pending] : pending_) {
      if (pending.command > received_) continue;
      trace_->Fail(name(), ": the server shut down and left pending answer ", id, " unanswered");
    }
  }
  const absl::Status reason = ClassifyCloseStatus(status);
  if (std::exchange(connected_, false)) lost_at_ = Clock::Now();
  if (!absl::IsUnavailable(reason) || draining_) return End(reason);
  const auto pause = std::min(kFirstPause * (1 << std::min(attempts_++, 10)), kMaxPause);
  retry_at_ = Clock::Now() + pause;
  EndIfLeaseExpired();
}

void ClientEnd::EndIfLeaseExpired() {
  if (over_ || connected_ || Clock::Now() < lost_at_ + options_.lease) return;
  if (link_ != nullptr) link_->broken = true;
  lease_expired_ = true;
  End(absl::UnavailableError("the server couldn't be reached in time"));
}

void ClientEnd::Close() {
  closed_ = true;
  End(absl::FailedPreconditionError("the connection has been closed"));
}

void ClientEnd::End(const absl::Status& reason) {
  if (over_) return;
  over_ = true;
  link_ = nullptr;
  trace_->Note("  ", name(), " is over: ", absl::StatusCodeToString(reason.code()));
  queue_.Close(reason);
  replies_.Fail(reason);
  for (const auto& [id, pending] : pending_) {
    const absl::StatusOr<v1::Elements> answer = replies_.Await(id);
    if (answer.status() != reason) {
      trace_->Fail(name(), ": the stream has ended, but pending answer ", id, " is ",
                   answer.status().ToString());
    }
  }
  pending_.clear();
}

// Works as ClassifyCloseStatus() in client/internal/stream_connection.h.
absl::Status ClientEnd::ClassifyCloseStatus(const absl::Status& status) const {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return absl::FailedPreconditionError("the stream was ended");
    case absl::StatusCode::kNotFound:
      return absl::DataLossError("the lease has run out");
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
      return absl::UnavailableError("the connection was lost");
    default:
      return status;
  }
}

}  // namespace tensord::simulation
