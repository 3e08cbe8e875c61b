#include "tensord/server/rpc/peer/source_call.h"

#include <utility>

#include "tensord/server/rpc/chunk_codec.h"

namespace tensord::server {

SourceCall::SourceCall(Peers* peers, const std::string& address, int connection,
                       grpc::ByteBuffer* incoming)
    : peers_(peers), incoming_(incoming) {
  grpc::GenericStub stub(peers->Connect(address, connection));
  peers->Authorize(&context_);
  call_ = stub.PrepareCall(&context_, kFetchMethod, peers->queue()->get());
}

void* SourceCall::Begin(Event* event) {
  ++outstanding_;
  return event->Begin(shared_from_this());
}

void SourceCall::Start(std::shared_ptr<User> user, const v1::FetchRequest& request, bool sends_more,
                       Clock::time_point deadline) {
  user_ = std::move(user);
  request_ = EncodeMessage(request);
  sends_more_ = sends_more;
  call_->StartCall(Begin(&started_));
  const auto left = deadline - Clock::now();
  deadline_alarm_.Set(peers_->queue()->get(),
                      std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(left),
                      Begin(&deadline_));
}

void SourceCall::OnStarted(bool ok) {
  --outstanding_;
  if (!ok) return Finish();
  if (sends_more_) {
    call_->Write(request_, Begin(&request_sent_));
  } else {
    call_->WriteLast(request_, grpc::WriteOptions(), Begin(&request_sent_));
  }
}

void SourceCall::OnRequestSent(bool ok) {
  --outstanding_;
  return ok ? ReadNext() : Finish();
}

void SourceCall::ReadNext() { call_->Read(incoming_, Begin(&read_)); }

void SourceCall::OnRead(bool ok) {
  --outstanding_;
  return ok ? user_->OnMessageRead() : Finish();
}

void SourceCall::SetAnswered() {
  if (!std::exchange(answered_, true)) deadline_alarm_.Cancel();
}

void SourceCall::Send(const v1::FetchRequest& message) {
  outgoing_.push_back(EncodeMessage(message));
  SendNext();
}

void SourceCall::SendNext() {
  if (finished_ || sending_ || outgoing_.empty()) return;
  sending_ = true;
  call_->Write(outgoing_.front(), Begin(&message_sent_));
  outgoing_.pop_front();
  user_->OnSending();
}

void SourceCall::OnMessageSent(bool ok) {
  --outstanding_;
  sending_ = false;
  if (ok) SendNext();  // otherwise the read fails, too
  ReportEnd();
}

void SourceCall::OnDeadline(bool ok) {
  --outstanding_;
  if (ok && !answered_) Cancel();
  ReportEnd();
}

void SourceCall::Finish() { call_->Finish(&status_, Begin(&finish_)); }

void SourceCall::OnFinished(bool /*ok*/) {
  --outstanding_;
  finished_ = true;
  deadline_alarm_.Cancel();
  ReportEnd();
}

void SourceCall::ReportEnd() {
  if (!ended()) return;
  const std::shared_ptr<User> user = std::move(user_);
  user->OnCallEnded();
}

}  // namespace tensord::server
