#include "tensord/client/device.h"

#include <ostream>

#include "tensord/client/internal/session.h"

namespace tensord {

std::string Device::name() const { return valid() ? session_->NameOf(id_) : "none"; }

std::string Device::model() const {
  const DeviceInfo* info = valid() ? session_->FindDevice(id_) : nullptr;
  return info == nullptr ? "" : info->model;
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.name(); }

}  // namespace tensord
