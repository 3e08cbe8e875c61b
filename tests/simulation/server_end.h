// The server's end of a session stream. It is a test double for rpc/stream/session_stream.h, with a
// Link in place of gRPC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensord/server/rpc/stream/session_commands.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/link.h"
#include "tensord/tests/simulation/trace.h"

namespace tensord::simulation {

class ServerEnd final : public server::CommandWire, public std::enable_shared_from_this<ServerEnd> {
 public:
  using Deadline = server::SessionCommands::Clock::time_point;

  ServerEnd(server::ServiceContext* context, server::PrincipalRef principal,
            std::shared_ptr<Link> link, LeaseBook* leases, Trace* trace);
  ~ServerEnd() { Detach(); }

  // Returns whether the stream waits for a message.
  bool reading() const { return reading_ && !finished_; }
  // Applies a message until `deadline`. If another connection's message is unfinished, applies
  // nothing yet. If applying() is then true, Continue() applies the next slice of the message.
  void OnMessage(const std::string& bytes, Deadline deadline);
  bool applying() const { return applying_; }
  void Continue(Deadline deadline);
  bool writing() const { return writing_; }
  void OnWritten();
  // Handles the end of the connection. If the server has ended the stream, has no effect.
  void OnGone() { Finish(absl::CancelledError("the client has gone")); }
  bool finished() const { return finished_; }
  // Detaches the stream from its session: the transport is done with the stream. Unless the server
  // ends, applying() must be false.
  void Detach();
  bool detached() const { return detached_; }
  // Works as SessionStream::OnDrain().
  void Drain();

  void Resume() override { Advance(); }
  void End(const absl::Status& error) override;

 private:
  // Decodes a message into request_. Attaches the stream if it is the first message.
  absl::Status Decode(const std::string& bytes);
  absl::Status Attach(const v1::SessionStreamRequest& request);
  void OnProgress(const absl::StatusOr<server::SessionCommands::Progress>& progress);
  void EndMessage(const absl::Status& status);
  void Advance();
  void Write(v1::SessionStreamResponse response,
             const std::vector<server::SessionCommands::ReadyElements>& ready);
  void Finish(const absl::Status& status);

  server::ServiceContext* const context_;
  const server::PrincipalRef principal_;
  const std::shared_ptr<Link> link_;
  LeaseBook* const leases_;
  Trace* const trace_;
  server::SessionUse session_;
  std::shared_ptr<server::SessionCommands> commands_;
  v1::SessionStreamRequest request_;  // the message that is being applied
  int64_t message_bytes_ = 0;         // the message's size
  bool applying_ = false;             // the message has arrived, and isn't completely applied
  bool begun_ = false;                // SessionCommands::Apply() has been called for the message
  bool on_worker_ = false;            // the next Continue() applies all that is left of the message
  bool reading_ = true;
  bool want_read_ = false;
  bool writing_ = false;
  bool draining_ = false;
  bool draining_sent_ = false;
  bool finished_ = false;
  bool detached_ = false;
};

}  // namespace tensord::simulation
