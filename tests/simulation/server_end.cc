#include "tensord/tests/simulation/server_end.h"

#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::simulation {

using server::SessionCommands;

ServerEnd::ServerEnd(server::ServiceContext* context, server::PrincipalRef principal,
                     std::shared_ptr<Link> link, LeaseBook* leases, Trace* trace)
    : context_(context),
      principal_(std::move(principal)),
      link_(std::move(link)),
      leases_(leases),
      trace_(trace) {}

void ServerEnd::OnMessage(const std::string& bytes, Deadline deadline) {
  reading_ = false;
  const absl::Status status = Decode(bytes);
  if (!status.ok()) return EndMessage(status);
  applying_ = true;
  begun_ = false;
  on_worker_ = commands_->unfinished();
  if (!on_worker_) Continue(deadline);
}

absl::Status ServerEnd::Decode(const std::string& bytes) {
  message_bytes_ = static_cast<int64_t>(bytes.size());
  if (!request_.ParseFromString(bytes)) return absl::InvalidArgumentError("not a message");
  if (commands_ == nullptr) return Attach(request_);
  if (request_.has_attach()) return absl::InvalidArgumentError("attach twice");
  return absl::OkStatus();
}

void ServerEnd::Continue(Deadline deadline) {
  if (!begun_ && finished_) return EndMessage(absl::OkStatus());
  if (on_worker_) deadline = server::PackedOps::kNoDeadline;
  OnProgress(std::exchange(begun_, true)
                 ? commands_->Continue(request_, deadline)
                 : commands_->Apply(this, request_, message_bytes_, deadline));
}

void ServerEnd::OnProgress(const absl::StatusOr<SessionCommands::Progress>& progress) {
  if (!progress.ok() || *progress == SessionCommands::Progress::kDone) {
    return EndMessage(progress.status());
  }
  if (on_worker_) trace_->Fail("a message without a deadline is unfinished");
  on_worker_ = *progress == SessionCommands::Progress::kLongCommand;
}

void ServerEnd::EndMessage(const absl::Status& status) {
  applying_ = false;
  if (!status.ok()) return Finish(status);
  want_read_ = true;
  Advance();
}

absl::Status ServerEnd::Attach(const v1::SessionStreamRequest& request) {
  if (!request.has_attach()) return absl::InvalidArgumentError("no attach");
  TENSORD_ASSIGN_OR_RETURN(session_,
                           context_->sessions->Use(principal_, request.attach().session()));
  leases_->Begin(session_.ref().get());
  TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<SessionCommands> commands,
                           SessionCommands::Of(context_, session_.ref()));
  TENSORD_RETURN_IF_ERROR(
      commands->Attach(shared_from_this(), request.attach(), request.answers_received()));
  commands_ = std::move(commands);
  return absl::OkStatus();
}

void ServerEnd::Advance() {
  if (want_read_ && !finished_ && !draining_ && commands_->MayRead()) {
    want_read_ = false;
    reading_ = true;
  }
  if (writing_ || finished_) return;
  v1::SessionStreamResponse response;
  std::vector<SessionCommands::ReadyElements> ready;
  const bool ending = draining_ && !applying_;
  const bool news =
      commands_ != nullptr && commands_->NextResponse(this, ending, &response, &ready);
  const bool must_send_draining = draining_ && !draining_sent_ && commands_ != nullptr;
  if (!news && !must_send_draining) {
    if (ending && (commands_ == nullptr || commands_->AllAnswered())) {
      if (commands_ != nullptr) commands_->Detach(this);
      Finish(absl::UnavailableError("the server is shutting down"));
    }
    return;
  }
  response.set_draining(draining_);
  draining_sent_ = draining_;
  Write(std::move(response), ready);
}

void ServerEnd::Write(v1::SessionStreamResponse response,
                      const std::vector<SessionCommands::ReadyElements>& ready) {
  for (const SessionCommands::ReadyElements& elements : ready) {
    v1::Elements* out = response.add_elements();
    out->set_request_id(elements.request_id);
    absl::Status status = elements.status;
    if (status.ok()) {
      server::ToProto(elements.tensor->spec(), out->mutable_spec());
      out->mutable_data()->resize(elements.tensor->spec().size_bytes());
      if (!out->data().empty()) {
        status = elements.tensor->device().Read(*elements.tensor->buffer(), 0,
                                                out->mutable_data()->data(),
                                                static_cast<int64_t>(out->data().size()));
      }
    }
    if (status.ok()) continue;
    out->clear_data();
    out->set_code(static_cast<int>(status.code()));
    out->set_message(server::WireMessage(status));
    out->set_status_details(server::WireDetails(status));
  }
  writing_ = true;
  link_->Send(&link_->to_client, response.SerializeAsString());
}

void ServerEnd::OnWritten() {
  writing_ = false;
  Advance();
}

void ServerEnd::Drain() {
  draining_ = true;
  Advance();
}

void ServerEnd::End(const absl::Status& error) { Finish(error); }

void ServerEnd::Finish(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  trace_->Note("  the server ends a stream: ", absl::StatusCodeToString(status.code()));
  if (!link_->broken) link_->outcome = status;
}

void ServerEnd::Detach() {
  if (std::exchange(detached_, true)) return;
  finished_ = true;
  if (commands_ != nullptr) commands_->Detach(this);
  if (session_.ref() != nullptr) leases_->End(session_.ref().get());
  session_ = server::SessionUse();
  commands_ = nullptr;
}

}  // namespace tensord::simulation
