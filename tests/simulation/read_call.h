// A unary read, like ReadTensor and Read: a call that waits for a command of the stream.
#pragma once

#include <memory>

#include "tensord/server/rpc/service_context.h"
#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/model.h"

namespace tensord::simulation {

// Repeats the call if its connection breaks. The client must hold the value until the read is done.
class ReadCall {
 public:
  ReadCall(server::ServiceContext* context, server::PrincipalRef principal, ClientEnd* client,
           ValueRef value, LeaseBook* leases, Trace* trace);
  ~ReadCall();

  // Makes one step. Returns false if there is nothing to do.
  bool Step();
  // Breaks the call's connection.
  void Break() { call_ = nullptr; }
  bool done() const { return done_; }

 private:
  // The server's end of the call.
  struct Call {
    ~Call();
    LeaseBook* leases;
    server::SessionUse use;
    bool ready = false;  // `tensor` is set
    absl::StatusOr<server::TensorRef> tensor = absl::UnknownError("");
  };

  void AddPending();
  void TakeAnswer();

  server::ServiceContext* const context_;
  const server::PrincipalRef principal_;
  ClientEnd* const client_;
  const ValueRef value_;
  const uint64_t after_command_;
  LeaseBook* const leases_;
  Trace* const trace_;
  std::shared_ptr<Call> call_;
  bool done_ = false;
};

}  // namespace tensord::simulation
