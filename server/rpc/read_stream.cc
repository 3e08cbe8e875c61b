// Read: a tensor's memory to the wire, chunk by chunk.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/handover.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

// One chunk is held at a time: the next is read from the device when the last is on the wire.
class ReadReactor final : public grpc::ServerWriteReactor<v1::ReadResponse> {
 public:
  ReadReactor(ServiceContext* context, const v1::ReadRequest* request) : context_(context) {
    absl::StatusOr<SessionUse> use = context->sessions->Use(request->session());
    if (!use.ok()) {
      End(ToGrpc(use.status()));
      return;
    }
    session_ = *std::move(use);
    offset_ = request->offset();
    limit_ = request->limit_bytes();
    HandOver(this);
    if (!wait_.Begin()) {
      End(grpc::Status::CANCELLED);
      return;
    }
    WaitForTensor(session_.ref(), request->after_command(), request->handle(),
                  [this, context, wait = wait_](const absl::StatusOr<TensorRef>& tensor) {
                    if (!tensor.ok()) {
                      if (wait.End()) End(ToGrpc(tensor.status()));
                      return;
                    }
                    context->engine->WhenReadable(
                        *tensor, [this, wait, tensor = *tensor](const absl::Status& status) {
                          if (wait.End()) Begin(tensor, status);
                        });
                  });
  }

  void OnCancel() override {
    TakeOver(this);
    if (wait_.Cancel()) End(grpc::Status::CANCELLED);
  }

  void OnWriteDone(bool ok) override {
    TakeOver(this);
    if (!ok) {
      End(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone"));
    } else if (offset_ == end_) {
      End(grpc::Status::OK);
    } else {
      message_.clear_spec();
      NextChunk();
    }
  }

  void OnDone() override {
    TakeOver(this);
    delete this;
  }

 private:
  void End(const grpc::Status& status) {
    HandOver(this);
    Finish(status);
  }

  void Begin(const TensorRef& tensor, const absl::Status& status) {
    if (!status.ok()) {
      End(ToGrpc(status));
      return;
    }
    tensor_ = tensor;
    const int64_t size = tensor->spec().size_bytes();
    if (offset_ < 0 || limit_ < 0 || offset_ > size || limit_ > size - offset_) {
      End(grpc::Status(grpc::StatusCode::OUT_OF_RANGE,
                          absl::StrCat("tensor ", tensor->handle(), " has ", size,
                                       " bytes; asked for ", limit_, " from offset ", offset_)));
      return;
    }
    end_ = limit_ == 0 ? size : offset_ + limit_;
    ToProto(tensor->spec(), message_.mutable_spec());
    NextChunk();
  }

  // The device may be waited for, and who called may be its own thread.
  void NextChunk() {
    context_->workers->Post([this] { SendChunk(); });
  }

  void SendChunk() {
    const int64_t bytes = std::min(kChunkBytes, end_ - offset_);
    message_.set_offset(offset_);
    message_.mutable_data()->resize(bytes);
    if (bytes > 0) {
      absl::Status status = tensor_->device().Read(*tensor_->buffer(), offset_,
                                                   message_.mutable_data()->data(), bytes);
      if (!status.ok()) {
        End(ToGrpc(status));
        return;
      }
    }
    offset_ += bytes;
    HandOver(this);
    StartWrite(&message_);
  }

  ServiceContext* const context_;
  SessionUse session_;
  CancellableWait wait_;  // for the tensor; later a broken stream ends the call
  TensorRef tensor_;
  v1::ReadResponse message_;
  int64_t offset_ = 0;
  int64_t limit_ = 0;
  int64_t end_ = 0;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadResponse>* TensorServiceImpl::Read(
    Context*, const v1::ReadRequest* request) {
  return new ReadReactor(context_, request);
}

}  // namespace tensord::server
