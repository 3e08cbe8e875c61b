// Tensors described, read, listed and let go.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/rpc/finish.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

constexpr int kDefaultPageSize = 1000;
constexpr int kMaxPageSize = 10000;
// Room that a message needs beside the elements.
constexpr int64_t kMessageOverheadBytes = 1024;

absl::Status CheckFitsMessage(const Tensor& tensor, int64_t max_message_bytes) {
  const int64_t bytes = tensor.spec().size_bytes();
  if (bytes <= max_message_bytes - kMessageOverheadBytes) return absl::OkStatus();
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

using FinishCall = std::function<void(const WaitingReactor::Finish&)>;

// Reads the tensor on a thread that may wait for its device, and finishes the call.
void ReadInto(ServiceContext& context, const absl::StatusOr<TensorRef>& tensor,
              v1::ReadTensorResponse* response, const FinishCall& finish) {
  absl::Status readable = tensor.status();
  if (readable.ok()) readable = CheckFitsMessage(**tensor, context.limits.max_message_bytes);
  if (!readable.ok()) {
    finish([&] { return readable; });
    return;
  }
  context.engine->WhenReadable(
      *tensor, [&context, finish, response, tensor = *tensor](const absl::Status& status) {
        context.workers->Post([finish, response, tensor, status] {
          finish([&] { return status.ok() ? FillResponse(*tensor, response) : status; });
        });
      });
}

// Where a listing goes on: after this handle of this session.
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
        "page_token is not one that ListTensors gave; leave it empty for the first page");
  }
  return start;
}

absl::StatusOr<std::vector<SessionRef>> SessionsToList(SessionTable& sessions,
                                                       const std::string& name) {
  if (name == "-") return sessions.All();
  TENSORD_ASSIGN_OR_RETURN(SessionUse use, sessions.Use(name));
  return std::vector<SessionRef>{use.ref()};
}

absl::Status List(SessionTable& sessions, const v1::ListTensorsRequest& request,
                  v1::ListTensorsResponse* response) {
  if (request.page_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size is ", request.page_size(), "; 0 asks for the default"));
  }
  const int wanted = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  const int page_size = std::min(wanted, kMaxPageSize);
  TENSORD_ASSIGN_OR_RETURN(const PageStart start, ParsePageToken(request.page_token()));
  TENSORD_ASSIGN_OR_RETURN(const std::vector<SessionRef> all,
                           SessionsToList(sessions, request.session()));
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
      v1::Tensor* out = response->add_tensors();
      ToProto(*tensor, out);
      out->set_session_number(session->number());
    }
  }
  return absl::OkStatus();
}

}  // namespace

TensorServiceImpl::Reactor* TensorServiceImpl::GetTensor(Context* call,
                                                         const v1::GetTensorRequest* request,
                                                         v1::Tensor* response) {
  absl::StatusOr<SessionUse> use = context_->sessions->Use(request->session());
  if (!use.ok()) return Finished(call, use.status());
  auto* reactor = new WaitingReactor(*std::move(use));
  reactor->WaitThenFinish([&](const FinishCall& finish) {
    WaitForTensor(reactor->session_ref(), request->after_command(), request->handle(),
                  [finish, response](const absl::StatusOr<TensorRef>& tensor) {
                    finish([&] {
                      if (tensor.ok()) ToProto(**tensor, response);
                      return tensor.status();
                    });
                  });
  });
  return reactor;
}

TensorServiceImpl::Reactor* TensorServiceImpl::ReadTensor(Context* call,
                                                          const v1::ReadTensorRequest* request,
                                                          v1::ReadTensorResponse* response) {
  absl::StatusOr<SessionUse> use = context_->sessions->Use(request->session());
  if (!use.ok()) return Finished(call, use.status());
  auto* reactor = new WaitingReactor(*std::move(use));
  reactor->WaitThenFinish([&](const FinishCall& finish) {
    WaitForTensor(reactor->session_ref(), request->after_command(), request->handle(),
                  [this, finish, response](const absl::StatusOr<TensorRef>& tensor) {
                    ReadInto(*context_, tensor, response, finish);
                  });
  });
  return reactor;
}

TensorServiceImpl::Reactor* TensorServiceImpl::ListTensors(Context* call,
                                                           const v1::ListTensorsRequest* request,
                                                           v1::ListTensorsResponse* response) {
  return Finished(call, List(*context_->sessions, *request, response));
}

TensorServiceImpl::Reactor* TensorServiceImpl::DeleteTensors(
    Context* call, const v1::DeleteTensorsRequest* request, v1::DeleteTensorsResponse*) {
  absl::StatusOr<SessionUse> use = context_->sessions->Use(request->session());
  if (!use.ok()) return Finished(call, use.status());
  return Finished(call, (*use)->Delete(request->handles()));
}

}  // namespace tensord::server
