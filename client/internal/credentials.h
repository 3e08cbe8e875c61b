// What a connection shows of us, and what it wants to see of the server.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/status/statusor.h"
#include "tensord/client/client.h"

namespace tensord::internal {

class Credentials {
 public:
  Credentials() = default;

  // What `options` say and, where they don't, the environment (client.h); reads the files. The
  // error names the file, or says that the token would go unencrypted over the network; never the
  // token.
  static absl::StatusOr<Credentials> Load(const std::string& address,
                                          const ConnectOptions& options);

  bool uses_tls() const { return use_tls_; }

  // For a channel to that address.
  std::shared_ptr<grpc::ChannelCredentials> channel() const;
  void AddTo(grpc::ChannelArguments* arguments) const;

  // For each call, before it begins.
  void AddTo(grpc::ClientContext* call) const {
    if (!authorization_.empty()) call->AddMetadata("authorization", authorization_);
  }

 private:
  bool use_tls_ = false;
  grpc::SslCredentialsOptions tls_;
  std::string server_name_;    // in place of the address's
  std::string authorization_;  // "Bearer …"; empty: none
};

}  // namespace tensord::internal
