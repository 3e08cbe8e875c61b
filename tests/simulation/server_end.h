// The server's end of a session stream. It is a test double for rpc/stream/session_stream.h, with a
// Link in place of gRPC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensord/server/rpc/stream/session_commands.h"
#include "tensord/tests/simulation/journal.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/link.h"

namespace tensord::simulation {

class ServerEnd final : public server::CommandWire, public std::enable_shared_from_this<ServerEnd> {
 public:
  ServerEnd(server::ServiceContext* context, server::PrincipalRef principal,
            std::shared_ptr<Link> link, LeaseBook* leases, Journal* journal);
  ~ServerEnd() { LetGo(); }

  // Whether the stream waits for a message.
  bool reading() const { return reading_ && !finished_; }
  void OnMessage(const std::string& bytes);
  bool writing() const { return writing_; }
  void OnWritten();
  // The connection has ended. Has no effect if the server has ended the stream.
  void OnGone() { Finish(absl::CancelledError("the client has gone")); }
  bool finished() const { return finished_; }
  // The transport is done with the stream: detaches it from the session.
  void LetGo();
  bool let_go() const { return let_go_; }
  // Like SessionStream::OnDrain.
  void Drain();

  void Resume() override { Advance(); }
  void Supersede() override;

 private:
  absl::Status Attach(const v1::SessionStreamRequest& request);
  void Advance();
  void Write(v1::SessionStreamResponse response,
             const std::vector<server::SessionCommands::ReadyElements>& fetches);
  void Finish(const absl::Status& status);

  server::ServiceContext* const context_;
  const server::PrincipalRef principal_;
  const std::shared_ptr<Link> link_;
  LeaseBook* const leases_;
  Journal* const journal_;
  server::SessionUse session_;
  std::shared_ptr<server::SessionCommands> commands_;
  bool reading_ = true;
  bool want_read_ = false;
  bool writing_ = false;
  bool draining_ = false;
  bool draining_sent_ = false;
  bool finished_ = false;
  bool let_go_ = false;
};

}  // namespace tensord::simulation
