#include "tensord/client/device.h"

#include <ostream>

#include "tensord/client/internal/session.h"

namespace tensord {

std::string DeviceStateWord(DeviceState state) {
  switch (state) {
    case DeviceState::kServing:
      return "serving";
    case DeviceState::kLost:
      return "lost";
    case DeviceState::kResetting:
      return "resetting";
    case DeviceState::kUnknown:
      break;
  }
  return "unknown";
}

std::string Device::model() const {
  const DeviceInfo* info = valid() ? session_->FindDevice(id_) : nullptr;
  return info == nullptr ? "" : info->model;
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.name(); }

}  // namespace tensord
