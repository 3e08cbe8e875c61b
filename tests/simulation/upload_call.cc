#include "tensord/tests/simulation/upload_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensord/client/internal/wire.h"

namespace tensord::simulation {

using server::TensorRef;

void WriteEnd::Interrupt() {
  upload.Interrupt();
  Release();
}

void WriteEnd::Release() {
  if (session != nullptr) leases->End(std::exchange(session, nullptr));
}

UploadCall::UploadCall(server::ServiceContext* context, server::PrincipalRef principal,
                       ClientEnd* client, ValueRef value, LeaseBook* leases, RandomSource* random,
                       Trace* trace)
    : context_(context),
      principal_(std::move(principal)),
      client_(client),
      value_(std::move(value)),
      bytes_(Encode(value_->spec, value_->elements)),
      leases_(leases),
      random_(random),
      trace_(trace) {
  spec_.set_session(client->options().session);
  spec_.set_handle(value_->handle);
  internal::SpecToProto(value_->spec, spec_.mutable_spec());
  spec_.set_device(absl::StrCat("cpu:", value_->device));
  spec_.set_after_command(value_->command);
  spec_.set_resumable(true);
  Write();
}

void UploadCall::Write() {
  auto end = std::make_shared<WriteEnd>(context_, leases_);
  const absl::Status waiting = end->upload.Await(
      principal_, spec_, [weak = std::weak_ptr<WriteEnd>(end)](const absl::Status& received) {
        const std::shared_ptr<WriteEnd> waiting = weak.lock();
        if (waiting == nullptr) return;
        waiting->received = true;
        waiting->outcome = received;
      });
  if (!waiting.ok()) return Finish(waiting);
  const auto use = context_->sessions->Use(principal_, spec_.session());
  end->session = use->ref().get();
  leases_->Begin(end->session);
  writing_ = end;
  ends_.push_back(std::move(end));
}

bool UploadCall::Step() {
  if (!done_ && client_->over()) Finish(client_->status());
  if (AbortOneWrite()) return true;
  if (done_) {
    answer_ = nullptr;
    return false;
  }
  if (must_get_upload_) {
    CallGetUpload();
    return true;
  }
  if (answer_ != nullptr) {
    if (!answer_->ready) return false;
    TakeAnswer();
    return true;
  }
  if (writing_ == nullptr || !writing_->received) return false;
  StepWrite(*writing_);
  return true;
}

// Aborts one end whose client has disconnected, or that must stop.
bool UploadCall::AbortOneWrite() {
  for (auto it = ends_.begin(); it != ends_.end(); ++it) {
    if (*it == writing_ && !(*it)->stop) continue;
    const std::shared_ptr<WriteEnd> end = *it;
    ends_.erase(it);
    if (end == writing_) Break();
    end->Interrupt();
    return true;
  }
  return false;
}

void UploadCall::StepWrite(WriteEnd& end) {
  absl::Status status = end.outcome;
  if (status.ok() && !end.upload.begun()) {
    status = end.upload.Begin(spec_, [&end] { end.stop = true; });
    if (status.ok()) return;
  }
  const auto left = static_cast<int64_t>(bytes_.size()) - sent_;
  if (status.ok() && left > 0) {
    const int64_t chunk = 1 + random_->Below(left);
    status = end.upload.Check(sent_, chunk);
    if (status.ok()) {
      std::memcpy(end.upload.destination(), bytes_.data() + sent_, chunk);
      end.upload.Advance(chunk);
      sent_ += chunk;
      return;
    }
  }
  if (status.ok()) {
    status = end.upload.Finish().status();
  } else {
    end.upload.Fail(status);
  }
  end.Release();
  ends_.erase(std::find(ends_.begin(), ends_.end(), writing_));
  if (random_->OneIn(4)) return Break();  // the result is lost on the way
  Finish(status);
}

void UploadCall::Break() {
  if (done_ || writing_ == nullptr) return;
  trace_->Note("  the upload of ", value_->handle, " breaks after ", sent_);
  writing_ = nullptr;
  must_get_upload_ = true;
}

void UploadCall::CallGetUpload() {
  must_get_upload_ = false;
  absl::StatusOr<server::SessionUse> use =
      context_->sessions->Use(principal_, client_->options().session);
  if (!use.ok()) return Finish(use.status());
  const server::SessionRef session = use->ref();
  answer_ = std::shared_ptr<Answer>(new Answer, [leases = leases_](Answer* answer) {
    if (answer->session != nullptr) leases->End(answer->session);
    delete answer;
  });
  answer_->use = *std::move(use);
  answer_->session = session.get();
  leases_->Begin(session.get());
  const auto finish = [](Answer& answer, absl::Status status) {
    answer.status = std::move(status);
    answer.ready = true;
  };
  const absl::Status waiting = session->WhenReceived(
      value_->command, [weak = std::weak_ptr<Answer>(answer_), session, handle = value_->handle,
                        finish](const absl::Status& received) {
        const std::shared_ptr<Answer> asking = weak.lock();
        if (asking == nullptr) return;
        if (!received.ok()) return finish(*asking, received);
        const absl::StatusOr<TensorRef> found = session->Find(handle);
        if (!found.ok()) return finish(*asking, found.status());
        server::UploadState* const upload = (*found)->upload();
        const auto respond = [weak, tensor = *found, upload, finish] {
          const std::shared_ptr<Answer> asking = weak.lock();
          if (asking == nullptr) return;
          asking->complete = tensor->done();
          const bool has_parked_bytes = upload != nullptr && !tensor->done();
          asking->received_bytes = has_parked_bytes ? upload->parked_bytes() : 0;
          finish(*asking, tensor->done() ? tensor->status() : absl::OkStatus());
        };
        return upload == nullptr ? respond() : upload->Abort(respond);
      });
  if (!waiting.ok()) finish(*answer_, waiting);
}

void UploadCall::TakeAnswer() {
  const std::shared_ptr<Answer> answer = std::move(answer_);
  answer_ = nullptr;
  if (!answer->status.ok() || answer->complete) return Finish(answer->status);
  if (answer->received_bytes > sent_) {
    trace_->Fail("the server claims ", answer->received_bytes, " bytes of tensor ", value_->handle,
                 ", but ", sent_, " were sent");
  }
  sent_ = answer->received_bytes;
  trace_->Note("  the upload of ", value_->handle, " resumes at ", sent_);
  Write();
}

void UploadCall::Finish(absl::Status status) {
  writing_ = nullptr;
  must_get_upload_ = false;
  done_ = true;
  status_ = std::move(status);
  trace_->Note("  the upload of ", value_->handle,
               " is done: ", absl::StatusCodeToString(status_.code()));
}

void UploadCall::OnServerLost() {
  writing_ = nullptr;
  answer_ = nullptr;
  ends_.clear();
  if (!done_) Finish(absl::UnavailableError("the server has ended"));
}

}  // namespace tensord::simulation
