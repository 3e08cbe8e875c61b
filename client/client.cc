#include "tensord/client/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/choose_device.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

absl::Status NoConnection() {
  return absl::FailedPreconditionError("the client isn't connected: use Client::Connect");
}

}  // namespace

absl::StatusOr<Client> Client::Connect(absl::string_view address, const ConnectOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<internal::Session> session,
                           internal::Session::Open(std::string(address), options));
  return Client(std::move(session));
}

const std::string& Client::address() const {
  static const std::string kNone;
  return session_ == nullptr ? kNone : session_->address();
}

const ServerInfo& Client::info() const {
  static const ServerInfo kNone;
  return session_ == nullptr ? kNone : session_->info();
}

uint64_t Client::session_number() const { return session_ == nullptr ? 0 : session_->number(); }

absl::Duration Client::lease() const {
  return session_ == nullptr ? absl::ZeroDuration() : session_->lease();
}

std::vector<Device> Client::devices() const {
  std::vector<Device> devices;
  if (session_ == nullptr) return devices;
  for (const DeviceInfo& info : session_->devices()) devices.emplace_back(session_, info.name);
  return devices;
}

absl::StatusOr<Device> Client::device(absl::string_view name) const {
  if (session_ == nullptr) return NoConnection();
  TENSORD_ASSIGN_OR_RETURN(const DeviceName id, session_->ParseDevice(name));
  return Device(session_, id);
}

absl::StatusOr<Device> Client::device(int index) const {
  if (session_ == nullptr) return NoConnection();
  const std::vector<DeviceInfo>& infos = session_->devices();
  if (index >= 0 && index < static_cast<int>(infos.size())) {
    return Device(session_, infos[index].name);
  }
  return absl::OutOfRangeError(
      absl::StrCat("no device with index ", index, " on ", session_->address(), "; it has ",
                   infos.size(), infos.size() == 1 ? " device" : " devices", ", numbered from 0"));
}

int Client::DeviceCount(DeviceKind kind) const { return internal::CountDevices(devices(), kind); }

Device Client::TryDevice(int i) const { return internal::ChooseDevice(devices(), i); }

std::vector<Device> Client::TryAllDevices() const { return internal::ChooseDevices(devices()); }

absl::StatusOr<ServerInfo> Client::GetServerInfo() const {
  return session_ == nullptr ? NoConnection() : session_->GetServerInfo();
}

StatusOrVector<DeviceInfo> Client::ListDevices() const {
  return session_ == nullptr ? NoConnection() : session_->ListDevices();
}

absl::StatusOr<PeerCheck> Client::CheckPeer(absl::string_view address) const {
  return session_ == nullptr ? NoConnection() : session_->CheckPeer(address);
}

absl::StatusOr<MemoryInfo> Client::memory(const Device& device) const {
  if (session_ == nullptr) return NoConnection();
  if (device.session() != session_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device ", device.name(), " belongs to another Client; use the one that made it"));
  }
  TENSORD_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> infos, session_->ListDevices());
  for (const DeviceInfo& info : infos) {
    if (info.name == device.id()) return info.memory;
  }
  return absl::NotFoundError(absl::StrCat("the server no longer lists ", device.name()));
}

StatusOrVector<TensorInfo> Client::ListTensors() const {
  return session_ == nullptr ? NoConnection()
                             : session_->ListTensors(internal::TensorScope::kSession);
}

StatusOrVector<TensorInfo> Client::ListAllTensors() const {
  return session_ == nullptr ? NoConnection()
                             : session_->ListTensors(internal::TensorScope::kPrincipal);
}

StatusOrVector<TensorInfo> Client::ListTensorsOfAllPrincipals() const {
  return session_ == nullptr ? NoConnection()
                             : session_->ListTensors(internal::TensorScope::kAllPrincipals);
}

absl::Status Client::Publish(const Tensor& tensor, absl::string_view name,
                             const std::vector<std::string>& principals) const {
  if (session_ == nullptr) return NoConnection();
  TENSORD_RETURN_IF_ERROR(tensor.status());
  if (tensor.device().session() != session_ || tensor.handle() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.Describe(), " belongs to another Client; use the one that made it"));
  }
  return session_->Publish(tensor.handle(), name, principals);
}

absl::Status Client::Unpublish(absl::string_view name) const {
  return session_ == nullptr ? NoConnection() : session_->Unpublish(name);
}

absl::StatusOr<Tensor> Client::Open(absl::string_view name, absl::string_view owner) const {
  if (session_ == nullptr) return NoConnection();
  TENSORD_ASSIGN_OR_RETURN(TensorInfo info, session_->OpenPublished(name, owner));
  TENSORD_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(info.device));
  return Tensor(
      std::make_shared<internal::TensorState>(session_, info.handle, std::move(info.spec), device));
}

absl::Status Client::Synchronize() const {
  return session_ == nullptr ? NoConnection() : session_->Synchronize();
}

absl::Status Client::status() const {
  return session_ == nullptr ? NoConnection() : session_->status();
}

bool Client::connected() const { return session_ != nullptr && session_->connected(); }

ClientStats Client::stats() const {
  return session_ == nullptr ? ClientStats() : session_->stats();
}

void Client::Close() {
  if (session_ != nullptr) session_->Close();
}

}  // namespace tensord
