// The methods that describe, read, list and delete tensors.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/utf8.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/unary/unary_methods.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

constexpr int kDefaultPageSize = 1000;
constexpr int kMaxPageSize = 10000;
// The maximum size of a failed tensor's message in a listing.
constexpr size_t kMaxListedErrorBytes = 256;
// The maximum size of a principal's name in a listing.
constexpr size_t kMaxListedPrincipalBytes = 128;
// The maximum memory of a listed tensor: its 32 dimensions, its principal's name, and the message
// of its error. The name and the message are both in the protobuf message and in the encoded
// response.
constexpr int64_t kMaxListedTensorBytes =
    (1 << 10) + 2 * (kMaxListedErrorBytes + kMaxListedPrincipalBytes);
// The maximum size of everything but the elements in a response.
constexpr int64_t kResponseOverheadBytes = 1024;
// Tensors up to this size are read at once, if the host can access their memory. A worker reads all
// others.
constexpr int64_t kMaxInlineReadBytes = 64 << 10;

absl::Status CheckFitsMessage(const Tensor& tensor, int64_t max_message_bytes) {
  const int64_t bytes = tensor.spec().size_bytes();
  if (bytes <= max_message_bytes - kResponseOverheadBytes) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "tensor ", tensor.handle(), " (", tensor.spec().ToString(), ") has ", bytes,
      " bytes, more than a message may hold (", max_message_bytes, "); use Read, which streams"));
}

absl::Status FillResponse(const Tensor& tensor, v1::ReadTensorResponse* response) {
  ToProto(tensor.spec(), response->mutable_spec());
  std::string* data = response->mutable_data();
  data->resize(tensor.spec().size_bytes());
  if (data->empty()) return absl::OkStatus();
  return tensor.device().Read(*tensor.buffer(), 0, data->data(), data->size());
}

using ReadCall = UnaryCall<v1::ReadTensorRequest, v1::ReadTensorResponse>;

// Finishes the call with the tensor's elements, which can be read now, or with an error.
void ReadInto(ServiceContext& context, const std::weak_ptr<UnaryCallBase>& weak,
              const absl::StatusOr<TensorRef>& tensor) {
  const auto call = std::static_pointer_cast<ReadCall>(weak.lock());
  if (call == nullptr || call->over()) return;
  absl::Status readable = tensor.status();
  if (readable.ok()) readable = CheckFitsMessage(**tensor, context.limits.max_message_bytes);
  if (!readable.ok()) return call->Finish(readable);
  const int64_t bytes = (*tensor)->spec().size_bytes();
  const bool runs_inline = (*tensor)->device().host_accessible() && bytes <= kMaxInlineReadBytes;
  call->WhenResponseFits(bytes, [weak, tensor = *tensor, runs_inline, workers = context.workers] {
    const auto call = std::static_pointer_cast<ReadCall>(weak.lock());
    if (call == nullptr) return;
    const auto read = [call, tensor] { call->Finish(FillResponse(*tensor, call->response())); };
    if (runs_inline) {
      read();
    } else {
      workers->Post(call->principal().get(), read);
    }
  });
}

// A page begins after this handle of this session.
struct PageStart {
  uint64_t session_number = 0;
  Handle handle = 0;
};

absl::StatusOr<PageStart> ParsePageToken(const std::string& token) {
  PageStart start;
  if (token.empty()) return start;
  const std::vector<std::string> parts = absl::StrSplit(token, ':');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &start.session_number) ||
      !absl::SimpleAtoi(parts[1], &start.handle)) {
    return absl::InvalidArgumentError(
        "page_token is not from a response of ListTensors; leave it empty for the first page");
  }
  return start;
}

absl::StatusOr<std::vector<SessionRef>> SessionsToList(SessionTable& sessions,
                                                       const UnaryCallBase& call,
                                                       const v1::ListTensorsRequest& request) {
  if (request.all_principals()) {
    if (!call.is_admin()) {
      return absl::PermissionDeniedError(
          "only an administrator may list the tensors of other callers; leave all_principals out "
          "for your own tensors, or use a token with the flag \"admin\"");
    }
    if (request.session() != "-") {
      return absl::InvalidArgumentError(
          "all_principals lists the tensors of all sessions; set session to \"-\"");
    }
    return sessions.All();
  }
  if (request.session() == "-") return sessions.Of(call.principal());
  TENSORD_ASSIGN_OR_RETURN(SessionUse use, sessions.Use(call.principal(), request.session()));
  return std::vector<SessionRef>{use.ref()};
}

void DescribeInListing(const Tensor& tensor, uint64_t session_number, v1::Tensor* out) {
  ToProto(tensor, out);
  out->set_session_number(session_number);
  if (!tensor.done()) return;
  const absl::Status& status = tensor.status();
  if (status.ok()) return;
  out->set_size_bytes(0);
  out->set_error_code(static_cast<int>(status.code()));
  out->set_error_message(ToUtf8(status.message(), kMaxListedErrorBytes));
}

absl::Status List(SessionTable& sessions, const UnaryCallBase& call,
                  const v1::ListTensorsRequest& request, v1::ListTensorsResponse* response) {
  if (request.page_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size is ", request.page_size(), "; 0 asks for the default"));
  }
  const int wanted = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  const int page_size = std::min(wanted, kMaxPageSize);
  TENSORD_ASSIGN_OR_RETURN(const PageStart start, ParsePageToken(request.page_token()));
  TENSORD_ASSIGN_OR_RETURN(const std::vector<SessionRef> all,
                           SessionsToList(sessions, call, request));
  for (const SessionRef& session : all) {
    if (session->number() < start.session_number) continue;
    const Handle after = session->number() == start.session_number ? start.handle : 0;
    const int room = page_size - response->tensors_size();
    const std::vector<TensorRef> tensors = session->List(after, room + 1);
    for (const TensorRef& tensor : tensors) {
      if (response->tensors_size() == page_size) {
        const v1::Tensor& last = *response->tensors().rbegin();
        response->set_next_page_token(absl::StrCat(last.session_number(), ":", last.handle()));
        return absl::OkStatus();
      }
      v1::Tensor* listed = response->add_tensors();
      DescribeInListing(*tensor, session->number(), listed);
      if (request.all_principals()) {
        listed->set_principal(
            ToUtf8(session->principal()->unique_name(), kMaxListedPrincipalBytes));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void UnaryMethods::GetTensor(const UnaryRef<v1::GetTensorRequest, v1::Tensor>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const SessionRef session = use->ref();
  call->Use(*std::move(use));
  WaitUntilReadable(context_->engine, session, call->request().after_command(),
                    call->request().handle(),
                    [weak = call->weak_from_this(),
                     response = call->response()](const absl::StatusOr<TensorRef>& tensor) {
                      const std::shared_ptr<UnaryCallBase> waiting = weak.lock();
                      if (waiting == nullptr) return;
                      if (tensor.ok()) ToProto(**tensor, response);
                      waiting->Finish(tensor.status());
                    });
}

void UnaryMethods::ReadTensor(const UnaryRef<v1::ReadTensorRequest, v1::ReadTensorResponse>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const SessionRef session = use->ref();
  call->Use(*std::move(use));
  WaitUntilReadable(context_->engine, session, call->request().after_command(),
                    call->request().handle(),
                    [this, weak = call->weak_from_this()](const absl::StatusOr<TensorRef>& tensor) {
                      ReadInto(*context_, weak, tensor);
                    });
}

void UnaryMethods::GetUpload(const UnaryRef<v1::GetUploadRequest, v1::Upload>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  const SessionRef session = use->ref();
  call->Use(*std::move(use));
  const absl::Status waiting = session->WhenReceived(
      call->request().after_command(),
      [weak = call->weak_from_this(), session, handle = call->request().handle(),
       response = call->response()](const absl::Status& received) {
        const std::shared_ptr<UnaryCallBase> live_call = weak.lock();
        if (live_call == nullptr) return;
        const absl::StatusOr<TensorRef> found =
            received.ok() ? session->Find(handle) : absl::StatusOr<TensorRef>(received);
        if (!found.ok()) return live_call->Finish(found.status());
        const auto respond = [weak, tensor = *found, response] {
          const std::shared_ptr<UnaryCallBase> waiting = weak.lock();
          if (waiting == nullptr) return;
          response->set_done(tensor->done());
          if (tensor->done()) {
            response->set_received_bytes(tensor->spec().size_bytes());
          } else if (tensor->upload() != nullptr) {
            response->set_received_bytes(tensor->upload()->parked_bytes());
          }
          waiting->Finish(tensor->done() ? tensor->status() : absl::OkStatus());
        };
        UploadState* const upload = (*found)->upload();
        return upload == nullptr ? respond() : upload->Abort(respond);
      });
  if (!waiting.ok()) call->Finish(waiting);
}

void UnaryMethods::ListTensors(
    const UnaryRef<v1::ListTensorsRequest, v1::ListTensorsResponse>& call) {
  const int page_size = call->request().page_size();
  const int64_t max_tensors = page_size <= 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
  call->WhenResponseFits(max_tensors * kMaxListedTensorBytes, [this,
                                                               weak = call->weak_from_this()] {
    const auto waiting =
        std::static_pointer_cast<UnaryCall<v1::ListTensorsRequest, v1::ListTensorsResponse>>(
            weak.lock());
    if (waiting == nullptr) return;
    context_->workers->Post(waiting->principal().get(), [this, waiting] {
      waiting->Finish(List(*context_->sessions, *waiting, waiting->request(), waiting->response()));
    });
  });
}

void UnaryMethods::DeleteTensors(
    const UnaryRef<v1::DeleteTensorsRequest, v1::DeleteTensorsResponse>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  call->Finish((*use)->Delete(call->request().handles()));
}

}  // namespace tensord::server
