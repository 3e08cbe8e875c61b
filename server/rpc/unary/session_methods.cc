// The methods about sessions.
#include <algorithm>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/unary/unary_methods.h"

namespace tensord::server {
namespace {

constexpr int kDefaultSessionsPerPage = 100;
constexpr int kMaxSessionsPerPage = 1000;
// The maximum memory that a response takes for one session, without its devices, and for each of
// its devices. Both the protobuf message and the encoded response contain the session's names.
constexpr int64_t kMaxListedSessionBytes = 1 << 10;
constexpr int64_t kMaxListedDeviceBytes = 128;

// Returns the maximum number of sessions in the response.
int PageSize(const v1::ListSessionsRequest& request) {
  return request.page_size() <= 0 ? kDefaultSessionsPerPage
                                  : std::min(request.page_size(), kMaxSessionsPerPage);
}

int64_t Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

void FillInfo(const Session& session, const std::vector<DeviceSlot*>& slots, v1::SessionInfo* out) {
  const Session::Activity activity = session.activity();
  out->set_session_number(session.number());
  out->set_principal(session.principal()->unique_name());
  out->set_client_name(session.client_name());
  out->set_age_seconds(Seconds(activity.age));
  out->set_in_use(activity.in_use);
  out->set_idle_seconds(Seconds(activity.idle));
  out->set_lease_seconds(session.lease().count());
  out->set_handles(session.num_handles());
  out->set_ops_in_flight(activity.ops_in_flight);
  for (const DeviceSlot* slot : slots) {
    const int64_t used_bytes = session.account(*slot).used_bytes();
    if (used_bytes == 0) continue;
    v1::SessionMemory* memory = out->add_memory();
    memory->set_device(slot->device->name().ToString());
    memory->set_used_bytes(used_bytes);
  }
}

// Returns the sessions that the caller may see and has asked for, in order of number.
absl::StatusOr<std::vector<SessionRef>> SessionsToList(const SessionTable& sessions,
                                                       const UnaryCallBase& call,
                                                       const std::string& principal) {
  if (!call.is_admin()) {
    // The error doesn't depend on whether the other principal exists.
    if (!principal.empty() && principal != call.principal()->unique_name()) {
      return absl::PermissionDeniedError(
          "only an administrator may list the sessions of other callers; leave the principal empty "
          "for your own sessions, or use a token with the flag \"admin\"");
    }
    return sessions.Of(call.principal());
  }
  std::vector<SessionRef> all = sessions.All();
  if (!principal.empty()) {
    std::erase_if(all, [&](const SessionRef& session) {
      return session->principal()->unique_name() != principal;
    });
  }
  return all;
}

absl::Status List(const ServiceContext& context, const UnaryCallBase& call,
                  const v1::ListSessionsRequest& request, v1::ListSessionsResponse* response) {
  if (request.page_size() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("page_size is ", request.page_size(),
                                                   "; use 1 to 1000, or 0 for the default of 100"));
  }
  const int page_size = PageSize(request);
  uint64_t after = 0;  // the last number of the previous page
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &after)) {
    return absl::InvalidArgumentError(
        "page_token is not from a response of ListSessions; leave it empty for the first page");
  }
  TENSORD_ASSIGN_OR_RETURN(const std::vector<SessionRef> sessions,
                           SessionsToList(*context.sessions, call, request.principal()));
  for (const SessionRef& session : sessions) {
    if (session->number() <= after) continue;
    if (response->sessions_size() == page_size) {
      response->set_next_page_token(absl::StrCat(response->sessions().rbegin()->session_number()));
      break;
    }
    FillInfo(*session, context.engine->slots(), response->add_sessions());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SessionUse> UnaryMethods::UseSession(UnaryCallBase& call,
                                                    const std::string& session) {
  return context_->sessions->Use(call.principal(), session);
}

void UnaryMethods::OpenSession(const UnaryRef<v1::OpenSessionRequest, v1::Session>& call) {
  absl::StatusOr<SessionRef> session = context_->sessions->Open(
      call->principal(), call->request().lease_seconds(), call->request().client_name());
  if (session.ok()) {
    call->response()->set_session((*session)->id());
    call->response()->set_lease_seconds((*session)->lease().count());
    call->response()->set_session_number((*session)->number());
  }
  call->Finish(session.status());
}

void UnaryMethods::CloseSession(
    const UnaryRef<v1::CloseSessionRequest, v1::CloseSessionResponse>& call) {
  const v1::CloseSessionRequest& request = call->request();
  if (request.session().empty() == (request.session_number() == 0)) {
    return call->Finish(absl::InvalidArgumentError(
        "the request must name one session: by its id, from OpenSession, or by its number, from "
        "ListSessions"));
  }
  // A worker closes the session, because freeing its memory may take long.
  context_->workers->Post(call->principal().get(), [this, call] {
    const v1::CloseSessionRequest& request = call->request();
    SessionTable& sessions = *context_->sessions;
    const absl::StatusOr<int64_t> freed =
        request.session().empty()
            ? sessions.Close(call->principal(), request.session_number(), call->is_admin())
            : sessions.Close(call->principal(), request.session());
    if (freed.ok()) call->response()->set_tensors_freed(*freed);
    call->Finish(freed.status());
  });
}

void UnaryMethods::ListSessions(
    const UnaryRef<v1::ListSessionsRequest, v1::ListSessionsResponse>& call) {
  const auto num_devices = static_cast<int64_t>(context_->engine->slots().size());
  const int64_t bytes =
      PageSize(call->request()) * (kMaxListedSessionBytes + num_devices * kMaxListedDeviceBytes);
  call->WhenResponseFits(bytes, [this, weak = call->weak_from_this()] {
    const auto waiting =
        std::static_pointer_cast<UnaryCall<v1::ListSessionsRequest, v1::ListSessionsResponse>>(
            weak.lock());
    if (waiting == nullptr) return;
    context_->workers->Post(waiting->principal().get(), [this, waiting] {
      waiting->Finish(List(*context_, *waiting, waiting->request(), waiting->response()));
    });
  });
}

}  // namespace tensord::server
