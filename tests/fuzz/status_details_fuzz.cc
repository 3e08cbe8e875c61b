// Fuzzes the client's reader of grpc-status-details-bin. The bytes may only add payloads to the
// status. Encoding and decoding the payloads again must not change them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/cord.h"
#include "tensord/common/status_details.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensord;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  absl::Status status = absl::ResourceExhaustedError("a limit");
  DecodeDetails(bytes, &status);
  if (status.code() != absl::StatusCode::kResourceExhausted || status.message() != "a limit") {
    std::abort();
  }
  const std::string reason = ErrorReason(status);
  const std::string limit = ErrorMetadataValue(status, "limit");

  absl::Status again = absl::ResourceExhaustedError("another");
  DecodeDetails(EncodeDetails(status, status.message()), &again);
  if (ErrorReason(again) != reason || ErrorMetadataValue(again, "limit") != limit) std::abort();

  // The bytes as the payload itself.
  absl::Status raw = absl::InternalError("raw");
  raw.SetPayload(kErrorInfoUrl, absl::Cord(bytes));
  if (ErrorReason(WithPrefix(raw, "before: ")) != ErrorReason(raw)) std::abort();
  (void)ErrorMetadataValue(raw, reason);
  return 0;
}
