#include "tensord/server/rpc/status_convert.h"

#include <string>

#include "tensord/common/status_details.h"
#include "tensord/common/util/utf8.h"

namespace tensord::server {
namespace {
constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxDetailedMessageBytes = 1024;
}  // namespace

std::string WireMessage(const absl::Status& status) {
  const absl::string_view message = status.message();
  std::string text = ToUtf8(message, kMaxMessageBytes);
  if (message.size() > kMaxMessageBytes) text += "…";
  return text;
}

std::string WireDetails(const absl::Status& status) {
  // The details repeat the message. So a long message is sent without them.
  const absl::string_view message = status.message();
  return message.size() <= kMaxDetailedMessageBytes ? EncodeDetails(status, message) : "";
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = WireMessage(status);
  return {static_cast<grpc::StatusCode>(status.code()), message, WireDetails(status)};
}

absl::Status FromGrpc(const grpc::Status& status) {
  return StatusFromCode(status.error_code(), status.error_message(), status.error_details());
}

}  // namespace tensord::server
