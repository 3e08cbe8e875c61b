#include "tensord/client/internal/in_process.h"

#include <atomic>

#include "absl/strings/match.h"

namespace tensord::internal {
namespace {

std::atomic<grpc::Server*> in_process_server{nullptr};

}  // namespace

void ServeInProcess(grpc::Server* server) { in_process_server = server; }

bool IsInProcess(absl::string_view address) {
  return in_process_server != nullptr && absl::StartsWith(address, "inproc:");
}

std::shared_ptr<grpc::Channel> InProcessChannel(const grpc::ChannelArguments& arguments) {
  return in_process_server.load()->InProcessChannel(arguments);
}

}  // namespace tensord::internal
