// The device's name, and its functions for programs in C++.
#include <c10/core/DeviceType.h>

#include "api.h"
#include "torch_tensord.h"

namespace torch_tensord {
namespace {

const bool registered = [] {
  c10::register_privateuse1_backend("tensord");
  return true;
}();

}  // namespace

int Connect(const std::string& addresses, const Options& options) {
  std::vector<TensordOption> given;
  for (const auto& [name, value] : options) given.push_back({name.c_str(), value.c_str()});
  TensordError* error = nullptr;
  Check(Api().connect(addresses.c_str(), given.data(), given.size(), &error), error, "");
  return ReplaceDevices();
}

std::vector<DeviceInfo> Devices() {
  std::vector<DeviceInfo> all;
  NumDevices();  // connects
  ForEachDevice([&all](const TensordDevice* device) {
    all.push_back(
        {Api().device_name(device), Api().device_server(device), Api().device_kind(device)});
  });
  return all;
}

}  // namespace torch_tensord
