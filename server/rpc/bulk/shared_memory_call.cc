// The handler of SharedMemory: transfers through a ring of slots that client and server have
// mapped.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/stream_copy.h"
#include "tensord/server/rpc/bulk/ring_slots.h"
#include "tensord/server/rpc/bulk/shared_rings.h"
#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/server/rpc/bulk/upload_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

using Request = v1::SharedMemoryRequest;
using Response = v1::SharedMemoryResponse;

class SharedCall final : public UploadCall {
 public:
  using UploadCall::UploadCall;

 private:
  static constexpr size_t kMaxQueued = kSharedSlots + 1;

  enum class State { kNew, kIdle, kUploading, kDownloading };

  void OnWritten(bool ok) override {
    writing_ = false;
    if (ok) {
      SendNext();
      return ProcessNext();
    }
    // A busy call ends after its wait or its worker's work.
    if (!busy()) End(ClientDisconnected());
  }

  // Cancels the call, because its client would keep the ring without a limit of time.
  void OnDrain() override {
    if (!finished()) context().TryCancel();
  }

  void OnMessage() override {
    Request request;
    absl::Status status = DecodeMessage(message(), &request);
    FreeMessage();
    if (status.ok()) status = Process(request);
    if (!status.ok()) End(status);
  }

  // If no transfer is under way, the client has half-closed the call and the status is OK.
  void OnLastMessage() override {
    const bool idle = state_ == State::kIdle;
    End(idle ? absl::OkStatus() : ClientDisconnected());
  }

  // Runs `step` after a wait or a worker's work. Then processes the next message, or ends the call
  // with the error of `step`.
  template <typename Step>
  void Resume(const Step& step) {
    const absl::Status status = step();
    return status.ok() ? ProcessNext() : End(status);
  }

  absl::Status Process(const Request& request) {
    switch (request.request_case()) {
      case Request::kOpen:
        if (state_ == State::kNew) return Open(request.open().session());
        break;
      case Request::kWrite:
        if (state_ == State::kIdle) return BeginSharedUpload(request.write());
        break;
      case Request::kRead:
        if (state_ == State::kIdle) return BeginDownload(request.read());
        break;
      case Request::kSlot:
        if (state_ == State::kUploading) return OnSlotFilled(request.slot());
        if (state_ == State::kDownloading) return OnSlotEmptied(request.slot());
        break;
      default:
        break;
    }
    return absl::InvalidArgumentError(
        "unexpected message of SharedMemory: send open first, then write or read, then its slots");
  }

  absl::Status Open(const std::string& session) {
    TENSORD_ASSIGN_OR_RETURN(SessionUse use, bulk_->service->sessions->Use(principal(), session));
    if (!Join(&bulk_->service->streams)) {
      return absl::UnavailableError("the server is shutting down");
    }
    TENSORD_ASSIGN_OR_RETURN(ring_, bulk_->rings.Open(use.ref(), &context()));
    state_ = State::kIdle;
    Response response;
    ring_->Describe(response.mutable_ring());
    Send(response);
    return absl::OkStatus();
  }

  absl::Status CheckSession(const std::string& session) const {
    if (session == ring_->session()->id()) return absl::OkStatus();
    return absl::InvalidArgumentError("a transfer must name the session of the ring");
  }

  absl::Status BeginSharedUpload(const v1::WriteSpec& spec) {
    TENSORD_RETURN_IF_ERROR(CheckSession(spec.session()));
    state_ = State::kUploading;
    next_slot_ = 0;
    upload_.emplace(bulk_->service);
    BeginUpload(&*upload_, spec, [this, handle = spec.handle()](const absl::Status& begun) {
      Resume([&]() -> absl::Status {
        TENSORD_RETURN_IF_ERROR(begun);
        // An upload through the ring always starts at the tensor's first byte.
        if (upload_->written_bytes() > 0) return Engine::UploadContinuedError(handle);
        return upload_->size_bytes() == 0 ? EndUpload() : absl::OkStatus();
      });
    });
    return absl::OkStatus();
  }

  absl::Status BeginDownload(const v1::ReadRequest& request) {
    TENSORD_RETURN_IF_ERROR(CheckSession(request.session()));
    TENSORD_ASSIGN_OR_RETURN(use_, bulk_->service->sessions->Use(principal(), request.session()));
    state_ = State::kDownloading;
    slots_ = RingSlots(kSharedSlots);
    offset_ = request.offset();
    Wait(
        [&](auto on_readable) {
          WaitUntilReadable(bulk_->service->engine, use_.ref(), request.after_command(),
                            request.handle(), on_readable);
        },
        [this, limit = request.limit_bytes()](const absl::StatusOr<TensorRef>& tensor) {
          Resume([&]() -> absl::Status {
            TENSORD_ASSIGN_OR_RETURN(tensor_, tensor);
            TENSORD_ASSIGN_OR_RETURN(end_, ReadEnd(*tensor_, offset_, limit));
            return FillSlots();
          });
        });
    return absl::OkStatus();
  }

  // Handles a slot that the client has filled in an upload.
  absl::Status OnSlotFilled(const v1::SharedSlot& slot) {
    const int64_t bytes =
        std::min(kSharedSlotBytes, upload_->size_bytes() - upload_->written_bytes());
    TENSORD_RETURN_IF_ERROR(CheckSlot(slot, next_slot_, bytes));
    CountReceived(bytes);
    if (!upload_->host_accessible()) {
      // The server returns the slot after the device has read it. Meanwhile the client fills other
      // slots.
      RunByWorker(
          [this, bytes] {
            HostMemory& memory = ring_->region()->memory();
            return upload_->WriteFrom(memory, next_slot_ * ring_->slot_bytes(), bytes);
          },
          [this] { Resume([this] { return ReturnSlot(); }); });
      return absl::OkStatus();
    }
    StreamCopy(upload_->destination(), ring_->slot(next_slot_), bytes);
    upload_->Advance(bytes);
    return ReturnSlot();
  }

  // Returns the slot that was stored in an upload. After the last one, ends the upload instead.
  absl::Status ReturnSlot() {
    if (upload_->written_bytes() == upload_->size_bytes()) return EndUpload();
    SendSlot(next_slot_, 0);
    next_slot_ = (next_slot_ + 1) % kSharedSlots;
    return absl::OkStatus();
  }

  absl::Status EndUpload() {
    TENSORD_ASSIGN_OR_RETURN(const TensorRef tensor, upload_->Finish());
    upload_.reset();
    state_ = State::kIdle;
    Response response;
    ToProto(*tensor, response.mutable_written());
    Send(response);
    return absl::OkStatus();
  }

  // Fills the free slots in a download.
  absl::Status FillSlots() {
    while (!busy() && offset_ < end_ && slots_.any_free()) {
      const int64_t bytes = std::min(kSharedSlotBytes, end_ - offset_);
      if (!tensor_->device().host_accessible()) {
        const int64_t to = slots_.next() * ring_->slot_bytes();
        RunByWorker(
            [this, to, bytes] {
              HostMemory& memory = ring_->region()->memory();
              return tensor_->device().ReadInto(*tensor_->buffer(), offset_, memory, to, bytes);
            },
            [this, bytes] { Resume([&] { return SendFilledSlot(bytes), FillSlots(); }); });
        return absl::OkStatus();
      }
      uint8_t* const data = ring_->slot(slots_.next());
      TENSORD_RETURN_IF_ERROR(tensor_->device().Read(*tensor_->buffer(), offset_, data, bytes));
      SendFilledSlot(bytes);
    }
    if (offset_ == end_ && slots_.out() == 0) EndDownload();
    return absl::OkStatus();
  }

  void SendFilledSlot(int64_t bytes) {
    SendSlot(slots_.next(), bytes);
    slots_.Filled();
    offset_ += bytes;
    CountSent(bytes);
  }

  // Handles a slot that the client has emptied in a download.
  absl::Status OnSlotEmptied(const v1::SharedSlot& slot) {
    TENSORD_RETURN_IF_ERROR(slots_.HandleReturn(slot));
    return FillSlots();
  }

  void EndDownload() {
    tensor_.reset();
    use_ = SessionUse();
    state_ = State::kIdle;
  }

  void SendSlot(uint32_t slot, int64_t bytes) {
    Response response;
    response.mutable_slot()->set_slot(slot);
    response.mutable_slot()->set_bytes(bytes);
    Send(response);
  }

  // If the client doesn't read, its messages wait.
  bool MayProcess() const override { return outgoing_.size() <= kMaxQueued; }

  // At most one message per slot waits here, and one other message, unless the client sends slots
  // that it doesn't have.
  void Send(const Response& response) {
    outgoing_.push_back(EncodeMessage(response));
    SendNext();
  }

  void SendNext() {
    if (finished() || writing_ || outgoing_.empty()) return;
    writing_ = true;
    StartWrite(outgoing_.front());
    outgoing_.pop_front();
  }

  void Fail(const absl::Status& status) override { End(status); }

  // Ends the call with `status`, and also ends the transfer under way and the ring.
  void End(const absl::Status& status) {
    if (finished()) return;
    if (upload_.has_value() && absl::IsCancelled(status)) upload_->Interrupt();
    if (upload_.has_value()) upload_->Fail(status);
    EndDownload();
    if (ring_ != nullptr) bulk_->rings.Close(std::move(ring_));
    Finish(status);
  }

  std::unique_ptr<SharedRings::Ring> ring_;
  State state_ = State::kNew;

  // The upload under way.
  std::optional<TensorUpload> upload_;
  uint32_t next_slot_ = 0;  // the slot that the client fills next

  // The download under way.
  SessionUse use_;
  TensorRef tensor_;
  int64_t offset_ = 0;  // the position of the next byte to send
  int64_t end_ = 0;
  RingSlots slots_;

  std::deque<grpc::ByteBuffer> outgoing_;
  bool writing_ = false;
};

}  // namespace

CallFactory MakeSharedMemoryFactory(BulkContext* context) {
  return MakeCallFactory<SharedCall>(context);
}

}  // namespace tensord::server
