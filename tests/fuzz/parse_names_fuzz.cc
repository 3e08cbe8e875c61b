// Fuzzes the parsers of device names, --devices and addresses.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tensord/common/device_name.h"
#include "tensord/common/util/address.h"
#include "tensord/server/device/device_factory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);

  const auto device = tensord::ParseDeviceName(text);
  if (device.ok() && tensord::ParseDeviceName(device->ToString()) != device) abort();

  const auto requests = tensord::server::ParseDevices(text);
  if (requests.ok()) {
    for (const auto& request : *requests) {
      if (request.physical_index < 0 || request.limit_bytes < 0) abort();
    }
  }

  // Only these forms may count as an address of this machine.
  if (tensord::IsLocalAddress(text) && !absl::StartsWith(text, "unix:") &&
      !absl::StartsWith(text, "localhost") && !absl::StartsWith(text, "[::1]") &&
      !absl::StartsWith(text, "127.")) {
    abort();
  }
  return 0;
}
