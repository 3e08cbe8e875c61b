// A read beside the stream, as ReadTensor and Read do it: by a call that names a command.
#pragma once

#include <memory>

#include "tensord/server/rpc/service_context.h"
#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/model.h"

namespace tensord::simulation {

// Asks again where the call breaks. Until it is done the client must hold the value.
class ReadCall {
 public:
  ReadCall(server::ServiceContext* context, server::PrincipalRef principal, ClientEnd* client,
           ValueRef value, LeaseBook* leases, Journal* journal);
  ~ReadCall();

  // One step. False where there was nothing to do.
  bool Step();
  // The connection breaks, and with it the call.
  void Break() { call_ = nullptr; }
  bool done() const { return done_; }

 private:
  // The server's side.
  struct Call {
    ~Call();
    LeaseBook* leases;
    server::SessionUse use;
    bool come = false;
    absl::StatusOr<server::TensorRef> tensor = absl::UnknownError("");
  };

  void Ask();
  void TakeAnswer();

  server::ServiceContext* const context_;
  const server::PrincipalRef principal_;
  ClientEnd* const client_;
  const ValueRef value_;
  const uint64_t after_command_;
  LeaseBook* const leases_;
  Journal* const journal_;
  std::shared_ptr<Call> call_;
  bool done_ = false;
};

}  // namespace tensord::simulation
