#include "tensord/client/internal/stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/bulk_codec.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/handover.h"

namespace tensord::internal {
namespace {

constexpr char kMethod[] = "/tensord.v1.TensorService/SessionStream";

// The first pause between attempts to connect, and the longest.
constexpr auto kFirstPause = std::chrono::milliseconds(10);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);

// A message that shares its bytes.
grpc::ByteBuffer ToBuffer(CommandQueue::Message message) {
  auto* owned = new CommandQueue::Message(std::move(message));
  const auto destroy = [](void* held) {
    TakeOver(held);
    delete static_cast<CommandQueue::Message*>(held);
  };
  const grpc::Slice slice(const_cast<char*>((*owned)->data()), (*owned)->size(), destroy, owned);
  HandOver(owned);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

Stream::Stream(grpc::GenericStub* stub, Options options, CommandQueue* queue, ReplyTable* replies,
               Counters* counters, std::function<void()> on_end)
    : options_(std::move(options)),
      stub_(stub),
      queue_(queue),
      replies_(replies),
      counters_(counters),
      spin_(absl::ToChronoNanoseconds(options_.spin)),
      on_end_(std::move(on_end)),
      jitter_(std::random_device()()),
      lost_at_(Clock::now()) {
  Start();
  thread_ = std::thread([this] { Run(); });
}

void Stream::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    if (retry_ != nullptr) {
      retry_->Cancel();
    } else {
      call_->context.TryCancel();
    }
  }
  ResumeBackgroundPolling();
  thread_.join();
  {
    MutexLock lock(&mu_);
    if (give_up_set_) give_up_.Cancel();
  }
  events_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (events_.Next(&tag, &ok)) {
  }
}

void Stream::Start() {
  auto call = std::make_unique<Call>();
  options_.credentials.AddTo(&call->context);
  call->wire = stub_->PrepareCall(&call->context, kMethod, &events_);
  MutexLock lock(&mu_);
  retry_.reset();
  call_ = std::move(call);
  attaching_ = true;
  awaits_answer_ = generation_ > 0;
  call_->wire->StartCall(reinterpret_cast<void*>(Event::kStarted));
  if (stopping_) call_->context.TryCancel();
}

void Stream::Send() {
  // Where another thread pushes after Take() found nothing, and before writing_ is false again,
  // that thread doesn't send: so this one looks once more.
  do {
    if (over_.load(std::memory_order_acquire) || writing_.exchange(true)) return;
    CommandQueue::Message message = over_.load() ? nullptr : queue_->Take();
    if (message != nullptr) {
      call_->wire->Write(ToBuffer(std::move(message)), reinterpret_cast<void*>(Event::kWritten));
      return;
    }
    Release();
  } while (queue_->untaken() > 0 || queue_->owes_receipt());
}

void Stream::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      while (!ended_) {
        const auto left = stand_back_until_ - Clock::now();
        if (polled_) {
          dozing_ = true;
          changed_.Wait(&mu_);
          dozing_ = false;
        } else if (left > left.zero()) {
          changed_.WaitFor(&mu_, left);
        } else {
          break;
        }
      }
      if (ended_) return;
      polled_ = true;
      standing_back_.store(false, std::memory_order_relaxed);
    }
    if (!holding_.load(std::memory_order_relaxed)) SendHeld();
    PollInBackground();
    MutexLock lock(&mu_);
    polled_ = false;
    // Whoever waited has its answer and is about to go on.
    if (waiting_ > 0 && !replies_->AnyAwaited()) StandBackLocked();
  }
}

void Stream::StandBackLocked() {
  stand_back_until_ = Clock::now() + kStandBack;
  standing_back_.store(true, std::memory_order_relaxed);
  holding_.store(false, std::memory_order_relaxed);
}

void Stream::ResumeBackgroundPolling() {
  {
    MutexLock lock(&mu_);
    stand_back_until_ = Clock::time_point();
    standing_back_.store(false, std::memory_order_relaxed);
  }
  // Sends commands that were held back while no thread polled, or while a waiting thread polled.
  if (!writing_.load()) Send();
  changed_.Signal();
}

absl::StatusOr<v1::Elements> Stream::Await(uint64_t reply) {
  if (!writing_.load()) Send();
  {
    MutexLock lock(&mu_);
    ++waiting_;
    while (!polled_ && !ended_ && !replies_->Arrived(reply)) {
      polled_ = true;
      mu_.Unlock();
      holding_.store(false, std::memory_order_relaxed);
      standing_back_.store(false, std::memory_order_relaxed);
      PollForWaiter();
      mu_.Lock();
      polled_ = false;
    }
  }
  absl::StatusOr<v1::Elements> answer = replies_->Await(reply);
  bool wake = false;
  {
    MutexLock lock(&mu_);
    // Where the stream's own thread polls, it is asleep there: it can't take care of what is put
    // off.
    if (--waiting_ == 0 && !polled_) {
      StandBackLocked();
      wake = dozing_;
    } else if (!polled_) {
      stand_back_until_ = Clock::time_point();  // others still wait for theirs
      wake = true;
    }
  }
  if (wake) changed_.Signal();
  return answer;
}

void Stream::PollForWaiter() {
  void* tag = nullptr;
  bool ok = false;
  if (spin_ > spin_.zero()) {
    const auto until = Clock::now() + spin_;
    do {
      const auto next = events_.AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
      if (next == grpc::CompletionQueue::GOT_EVENT) {
        Handle(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok);
        return;
      }
      std::this_thread::yield();  // the server may wait for this core
    } while (Clock::now() < until);
  }
  if (events_.Next(&tag, &ok)) Handle(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok);
}

void Stream::PollInBackground() {
  void* tag = nullptr;
  bool ok = false;
  if (!holding_.load(std::memory_order_relaxed)) {
    if (events_.Next(&tag, &ok)) Handle(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok);
    return;
  }
  const auto left = std::max(held_until_ - Clock::now(), Clock::duration::zero());
  const gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(std::chrono::nanoseconds(left).count(), GPR_TIMESPAN));
  if (events_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
    Handle(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok);
  }
  if (Clock::now() < held_until_) return;
  holding_.store(false, std::memory_order_relaxed);
  SendHeld();
}

void Stream::SendHeld() {
  if (queue_->untaken() == 0 || writing_.load() || over_.load()) return;
  Send();
  // More is likely to come: it goes together.
  held_until_ = Clock::now() + kHold;
  holding_.store(true, std::memory_order_relaxed);
}

void Stream::Handle(Event event, bool ok) {
  switch (event) {
    case Event::kStarted:
      // Where the call couldn't be started the read says so.
      call_->wire->Read(&call_->response, reinterpret_cast<void*>(Event::kRead));
      call_->wire->Write(ToBuffer(std::make_shared<std::string>(queue_->Attach(options_.session))),
                         reinterpret_cast<void*>(Event::kAttached));
      return;
    case Event::kAttached:
      attaching_ = false;
      if (ok && !reading_over_.load()) {
        MaybeConnected();
        return;
      }
      over_.store(true, std::memory_order_release);
      Release();
      return;
    case Event::kWritten:
      if (!ok) over_.store(true, std::memory_order_release);
      Release();
      if (ok && AnyWaits()) {
        Send();
      } else if (ok && !holding_.load(std::memory_order_relaxed)) {
        SendHeld();
      }
      return;
    case Event::kRead:
      if (ok) {
        Received();
        call_->wire->Read(&call_->response, reinterpret_cast<void*>(Event::kRead));
        return;
      }
      over_.store(true, std::memory_order_release);
      reading_over_.store(true);
      // Nothing is being written, but nothing may be yet, either.
      if (!attaching_ && awaits_answer_) writing_.store(false);
      FinishIfOver();
      return;
    case Event::kSaidGoodbye:
      Release();
      return;
    case Event::kFinished:
      return Lost();
    case Event::kRetry:
      ok ? Start() : End(NotReconnected());
      return;
    case Event::kGiveUp:
      return GiveUp();
  }
}

void Stream::MaybeConnected() {
  if (attaching_ || awaits_answer_) return;
  attempts_ = 0;
  last_error_ = absl::OkStatus();
  {
    MutexLock lock(&mu_);
    if (generation_++ > 0) counters_->reconnects.fetch_add(1, std::memory_order_relaxed);
    connected_now_ = true;
    if (give_up_set_) give_up_.Cancel();
  }
  connected_.SignalAll();
  Release();
  Send();
}

bool Stream::AnyWaits() {
  MutexLock lock(&mu_);
  return waiting_ > 0;
}

void Stream::Release() {
  writing_.store(false);
  if (draining_.load()) SayGoodbye();
  FinishIfOver();
}

void Stream::SayGoodbye() {
  if (said_goodbye_.load() || reading_over_.load() || writing_.exchange(true)) return;
  if (said_goodbye_.exchange(true)) {
    writing_.store(false);
    return;
  }
  call_->wire->WritesDone(reinterpret_cast<void*>(Event::kSaidGoodbye));
}

void Stream::FinishIfOver() {
  // A write under way ends, too, and comes back here. Taking writing_ for good keeps others out.
  while (reading_over_.load() && !writing_.exchange(true)) {
    if (reading_over_.load()) {
      call_->wire->Finish(&call_->status, reinterpret_cast<void*>(Event::kFinished));
      return;
    }
    writing_.store(false);  // that was the connection before this one
  }
}

void Stream::Received() {
  const auto bytes = static_cast<int64_t>(call_->response.Length());
  v1::SessionStreamResponse response;
  if (!DecodeMessage(&call_->response, &response)) {
    call_->context.TryCancel();
    return;
  }
  if (response.draining()) {
    over_.store(true, std::memory_order_release);
    draining_.store(true);
  }
  queue_->Acknowledge(response.commands_received(), response.answers(), bytes);
  replies_->Deliver(&response);
  if (std::exchange(awaits_answer_, false)) {
    MaybeConnected();
  } else if (!attaching_ && queue_->owes_receipt() && !writing_.load()) {
    Send();
  }
  if (draining_.load()) SayGoodbye();
}

void Stream::Lost() {
  // GiveUp() cancels an attempt under way: the error before that says more.
  if (call_->status.error_code() != grpc::StatusCode::CANCELLED || last_error_.ok()) {
    last_error_ = Verdict(call_->status);
  }
  const auto now = Clock::now();
  const bool may_retry = absl::IsUnavailable(last_error_) && !draining_.load();
  bool retry = may_retry;
  {
    MutexLock lock(&mu_);
    if (connected_now_) lost_at_ = now;
    connected_now_ = false;
    const auto left = lost_at_ + absl::ToChronoNanoseconds(options_.reconnect_timeout) - now;
    retry = retry && !stopping_ && left > left.zero();
    if (retry) {
      SetGiveUpLocked();
      const auto pause = std::min<std::chrono::nanoseconds>(
          kFirstPause * (1 << std::min(attempts_, 10)), kLongestPause);
      ++attempts_;
      // Clients that have lost the same server don't come back all at once.
      const auto jittered = pause / 2 + pause / 2048 * static_cast<int>(jitter_() % 1024);
      over_.store(false);
      reading_over_.store(false);
      retry_ = std::make_unique<grpc::Alarm>();
      retry_->Set(&events_, std::chrono::system_clock::now() + jittered,
                  reinterpret_cast<void*>(Event::kRetry));
    }
  }
  if (!retry) End(may_retry ? NotReconnected() : last_error_);
}

absl::Status Stream::NotReconnected() const {
  const absl::string_view advice =
      "; the session's tensors can't be used any more: make a new Client with Client::Connect";
  if (options_.reconnect_timeout <= absl::ZeroDuration()) {
    return absl::UnavailableError(
        absl::StrCat(last_error_.message(),
                     "; ConnectOptions::reconnect_timeout allows no reconnection", advice));
  }
  return absl::UnavailableError(absl::StrCat(last_error_.message(), "; tried to reconnect for ",
                                             absl::FormatDuration(options_.reconnect_timeout),
                                             " (ConnectOptions::reconnect_timeout)", advice));
}

void Stream::SetGiveUpLocked() {
  if (give_up_set_) return;
  give_up_set_ = true;
  const auto left = lost_at_ + absl::ToChronoNanoseconds(options_.reconnect_timeout) - Clock::now();
  give_up_.Set(&events_, std::chrono::system_clock::now() + left,
               reinterpret_cast<void*>(Event::kGiveUp));
}

void Stream::GiveUp() {
  MutexLock lock(&mu_);
  give_up_set_ = false;
  if (connected_now_ || ended_ || stopping_) return;
  // It may have been cancelled for a connection that has been lost since.
  const auto over_at = lost_at_ + absl::ToChronoNanoseconds(options_.reconnect_timeout);
  if (Clock::now() < over_at) return SetGiveUpLocked();
  // Both come back as what Lost() or End() see.
  if (retry_ != nullptr) {
    retry_->Cancel();
  } else {
    call_->context.TryCancel();
  }
}

void Stream::End(absl::Status reason) {
  queue_->Close(reason);
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  replies_->Fail(reason);
  on_end_();
  changed_.SignalAll();
  connected_.SignalAll();
}

bool Stream::AwaitConnected() {
  MutexLock lock(&mu_);
  while (!ended_ && !connected_now_) connected_.Wait(&mu_);
  return !ended_;
}

bool Stream::connected() const {
  MutexLock lock(&mu_);
  return !ended_ && (connected_now_ || (generation_ == 0 && retry_ == nullptr));
}

absl::Status Stream::Verdict(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::FailedPreconditionError(
          absl::StrCat("tensord server at ", options_.address, " has ended the session's stream"));
    case grpc::StatusCode::NOT_FOUND:
      return absl::DataLossError(
          absl::StrCat("tensord server at ", options_.address,
                       " no longer has the session, and its tensors are gone: the connection was "
                       "lost for longer than the session's lease; connect anew"));
    // What a broken connection may look like, depending on where it broke.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
      return absl::UnavailableError(absl::StrCat("lost the connection to the tensord server at ",
                                                 options_.address, ": ", status.error_message()));
    default:
      return StatusFromGrpc(status, options_.address);
  }
}

}  // namespace tensord::internal
