// SharedMemory: transfers through a ring of slots that client and server both have mapped.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "tensord/common/status_macros.h"
#include "tensord/common/stream_copy.h"
#include "tensord/server/rpc/bulk_call.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/shared_rings.h"
#include "tensord/server/rpc/slot_turns.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/tensor_upload.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

using Request = v1::SharedMemoryRequest;
using Response = v1::SharedMemoryResponse;

class SharedCall final : public BulkCall {
 public:
  SharedCall(BulkContext* bulk, CallQueue* queue) : BulkCall(bulk, queue), rpc_(&context()) {
    bulk_->rpc->RequestSharedMemory(&context(), &rpc_, queue->get(), queue->arrivals(),
                                    Begin(kCalled));
  }

 private:
  enum class State { kNew, kIdle, kUploading, kDownloading };

  void AwaitNext() override { AwaitSharedMemory(bulk_, queue()); }

  void On(Step step, bool ok) override {
    switch (step) {
      case kCalled:
        return StartRead();
      case kRead:
        has_incoming_ = true;
        all_read_ = !ok;
        return GoOn();
      case kWritten:
        writing_ = false;
        if (ok) return Send();
        // What is under way finds out by itself.
        if (!busy_) Finish(ClientGone());
        return;
      case kWoken:
        if (!GoesOn()) return;
        if (after_wait_) outcome_ = std::exchange(after_wait_, nullptr)();
        return outcome_.ok() ? GoOn() : Finish(outcome_);
      case kDone:
        if (CancelledWait()) Finish(ClientGone());
        return;
      default:
        return;
    }
  }

  void StartRead() { rpc_.Read(&incoming_, Begin(kRead)); }

  // Takes messages up one by one, each when nothing is under way with the one before.
  void GoOn() {
    if (finished_ || busy_ || !has_incoming_) return;
    has_incoming_ = false;
    if (all_read_) {
      // The client has done with the ring, or has gone.
      const bool idle = state_ == State::kIdle;
      return Finish(idle ? absl::OkStatus() : ClientGone());
    }
    const Request request = std::move(incoming_);
    incoming_.Clear();
    RequestReceived(request.ByteSizeLong());
    StartRead();
    const absl::Status status = Take(request);
    if (!status.ok()) Finish(status);
  }

  absl::Status Take(const Request& request) {
    switch (request.request_case()) {
      case Request::kOpen:
        if (state_ == State::kNew) return Open(request.open().session());
        break;
      case Request::kWrite:
        if (state_ == State::kIdle) return BeginUpload(request.write());
        break;
      case Request::kRead:
        if (state_ == State::kIdle) return BeginDownload(request.read());
        break;
      case Request::kSlot:
        if (state_ == State::kUploading) return Filled(request.slot());
        if (state_ == State::kDownloading) return Emptied(request.slot());
        break;
      default:
        break;
    }
    return absl::InvalidArgumentError(
        "a message of SharedMemory that isn't due: first open, then write or read and its slots");
  }

  absl::Status Open(const std::string& session) {
    TENSORD_ASSIGN_OR_RETURN(SessionUse use, bulk_->service->sessions->Use(principal(), session));
    SessionUsed();
    TENSORD_ASSIGN_OR_RETURN(ring_, bulk_->rings.Open(use.ref(), &context()));
    state_ = State::kIdle;
    Response response;
    ring_->Describe(response.mutable_ring());
    Send(std::move(response));
    return absl::OkStatus();
  }

  absl::Status CheckSession(const std::string& session) const {
    if (session == ring_->session()->id()) return absl::OkStatus();
    return absl::InvalidArgumentError("a transfer must name the session that the ring is of");
  }

  absl::Status BeginUpload(const v1::WriteSpec& spec) {
    TENSORD_RETURN_IF_ERROR(CheckSession(spec.session()));
    state_ = State::kUploading;
    next_slot_ = 0;
    upload_.emplace(bulk_->service);
    after_wait_ = [this, spec]() -> absl::Status {
      TENSORD_RETURN_IF_ERROR(upload_->Begin(spec, [this] { context().TryCancel(); }));
      // Slots are filled from the tensor's first byte on.
      if (upload_->written_bytes() > 0) return Engine::UploadMovedOn(spec.handle());
      return upload_->size_bytes() == 0 ? EndUpload() : absl::OkStatus();
    };
    return AwaitTensor([&](auto woken) {
      const absl::Status status = upload_->Await(
          principal(), spec, [woken](const absl::Status& received) { woken(received, nullptr); });
      if (!status.ok()) woken(status, nullptr);
    });
  }

  absl::Status BeginDownload(const v1::ReadRequest& request) {
    TENSORD_RETURN_IF_ERROR(CheckSession(request.session()));
    TENSORD_ASSIGN_OR_RETURN(use_, bulk_->service->sessions->Use(principal(), request.session()));
    state_ = State::kDownloading;
    slots_out_ = SlotTurns(kSharedSlots);
    offset_ = request.offset();
    after_wait_ = [this, limit = request.limit_bytes()]() -> absl::Status {
      TENSORD_ASSIGN_OR_RETURN(end_, ReadEnd(*tensor_, offset_, limit));
      return Fill();
    };
    return AwaitTensor([&](auto woken) {
      WaitUntilReadable(bulk_->service->engine, use_.ref(), request.after_command(),
                        request.handle(), [woken](const absl::StatusOr<TensorRef>& tensor) {
                          woken(tensor.status(), tensor.ok() ? *tensor : nullptr);
                        });
    });
  }

  // Runs `start` with a call back that ends the wait, from any thread.
  template <typename Start>
  absl::Status AwaitTensor(const Start& start) {
    return Wait([&](const CancellableWait& wait) {
      start([this, wait](const absl::Status& status, TensorRef tensor) {
        if (!wait.End()) return;  // cancelled: this call may be gone
        outcome_ = status;
        tensor_ = std::move(tensor);
        Wake();
      });
    });
  }

  // Has `work`, which may wait for the device, run by a worker, and then `after` here.
  void Work(std::function<absl::Status()> work, std::function<absl::Status()> after) {
    after_wait_ = std::move(after);
    RunByWorker(std::move(work));
  }

  // Uploading: the client has filled a slot.
  absl::Status Filled(const v1::SharedSlot& slot) {
    const int64_t bytes =
        std::min(kSharedSlotBytes, upload_->size_bytes() - upload_->written_bytes());
    TENSORD_RETURN_IF_ERROR(CheckSlot(slot, next_slot_, bytes));
    if (!upload_->host_accessible()) {
      // The server returns the slot after the device has read it. Meanwhile the client fills
      // others.
      Work(
          [this, bytes] {
            HostMemory& memory = ring_->region()->memory();
            return upload_->WriteFrom(memory, next_slot_ * ring_->slot_bytes(), bytes);
          },
          [this] { return Landed(); });
      return absl::OkStatus();
    }
    StreamCopy(upload_->destination(), ring_->slot(next_slot_), bytes);
    upload_->Advance(bytes);
    return Landed();
  }

  absl::Status Landed() {
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
    Send(std::move(response));
    return absl::OkStatus();
  }

  // Downloading: fills what slots are free.
  absl::Status Fill() {
    while (!busy_ && offset_ < end_ && slots_out_.any_free()) {
      const int64_t bytes = std::min(kSharedSlotBytes, end_ - offset_);
      uint8_t* data = ring_->slot(slots_out_.next());
      if (!tensor_->device().host_accessible()) {
        Work([this, data,
              bytes] { return tensor_->device().Read(*tensor_->buffer(), offset_, data, bytes); },
             [this, bytes] { return SlotFilled(bytes), Fill(); });
        return absl::OkStatus();
      }
      TENSORD_RETURN_IF_ERROR(tensor_->device().Read(*tensor_->buffer(), offset_, data, bytes));
      SlotFilled(bytes);
    }
    if (offset_ == end_ && slots_out_.out() == 0) EndDownload();
    return absl::OkStatus();
  }

  void SlotFilled(int64_t bytes) {
    SendSlot(slots_out_.next(), bytes);
    slots_out_.Filled();
    offset_ += bytes;
  }

  // The client has emptied a slot: the oldest that it has.
  absl::Status Emptied(const v1::SharedSlot& slot) {
    TENSORD_RETURN_IF_ERROR(slots_out_.GiveBack(slot));
    return Fill();
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
    Send(std::move(response));
  }

  // At most one message for each slot waits, and one besides.
  void Send(Response response) {
    outgoing_.push_back(std::move(response));
    Send();
  }

  void Send() {
    if (finished_ || writing_ || outgoing_.empty()) return;
    writing_ = true;
    rpc_.Write(outgoing_.front(), Begin(kWritten));
    outgoing_.pop_front();
  }

  void Fail(const absl::Status& status) override { Finish(status); }

  void Finish(const absl::Status& status) {
    if (finished_) return;
    finished_ = true;
    if (upload_.has_value() && absl::IsCancelled(status)) upload_->BreakOff();
    if (upload_.has_value()) upload_->Fail(status);
    EndDownload();
    if (ring_ != nullptr) bulk_->rings.Close(std::move(ring_));
    rpc_.Finish(ToGrpc(status), Begin(kFinished));
  }

  grpc::ServerAsyncReaderWriter<Response, Request> rpc_;
  std::unique_ptr<SharedRings::Ring> ring_;
  State state_ = State::kNew;

  // Of the transfer under way.
  std::optional<TensorUpload> upload_;
  SessionUse use_;
  TensorRef tensor_;
  int64_t offset_ = 0;  // of the next byte to go down
  int64_t end_ = 0;
  uint32_t next_slot_ = 0;  // going up
  SlotTurns slots_out_;     // going down

  std::function<absl::Status()> after_wait_;
  Request incoming_;
  std::deque<Response> outgoing_;
  bool has_incoming_ = false;
  bool all_read_ = false;
  bool writing_ = false;
};

}  // namespace

void AwaitSharedMemory(BulkContext* context, CallQueue* queue) { new SharedCall(context, queue); }

}  // namespace tensord::server
