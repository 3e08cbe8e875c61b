#include "tensord/server/rpc/status_convert.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {
constexpr size_t kMaxMessageBytes = 4096;
}  // namespace

std::string WireMessage(const absl::Status& status) {
  const absl::string_view message = status.message();
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  return absl::StrCat(message.substr(0, kMaxMessageBytes), "…");
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), WireMessage(status)};
}

}  // namespace tensord::server
