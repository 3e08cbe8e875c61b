#include "tensord/client/internal/peer_copy.h"

#include <grpcpp/alarm.h>
#include <grpcpp/support/async_unary_call.h>
#include <algorithm>

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/background.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/copy_record.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/tsan_annotations.h"

namespace tensord::internal {
namespace {

// The pause between attempts of a call whose connection broke.
constexpr auto kPause = std::chrono::milliseconds(50);
// The limit of tickets for one copy.
constexpr int kMaxTickets = 3;
// The destination sends this initial metadata of PullTensor when the pull has begun.
constexpr char kPullStartedKey[] = "tensord-pull-started";

CopyPath PathFromProto(v1::CopyPath path) {
  switch (path) {
    case v1::COPY_PATH_PEER:
      return CopyPath::kPeer;
    case v1::COPY_PATH_SHARED_MEMORY:
      return CopyPath::kSharedMemory;
    case v1::COPY_PATH_NETWORK:
      return CopyPath::kNetwork;
    case v1::COPY_PATH_CLIENT:
      return CopyPath::kClient;
    default:
      return CopyPath::kSameDevice;
  }
}

// Returns whether the next copy between the two servers would fail for the same reason. For
// example, a ticket is always refused if the client has different identities at the two servers.
bool IsRouteFailure(const absl::Status& error) {
  const std::string reason = ErrorReason(error);
  return absl::IsUnimplemented(error) || reason == "NOT_A_PEER" || reason == "TICKET_REFUSED" ||
         absl::StartsWith(reason, "PEER_") || absl::StartsWith(reason, "CREDENTIALS_");
}

// One copy. The background thread drives it, one call at a time.
//
// The program may drop the copy at any time. If a command uses it, CopyRecord holds it, because a
// relay needs its handle. Otherwise the handle is dropped, and the copy ends:
//
//   before the pull begins    This object holds the copy. Without its handle, PullTensor would
//                             promise it again, and no pull would release the ticket.
//   during the pull           The destination ends the pull, and releases the ticket.
//   before the relay begins   There is no pull. The relay doesn't begin.
class PeerCopy final : public Background::Event, public std::enable_shared_from_this<PeerCopy> {
 public:
  PeerCopy(Tensor source, std::shared_ptr<const TensorState> copy)
      : source_(std::move(source)),
        description_(source_.Describe()),
        transfer_(std::in_place, source_.state()),
        copy_(std::move(copy)),
        droppable_copy_(copy_),
        source_session_(source_.state()->session),
        destination_(copy_->session),
        record_(copy_->copy) {
    ticket_request_.set_session(source_session().id());
    ticket_request_.set_handle(source_.handle());
    ticket_request_.set_after_command(source_session().FlushCommands());
    ticket_request_.set_destination_epoch(destination_->info().epoch);
  }

  // Starts the copy. `write` is the spec that fulfils the promise.
  void Start(v1::WriteSpec write) {
    write_ = std::move(write);
    reconnects_ = source_session().connection().counters.reconnects +
                  destination_->connection().counters.reconnects;
    const std::string failure = routes().ReasonToSkip(source_epoch(), reconnects_);
    if (failure.empty()) return RequestTicket();
    ++destination_->connection().counters.copies_route_skipped;
    skipped_route_ = true;
    StartRelay(failure);
  }

 private:
  Session& source_session() const { return *source_session_; }
  const std::string& source_epoch() const { return source_session().info().epoch; }
  PeerRouteBackoff& routes() const { return destination_->connection().peer_route_backoff; }

  // Returns the tag for an operation that the caller starts. When it has ended, `next` runs.
  void* Begin(void (PeerCopy::*next)()) {
    next_ = next;
    self_ = shared_from_this();
    TsanRelease(static_cast<Event*>(this));
    return static_cast<Event*>(this);
  }
  void OnEvent() override {
    std::shared_ptr<PeerCopy> self = std::move(self_);
    if (next_ != &PeerCopy::OnPullStarted) EndCall();
    (this->*next_)();
    // Releasing the last reference to a session blocks, so the work thread does it.
    if (self_ == nullptr) Background::Get().Post([self = std::move(self)] {});
  }

  void EndCall() {
    // The readers use memory of the call's context, so they are destroyed before it.
    ticket_call_.reset();
    pull_call_.reset();
    tensor_call_.reset();
    call_.reset();
  }

  // Holds the copy again. If it has been dropped, returns false.
  bool LockCopy() {
    copy_ = droppable_copy_.lock();
    return copy_ != nullptr;
  }
  void EndDropped() { Finish(absl::CancelledError("the program has dropped the copy")); }

  // Returns the context of a new call to one of the two servers.
  grpc::ClientContext* NewCall(Session& session) {
    call_.emplace(&session.connection().calls);
    // Gives gRPC the time to replace a broken connection.
    call_->context()->set_wait_for_ready(is_retry_);
    return call_->context();
  }
  // If the call failed with its connection, makes it again after a pause and returns true.
  bool RetryIfBroken(Session& session, void (PeerCopy::*request)()) {
    // An error that a server reports has details.
    const bool broken = (status_.error_code() == grpc::StatusCode::UNAVAILABLE ||
                         status_.error_code() == grpc::StatusCode::UNKNOWN) &&
                        status_.error_details().empty();
    if (!broken || !session.status().ok()) return false;
    is_retry_ = true;
    pause_.Set(Background::Get().queue(), std::chrono::system_clock::now() + kPause,
               Begin(request));
    return true;
  }

  void RequestTicket() {
    ++tickets_requested_;
    ticket_call_ = source_session().connection().stub->PrepareAsyncCreateTicket(
        NewCall(source_session()), ticket_request_, Background::Get().queue());
    ticket_call_->StartCall();
    ticket_call_->Finish(&ticket_, &status_, Begin(&PeerCopy::OnTicket));
  }

  void OnTicket() {
    if (RetryIfBroken(source_session(), &PeerCopy::RequestTicket)) return;
    if (status_.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return FallBackToRelay();
    }
    if (!status_.ok()) return FailCopy(source_session().Outcome(status_));
    is_retry_ = false;
    RequestPull();
  }

  void RequestPull() {
    pull_requested_ = true;
    v1::PullTensorRequest request;
    *request.mutable_tensor() = write_;
    request.set_source_address(source_session().info().peer_address);
    request.set_ticket(ticket_.ticket());
    pull_call_ = destination_->connection().stub->PrepareAsyncPullTensor(
        NewCall(*destination_), request, Background::Get().queue());
    pull_call_->StartCall();
    pull_call_->ReadInitialMetadata(Begin(&PeerCopy::OnPullStarted));
  }

  // The pull has begun, or the call has failed.
  void OnPullStarted() {
    if (call_->context()->GetServerInitialMetadata().count(kPullStartedKey) > 0) copy_.reset();
    pull_call_->Finish(&pulled_, &status_, Begin(&PeerCopy::OnPulled));
  }

  void OnPulled() {
    if (!status_.ok() && !LockCopy()) return EndDropped();
    if (RetryIfBroken(*destination_, &PeerCopy::RequestPull)) return;
    if (status_.ok()) {
      routes().RecordSuccess(source_epoch());
      CopyReport report;
      report.path = PathFromProto(pulled_.path());
      report.bytes = pulled_.bytes();
      report.transfer_time = absl::Nanoseconds(pulled_.transfer_nanoseconds());
      report.resumptions = pulled_.resumptions();
      report.connections = std::max(pulled_.connections(), 1);
      return Finish(std::move(report));
    }
    const absl::Status error = destination_->Outcome(status_);
    // The ticket may have expired while the destination couldn't be reached.
    if (ErrorReason(error) == "TICKET_REFUSED" && tickets_requested_ < kMaxTickets) {
      return RequestTicket();
    }
    switch (status_.error_code()) {
      case grpc::StatusCode::PERMISSION_DENIED:
      case grpc::StatusCode::UNIMPLEMENTED:
      case grpc::StatusCode::UNAVAILABLE:
        if (destination_->status().ok()) return FallBackToRelay();
        break;
      default:
        break;
    }
    Finish(error);  // the tensor has the same error
  }

  // Handles a server's report that the two servers can't transfer the copy directly.
  void FallBackToRelay() {
    const absl::Status error =
        StatusFromCode(status_.error_code(), status_.error_message(), status_.error_details());
    const Session& reporter = pull_requested_ ? *destination_ : source_session();
    std::string why = absl::StrCat(reporter.label().empty() ? reporter.address() : reporter.label(),
                                   ": ", error.message());
    if (ErrorReason(error) == "TICKET_REFUSED") {
      absl::StrAppend(
          &why,
          "; or this program has different identities at the two servers (run tensorctl "
          "cluster check to find out)");
    }
    if (IsRouteFailure(error)) routes().RecordFailure(source_epoch(), reconnects_, why);
    StartRelay(why);
  }

  // Starts the relay: waits for the tensor, and then transfers it through this program.
  void StartRelay(const std::string& why) {
    copy_.reset();
    relay_reason_ = why;
    ++destination_->connection().counters.copies_relayed;
    Trace(absl::StrCat("a copy of ", description_, " to ", destination_->address(),
                       " goes through this program",
                       skipped_route_ ? "; the direct route wasn't tried: " : ": ", relay_reason_));
    is_retry_ = false;
    RequestTensor();
  }

  void RequestTensor() {
    v1::GetTensorRequest request;
    request.set_session(ticket_request_.session());
    request.set_handle(ticket_request_.handle());
    request.set_after_command(ticket_request_.after_command());
    tensor_call_ = source_session().connection().stub->PrepareAsyncGetTensor(
        NewCall(source_session()), request, Background::Get().queue());
    tensor_call_->StartCall();
    tensor_call_->Finish(&tensor_, &status_, Begin(&PeerCopy::OnTensorReady));
  }

  void OnTensorReady() {
    if (RetryIfBroken(source_session(), &PeerCopy::RequestTensor)) return;
    if (!status_.ok()) return FailCopy(source_session().Outcome(status_));
    Background::Get().Post([self = shared_from_this()] { self->Relay(); });
  }

  void Relay() {
    if (!LockCopy()) return EndDropped();
    CopyReport report;
    report.path = CopyPath::kClient;
    report.bytes = source_.spec().size_bytes();
    report.relay_reason = relay_reason_;
    report.route_skipped = skipped_route_;
    const absl::Time start = absl::Now();
    const std::unique_ptr<uint8_t[]> memory(new (std::nothrow) uint8_t[report.bytes]);
    const absl::Span<uint8_t> data(memory.get(), memory == nullptr ? 0 : report.bytes);
    const absl::Status read = ReadSource(data);
    if (!read.ok()) return FailCopy(read);
    const absl::Status filled = destination_->FillPromise(write_, data);
    if (!filled.ok()) return FailCopy(filled);
    report.transfer_time = absl::Now() - start;
    Finish(std::move(report));
  }

  // Fills `bytes` with the source's elements, also if the program has donated it since the copy
  // began.
  absl::Status ReadSource(absl::Span<uint8_t> bytes) {
    if (bytes.data() == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this program can't allocate ", source_.spec().size_bytes(), " bytes"));
    }
    const TensorState& state = *source_.state();
    return source_session().Download(state.handle, state.spec, bytes, {});
  }

  // Ends the copy with an error, and fails the promise, because no call will bring the elements.
  void FailCopy(const absl::Status& error) {
    const absl::Status failure = WithPrefix(error, absl::StrCat("copy of ", description_, ": "));
    if (LockCopy()) destination_->FailPromise(write_.handle(), failure);
    Finish(failure);
  }

  // Releases the tensors before the outcome is visible.
  void Finish(absl::StatusOr<CopyReport> outcome) {
    source_ = Tensor();
    transfer_.reset();
    copy_.reset();
    record_->Finish(std::move(outcome));
  }

  Tensor source_;
  const std::string description_;            // of source_, which the program may donate meanwhile
  std::optional<TransferScope> transfer_;    // of source_
  std::shared_ptr<const TensorState> copy_;  // may be null
  const std::weak_ptr<const TensorState> droppable_copy_;
  const std::shared_ptr<Session> source_session_;
  const std::shared_ptr<Session> destination_;
  const std::shared_ptr<CopyRecord> record_;
  v1::CreateTicketRequest ticket_request_;
  v1::WriteSpec write_;

  std::shared_ptr<PeerCopy> self_;  // set while an operation is outstanding
  void (PeerCopy::*next_)() = nullptr;
  std::optional<CallRegistry::Call> call_;
  grpc::Alarm pause_;
  grpc::Status status_;
  bool is_retry_ = false;
  int tickets_requested_ = 0;
  bool pull_requested_ = false;
  int64_t reconnects_ = 0;  // reconnects of both connections before the copy began
  std::string relay_reason_;
  bool skipped_route_ = false;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Ticket>> ticket_call_;
  v1::Ticket ticket_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::PullTensorResponse>> pull_call_;
  v1::PullTensorResponse pulled_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Tensor>> tensor_call_;
  v1::Tensor tensor_;
};

}  // namespace

Tensor CopyToPeer(const Tensor& source, const Device& device) {
  const std::shared_ptr<Session>& destination = device.session();
  auto state = std::make_shared<TensorState>(destination, destination->NextHandle(), source.spec(),
                                             device.id());
  state->copy = std::make_shared<CopyRecord>(/*within_server=*/false);
  auto copy = std::make_shared<PeerCopy>(source, state);
  absl::StatusOr<v1::WriteSpec> write =
      destination->Promise(state->handle, source.spec(), device.id());
  if (!write.ok()) return Tensor::Failed(write.status());
  copy->Start(*std::move(write));
  return Tensor(std::move(state));
}

}  // namespace tensord::internal
