#include "tensord/client/internal/upload_connections.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/session_retry.h"

namespace tensord::internal {
namespace {

// How long a connection that the server refused isn't used.
constexpr absl::Duration kPause = absl::Seconds(30);
// How often a thread that connects checks whether the upload has ended.
constexpr std::chrono::milliseconds kConnectPollInterval{10};
// A part may arrive at the server before the upload's main call, and then fails with ABORTED.
constexpr int kMaxPartAttempts = 10;

grpc::Status SendPart(grpc::GenericStub* stub, CallRegistry* calls, const v1::WriteSpec& spec,
                      absl::Span<const uint8_t> data, ByteRange part, const UploadPlan& plan) {
  v1::WriteSpec of_part = spec;
  of_part.mutable_part()->set_offset(part.begin);
  of_part.mutable_part()->set_size_bytes(part.end - part.begin);
  grpc::Status status;
  for (int attempt = 0; attempt < kMaxPartAttempts && !plan.stopped(); ++attempt) {
    PauseBefore(attempt);
    int64_t next = part.begin;
    status = Upload(stub, calls, /*wait_for_ready=*/false, of_part, data,
                    [&]() -> std::optional<ByteRange> {
                      if (next == part.end || plan.stopped()) return std::nullopt;
                      const int64_t begin = next;
                      next = std::min(begin + kChunkBytes, part.end);
                      return ByteRange{begin, next};
                    });
    if (status.error_code() != grpc::StatusCode::ABORTED) return status;
  }
  return grpc::Status(grpc::StatusCode::ABORTED, "the upload has ended or has not begun");
}

}  // namespace

UploadConnections::UploadConnections(MakeChannel make_channel, int max_connections,
                                     CallRegistry* calls)
    : make_channel_(std::move(make_channel)),
      max_connections_(max_connections),
      calls_(calls),
      extras_(static_cast<size_t>(max_connections - 1)) {}

UploadConnections::Senders::Senders(UploadConnections* connections, const v1::WriteSpec& spec,
                                    absl::Span<const uint8_t> data, UploadPlan* plan)
    : plan_(plan) {
  const int64_t left_bytes = static_cast<int64_t>(data.size()) - plan->sent_bytes();
  if (left_bytes < UploadPlan::kMinSpreadBytes) return;
  for (Extra& extra : connections->extras_) {
    threads_.emplace_back(
        [=, &spec, extra = &extra] { connections->SendParts(extra, spec, data, plan); });
  }
}

UploadConnections::Senders::~Senders() {
  plan_->Stop();
  for (std::thread& thread : threads_) thread.join();
}

void UploadConnections::SendParts(Extra* extra, const v1::WriteSpec& spec,
                                  absl::Span<const uint8_t> data, UploadPlan* plan) {
  if (!plan->AwaitStart()) return;
  const std::shared_ptr<grpc::Channel> channel = Connect(extra, plan);
  if (channel == nullptr) return;
  grpc::GenericStub stub(channel);
  while (const std::optional<ByteRange> part = plan->TakePart(max_connections_)) {
    const grpc::Status status = SendPart(&stub, calls_, spec, data, *part, *plan);
    plan->EndPart(*part, status.ok());
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) Pause(extra);
    if (!status.ok()) return;
  }
}

std::shared_ptr<grpc::Channel> UploadConnections::Connect(Extra* extra, UploadPlan* plan) {
  std::shared_ptr<grpc::Channel> channel;
  {
    MutexLock lock(&mu_);
    if (absl::Now() < extra->retry_at) return nullptr;
    if (extra->channel == nullptr) extra->channel = make_channel_();
    channel = extra->channel;
  }
  while (!plan->stopped()) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return channel;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      Pause(extra);
      return nullptr;
    }
    channel->WaitForStateChange(state, std::chrono::system_clock::now() + kConnectPollInterval);
  }
  return nullptr;
}

void UploadConnections::Pause(Extra* extra) {
  MutexLock lock(&mu_);
  extra->channel = nullptr;
  extra->retry_at = absl::Now() + kPause;
}

}  // namespace tensord::internal
