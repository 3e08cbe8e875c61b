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

// A message that owns its bytes.
grpc::ByteBuffer ToBuffer(std::string message) {
  auto* owned = new std::string(std::move(message));
  const auto destroy = [](void* string) {
    TakeOver(string);
    delete static_cast<std::string*>(string);
  };
  const grpc::Slice slice(owned->data(), owned->size(), destroy, owned);
  HandOver(owned);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

Stream::Stream(grpc::GenericStub* stub, std::string address, const Credentials& credentials,
               CommandQueue* queue, ReplyTable* replies, absl::Duration spin,
               std::function<void()> on_end)
    : address_(std::move(address)),
      queue_(queue),
      replies_(replies),
      spin_(absl::ToChronoNanoseconds(spin)),
      on_end_(std::move(on_end)) {
  credentials.AddTo(&context_);
  call_ = stub->PrepareCall(&context_, kMethod, &events_);
  call_->StartCall(reinterpret_cast<void*>(Event::kStarted));
  thread_ = std::thread([this] { Run(); });
}

void Stream::Stop() {
  if (!thread_.joinable()) return;
  context_.TryCancel();
  Help();
  thread_.join();
  events_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (events_.Next(&tag, &ok)) {
  }
}

void Stream::Send() {
  std::string message;
  // Where another thread pushes after Take() found nothing, and before writing_ is false again,
  // that thread doesn't send: so this one looks once more.
  do {
    if (over_.load(std::memory_order_acquire) || writing_.exchange(true)) return;
    if (queue_->Take(&message)) {
      call_->Write(ToBuffer(std::move(message)), reinterpret_cast<void*>(Event::kWritten));
      return;
    }
    writing_.store(false);
    FinishIfOver();
  } while (queue_->untaken() > 0);
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

void Stream::Help() {
  {
    MutexLock lock(&mu_);
    stand_back_until_ = Clock::time_point();
    standing_back_.store(false, std::memory_order_relaxed);
  }
  // What was put off while nobody polled, or behind a thread that polls for itself, goes now.
  if (!writing_.load()) Send();
  changed_.Signal();
}

absl::StatusOr<v1::Fetched> Stream::Await(uint64_t reply) {
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
  absl::StatusOr<v1::Fetched> answer = replies_->Await(reply);
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
  if (queue_->untaken() == 0 || writing_.load()) return;
  Send();
  // More is likely to come: it goes together.
  held_until_ = Clock::now() + kHold;
  holding_.store(true, std::memory_order_relaxed);
}

void Stream::Handle(Event event, bool ok) {
  switch (event) {
    case Event::kStarted:
      // Where the call couldn't be started the read says so.
      call_->Read(&response_, reinterpret_cast<void*>(Event::kRead));
      writing_.store(false);
      Send();
      return;
    case Event::kWritten:
      if (!ok) over_.store(true, std::memory_order_release);
      writing_.store(false);
      if (ok && AnyWaits()) {
        Send();
      } else if (ok && !holding_.load(std::memory_order_relaxed)) {
        SendHeld();
      }
      FinishIfOver();
      return;
    case Event::kRead:
      if (ok) {
        Received();
        call_->Read(&response_, reinterpret_cast<void*>(Event::kRead));
        return;
      }
      over_.store(true, std::memory_order_release);
      reading_over_.store(true);
      FinishIfOver();
      return;
    case Event::kFinished:
      End();
      return;
  }
}

bool Stream::AnyWaits() {
  MutexLock lock(&mu_);
  return waiting_ > 0;
}

void Stream::FinishIfOver() {
  // A write under way ends, too, and comes back here. Taking writing_ for good keeps others out.
  if (!reading_over_.load() || writing_.exchange(true)) return;
  call_->Finish(&status_, reinterpret_cast<void*>(Event::kFinished));
}

void Stream::Received() {
  v1::SessionStreamResponse response;
  if (!DecodeMessage(&response_, &response)) {
    context_.TryCancel();
    return;
  }
  queue_->Acknowledge(response.commands_received());
  replies_->Deliver(&response);
}

void Stream::End() {
  const absl::Status reason = EndOfStream(status_);
  queue_->Close(reason);
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  replies_->Fail(reason);
  on_end_();
  changed_.Signal();
}

absl::Status Stream::EndOfStream(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::UnavailableError(
          absl::StrCat("tensord server at ", address_, " has ended the session's stream"));
    // What a broken connection may look like, depending on where it broke.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
      return absl::UnavailableError(absl::StrCat("lost the connection to the tensord server at ",
                                                 address_, ": ", status.error_message()));
    default:
      return StatusFromGrpc(status, address_);
  }
}

}  // namespace tensord::internal
