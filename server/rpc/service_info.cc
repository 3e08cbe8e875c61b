// Server, devices, ops and sessions.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tensord/common/op_schema.h"
#include "tensord/server/rpc/finish.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/rpc/session_stream.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

constexpr uint32_t kProtocolVersion = 1;

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

TensorServiceImpl::TensorServiceImpl(ServiceContext* context)
    : context_(context),
      epoch_(RandomId()),
      host_name_(HostName()),
      started_(std::chrono::steady_clock::now()) {}

void TensorServiceImpl::Drain() {
  MutexLock lock(&context_->mu);
  context_->draining = true;
  for (auto* stream : context_->streams) stream->Drain();
}

TensorServiceImpl::Reactor* TensorServiceImpl::GetServerInfo(Context* call,
                                                             const v1::GetServerInfoRequest*,
                                                             v1::ServerInfo* response) {
  response->set_version(TENSORD_VERSION);
  response->set_min_protocol_version(kProtocolVersion);
  response->set_max_protocol_version(kProtocolVersion);
  response->add_features("session-stream");
  response->add_features("bulk-streams");
  if (context_->cuda_unavailable_reason.empty()) response->add_features("cuda");
  if (!context_->boot_id.empty()) response->add_features("shared-memory");
  response->set_epoch(epoch_);
  response->set_max_message_bytes(context_->limits.max_message_bytes);
  response->set_host_name(host_name_);
  response->set_uptime_seconds(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_)
          .count());
  response->set_cuda_unavailable_reason(context_->cuda_unavailable_reason);
  response->set_boot_id(context_->boot_id);
  return Finished(call, absl::OkStatus());
}

TensorServiceImpl::Reactor* TensorServiceImpl::ListDevices(Context* call,
                                                           const v1::ListDevicesRequest*,
                                                           v1::ListDevicesResponse* response) {
  for (const DeviceSlot* slot : context_->engine->slots()) {
    ToProto(*slot->device, response->add_devices());
  }
  return Finished(call, absl::OkStatus());
}

TensorServiceImpl::Reactor* TensorServiceImpl::ListOps(Context* call, const v1::ListOpsRequest*,
                                                       v1::ListOpsResponse* response) {
  for (const OpSchema* schema : AllOps()) ToProto(*schema, response->add_ops());
  return Finished(call, absl::OkStatus());
}

TensorServiceImpl::Reactor* TensorServiceImpl::OpenSession(Context* call,
                                                           const v1::OpenSessionRequest* request,
                                                           v1::Session* response) {
  absl::StatusOr<SessionRef> session =
      context_->sessions->Open(request->lease_seconds(), request->client_name());
  if (session.ok()) {
    response->set_session((*session)->id());
    response->set_lease_seconds((*session)->lease().count());
    response->set_session_number((*session)->number());
  }
  return Finished(call, session.status());
}

TensorServiceImpl::Reactor* TensorServiceImpl::CloseSession(Context* call,
                                                            const v1::CloseSessionRequest* request,
                                                            v1::CloseSessionResponse* response) {
  absl::StatusOr<int64_t> freed = context_->sessions->Close(request->session());
  if (freed.ok()) response->set_tensors_freed(*freed);
  return Finished(call, freed.status());
}

}  // namespace tensord::server
