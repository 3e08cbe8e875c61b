#include "tensord/client/internal/stream.h"

#include <utility>

namespace tensord::internal {

Stream::Stream(grpc::GenericStub* stub, Options options, CommandQueue* queue, ReplyTable* replies,
               Counters* counters, std::function<void()> on_end)
    : session_(std::move(options.session)),
      queue_(queue),
      replies_(replies),
      on_end_(std::move(on_end)),
      events_(absl::ToChronoNanoseconds(options.spin)),
      connection_(
          stub,
          {std::move(options.address), std::move(options.credentials), options.reconnect_timeout},
          &events_, counters),
      election_(replies, &pacing_) {
  connection_.StartCall();
  thread_ = std::thread([this] { RunInBackground(); });
}

void Stream::Stop() {
  if (!thread_.joinable()) return;
  connection_.Stop();
  ResumeBackgroundPolling();
  thread_.join();
  connection_.CancelTimeout();
  events_.ShutDown();
}

void Stream::Send() {
  // If another thread pushes a command after Take returned null and before this thread released the
  // right to send, that thread doesn't send the command. So this thread checks again.
  do {
    if (!send_state_.TryAcquire()) return;
    CommandQueue::Message message = send_state_.sends_closed() ? nullptr : queue_->Take();
    if (message != nullptr) {
      connection_.call().Write(std::move(message));
      return;
    }
    ReleaseSend();
  } while (queue_->num_unsent_commands() > 0 || queue_->has_answers_to_acknowledge());
}

void Stream::SendQueued() {
  if (queue_->num_unsent_commands() > 0 && !send_state_.held()) Send();
}

void Stream::SendAndCollect() {
  if (queue_->num_unsent_commands() == 0 || send_state_.held() || send_state_.sends_closed())
    return;
  Send();
  pacing_.Begin();
}

void Stream::ReleaseSend() {
  send_state_.Release();
  if (send_state_.draining()) HalfClose();
  FinishIfReadsClosed();
}

void Stream::HalfClose() {
  if (send_state_.TryAcquireForHalfClose()) connection_.call().HalfClose();
}

void Stream::FinishIfReadsClosed() {
  // If a write is under way, its end calls this function again.
  if (send_state_.TryAcquireToFinish()) connection_.call().Finish();
}

void Stream::ResumeBackgroundPolling() {
  election_.Resume();
  // Sends commands that were held back while no thread polled, or while a waiting thread polled.
  if (!send_state_.held()) Send();
  election_.WakeBackground();
}

absl::StatusOr<v1::Elements> Stream::Await(uint64_t reply, ReplyTable::Clock::time_point* arrival) {
  election_.PollUntilArrived(reply, [this] { PollForWaiter(); });
  // If another thread polls, it may be collecting commands.
  SendQueued();
  absl::StatusOr<v1::Elements> answer = replies_->Await(reply, arrival);
  election_.FinishWait();
  return answer;
}

void Stream::RunInBackground() {
  while (election_.AwaitElection()) {
    if (!pacing_.collecting()) SendAndCollect();
    PollInBackground();
    election_.Yield();
  }
}

void Stream::PollForWaiter() {
  SendQueued();
  if (const auto occurrence = events_.SpinForNext()) Handle(*occurrence);
}

void Stream::PollInBackground() {
  if (!pacing_.collecting()) {
    if (const auto occurrence = events_.Next()) Handle(*occurrence);
    return;
  }
  if (const auto occurrence = events_.NextUntil(pacing_.deadline())) Handle(*occurrence);
  if (SendPacing::Clock::now() < pacing_.deadline()) return;
  pacing_.End();
  SendAndCollect();
}

void Stream::Handle(StreamEvents::Occurrence occurrence) {
  const bool ok = occurrence.ok;
  switch (occurrence.event) {
    case StreamEvent::kCallStarted:
      connection_.call().Read();
      connection_.call().Attach(queue_->Attach(session_));
      return;
    case StreamEvent::kAttachWritten:
      return OnAttachWritten(ok);
    case StreamEvent::kMessageWritten:
      return OnMessageWritten(ok);
    case StreamEvent::kMessageRead:
      return OnMessageRead(ok);
    case StreamEvent::kHalfClosed:
      return ReleaseSend();
    case StreamEvent::kCallFinished:
      return OnCallFinished();
    case StreamEvent::kRetryDue:
      ok ? connection_.StartCall() : End(connection_.NotReconnected());
      return;
    case StreamEvent::kReconnectTimedOut:
      return connection_.HandleReconnectTimeout();
  }
}

void Stream::OnAttachWritten(bool ok) {
  connection_.call().SetAttachWritten();
  if (ok && !send_state_.reads_closed()) return ContinueIfAttached();
  send_state_.CloseSends();
  attaching_ = false;
  ReleaseSend();
}

void Stream::OnMessageWritten(bool ok) {
  if (!ok) send_state_.CloseSends();
  ReleaseSend();
  if (!ok) return;
  if (election_.AnyWaiting()) {
    Send();
  } else if (!pacing_.collecting()) {
    SendAndCollect();
  }
}

void Stream::OnMessageRead(bool ok) {
  if (ok) {
    DeliverResponse();
    connection_.call().Read();
    return;
  }
  send_state_.CloseReads();
  // Between the end of the write that attaches and its answer, the right to send is held although
  // no write is under way: releases it.
  if (connection_.call().attach_written() && std::exchange(attaching_, false)) {
    send_state_.Release();
  }
  FinishIfReadsClosed();
}

void Stream::OnCallFinished() {
  const absl::Status ended = connection_.RetryOrFail(/*may_retry=*/!send_state_.draining());
  if (!ended.ok()) return End(ended);
  attaching_ = true;
  send_state_.Reopen();
}

void Stream::DeliverResponse() {
  StreamCall& call = connection_.call();
  v1::SessionStreamResponse response;
  int64_t bytes = 0;
  if (!call.TakeResponse(&response, &bytes)) return call.Cancel();
  if (response.draining()) send_state_.SetDraining();
  queue_->Acknowledge(response.commands_received(), response.answers(), bytes);
  replies_->Deliver(&response);
  if (call.SetAnswered()) {
    ContinueIfAttached();
  } else if (call.attach_written() && queue_->has_answers_to_acknowledge() && !send_state_.held()) {
    Send();
  }
  if (send_state_.draining()) HalfClose();
}

void Stream::ContinueIfAttached() {
  if (!connection_.call().attached()) return;
  connection_.SetConnected();
  attaching_ = false;
  ReleaseSend();
  Send();
}

void Stream::End(absl::Status reason) {
  queue_->Close(reason);
  connection_.End();
  election_.End();
  replies_->Fail(std::move(reason));
  on_end_();
}

}  // namespace tensord::internal
