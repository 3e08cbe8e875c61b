// The client's credentials, and how it verifies the server's.
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

  // Uses the fields that are set in `options`, and environment variables for the others (client.h).
  // Reads the files. Errors name the file, or say that the token would be sent unencrypted. They
  // never contain the token.
  static absl::StatusOr<Credentials> Load(const std::string& address,
                                          const ConnectOptions& options);

  bool uses_tls() const { return use_tls_; }

  // Returns the credentials of a channel.
  std::shared_ptr<grpc::ChannelCredentials> channel() const;
  // Adds the channel's arguments that the credentials need.
  void AddTo(grpc::ChannelArguments* arguments) const;

  // Adds the token to a call, before it starts.
  void AddTo(grpc::ClientContext* call) const {
    if (!authorization_.empty()) call->AddMetadata("authorization", authorization_);
  }

 private:
  bool use_tls_ = false;
  grpc::SslCredentialsOptions tls_;
  std::string server_name_;    // replaces the address's host; empty: not set
  std::string authorization_;  // "Bearer …"; empty: none
};

}  // namespace tensord::internal
