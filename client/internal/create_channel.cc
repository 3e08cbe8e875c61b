// This file must define nothing else. Then a program that defines CreateChannel itself doesn't link
// this file.
#include "tensord/client/internal/create_channel.h"

#include <grpcpp/create_channel.h>

namespace tensord::internal {

std::shared_ptr<grpc::Channel> CreateChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const grpc::ChannelArguments& arguments) {
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace tensord::internal
