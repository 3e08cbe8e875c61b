// The handler of Read, which sends a tensor's elements to a client.
#include <utility>

#include "tensord/server/rpc/bulk/send_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

class ReadCall final : public SendCall {
 public:
  using SendCall::SendCall;

 private:
  void OnAdmitted() override { StartRead(&request_bytes_); }

  void OnRead(bool ok) override {
    if (finished()) return;
    if (!ok) return Fail(absl::InvalidArgumentError("the call has no request"));
    RequestComplete();
    const absl::Status joined = JoinReads();
    if (!joined.ok()) return Fail(joined);
    AwaitTensor();
  }

  void AwaitTensor() {
    v1::ReadRequest request;
    const absl::Status decoded = DecodeMessage(&request_bytes_, &request);
    if (!decoded.ok()) return Fail(decoded);
    absl::StatusOr<SessionUse> use = bulk_->service->sessions->Use(principal(), request.session());
    if (!use.ok()) return Fail(use.status());
    session_ = *std::move(use);
    Wait(
        [&](auto on_readable) {
          WaitUntilReadable(bulk_->service->engine, session_.ref(), request.after_command(),
                            request.handle(), on_readable);
        },
        [this, begin = request.offset(),
         limit = request.limit_bytes()](const absl::StatusOr<TensorRef>& tensor) {
          if (!tensor.ok()) return Fail(tensor.status());
          Send(*tensor, begin, limit);
        });
  }

  void Send(const TensorRef& tensor, int64_t begin, int64_t limit) {
    const absl::StatusOr<int64_t> end = ReadEnd(*tensor, begin, limit);
    if (!end.ok()) return Fail(end.status());
    SetRange(tensor, begin, *end);
    SendNext();
  }

  SessionUse session_;
  grpc::ByteBuffer request_bytes_;
};

}  // namespace

CallFactory MakeReadFactory(BulkContext* context) { return MakeCallFactory<ReadCall>(context); }

}  // namespace tensord::server
