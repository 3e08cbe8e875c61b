#include "tensord/server/rpc/status_convert.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"

namespace tensord::server {
namespace {
constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxDetailedMessageBytes = 1024;
}  // namespace

std::string WireMessage(const absl::Status& status) {
  const absl::string_view message = status.message();
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  return absl::StrCat(message.substr(0, kMaxMessageBytes), "…");
}

std::string WireDetails(const absl::Status& status) {
  // They repeat the message: what is long enough to matter goes without.
  const absl::string_view message = status.message();
  return message.size() <= kMaxDetailedMessageBytes ? EncodeDetails(status, message) : "";
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = WireMessage(status);
  return {static_cast<grpc::StatusCode>(status.code()), message, WireDetails(status)};
}

}  // namespace tensord::server
