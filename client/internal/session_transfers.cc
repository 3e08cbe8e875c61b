// The session's uploads and downloads.
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/session_retry.h"
#include "tensord/client/internal/upload_connections.h"
#include "tensord/client/internal/upload_plan.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
grpc::Status Session::SendUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                                 const TransferOptions& options, int64_t offset,
                                 bool wait_for_ready, UploadPlan* plan) {
  plan->Restart(offset);
  const UploadConnections::Senders senders(&connection_->upload_connections, write, data, plan);
  int64_t reported_bytes = plan->sent_bytes();
  return internal::Upload(&connection_->bulk_stub, &connection_->calls, wait_for_ready, write, data,
                          [&] {
                            const std::optional<ByteRange> chunk = plan->NextChunk();
                            const int64_t sent_bytes = plan->sent_bytes();
                            if (options.progress && sent_bytes != reported_bytes) {
                              options.progress(sent_bytes, static_cast<int64_t>(data.size()));
                            }
                            reported_bytes = sent_bytes;
                            return chunk;
                          });
}

grpc::Status Session::ResumeUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                                   const TransferOptions& options, UploadPlan* plan,
                                   grpc::Status status) {
  v1::GetUploadRequest question;
  question.set_session(write.session());
  question.set_handle(write.handle());
  question.set_after_command(write.after_command());
  // A Write over the broken connection may still be active at the server. Then a new Write ends
  // with ABORTED.
  const auto broke_off = [&] {
    return status.error_code() == grpc::StatusCode::ABORTED || AwaitReconnect(status);
  };
  for (int attempt = 0; attempt < kMaxAttempts && broke_off(); ++attempt) {
    PauseBefore(attempt);
    v1::Upload upload;
    CallRegistry::Call asking(&connection_->calls);
    const Interruption::CallScope interruptible(asking.context());
    asking.context()->set_wait_for_ready(true);
    status = connection_->stub->GetUpload(asking.context(), question, &upload);
    if (!status.ok()) continue;
    if (upload.done()) return status;
    status =
        SendUpload(write, data, options, upload.received_bytes(), /*wait_for_ready=*/true, plan);
  }
  return status;
}

absl::Status Session::Upload(uint64_t handle, const TensorSpec& spec, DeviceName device,
                             absl::Span<const uint8_t> data, const TransferOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(const v1::WriteSpec write, Promise(handle, spec, device));
  WaitTimer timer(&connection_->counters, WaitKind::kUpload, {"upload", handle, &spec});
  const std::optional<grpc::Status> shared =
      connection_->shared_memory.Upload(write, data, options.progress);
  UploadPlan plan(static_cast<int64_t>(data.size()));
  const grpc::Status written = shared.has_value() ? *shared
                                                  : SendUpload(write, data, options, /*offset=*/0,
                                                               /*wait_for_ready=*/false, &plan);
  const absl::Status status = Outcome(ResumeUpload(write, data, options, &plan, written));
  if (status.ok()) {
    if (shared.has_value() && shared->ok()) connection_->counters.bytes_shared += data.size();
    connection_->counters.bytes_uploaded += static_cast<int64_t>(data.size());
  } else {
    Drop(handle);
  }
  return status;
}

absl::Status Session::FillPromise(const v1::WriteSpec& write, absl::Span<const uint8_t> data) {
  if (InForkedChild()) return ForkedError();
  // Starts like an upload whose connection broke, because the server may have received some of the
  // elements.
  UploadPlan plan(static_cast<int64_t>(data.size()));
  const grpc::Status status =
      ResumeUpload(write, data, TransferOptions(), &plan,
                   grpc::Status(grpc::StatusCode::UNAVAILABLE, "not begun"));
  if (status.ok()) connection_->counters.bytes_uploaded += static_cast<int64_t>(data.size());
  return Outcome(status);
}

absl::Status Session::Download(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out,
                               const TransferOptions& options) {
  if (InForkedChild()) return ForkedError();
  WaitTimer timer(&connection_->counters, WaitKind::kRead, {"read", handle, &spec});
  if (spec.size_bytes() <= kMaxGetElementsBytes) {
    TENSORD_RETURN_IF_ERROR(GetElements(handle, spec, out));
    if (options.progress) options.progress(spec.size_bytes(), spec.size_bytes());
    return absl::OkStatus();
  }
  TENSORD_RETURN_IF_ERROR(status());
  v1::ReadRequest request;
  request.set_session(id_);
  request.set_handle(handle);
  request.set_after_command(FlushCommands());
  const std::optional<grpc::Status> shared =
      connection_->shared_memory.Download(request, out, options.progress);
  absl::Status status;
  if (shared.has_value() && !AwaitReconnect(*shared)) {
    status = Outcome(*shared);
  } else {
    int64_t filled = 0;
    status = CallWithRetry([&](CallRegistry::Call* call) {
      request.set_offset(filled);
      return internal::Download(&connection_->bulk_stub, call, request, out, &filled,
                                options.progress);
    });
  }
  if (status.ok()) {
    if (shared.has_value() && shared->ok()) connection_->counters.bytes_shared += out.size();
    connection_->counters.bytes_downloaded += static_cast<int64_t>(out.size());
  } else {
    connection_->replies.MarkReported(status);
  }
  return status;
}

absl::Status Session::GetElements(uint64_t handle, const TensorSpec& spec,
                                  absl::Span<uint8_t> out) {
  const uint64_t id = connection_->replies.Expect();
  v1::Command command;
  command.mutable_get_elements()->set_handle(handle);
  command.mutable_get_elements()->set_request_id(id);
  const absl::Status pushed = connection_->queue.Push(command);
  if (!pushed.ok()) {
    connection_->replies.Remove(id);
    return pushed;
  }
  TENSORD_ASSIGN_OR_RETURN(const v1::Elements elements, connection_->stream->Await(id));
  if (elements.data().size() != out.size()) {
    return absl::InternalError(absl::StrCat("the server sent ", elements.data().size(),
                                            " bytes for ", spec.ToString(), ", handle ", handle));
  }
  if (!out.empty()) std::memcpy(out.data(), elements.data().data(), out.size());
  return absl::OkStatus();
}

}  // namespace tensord::internal
