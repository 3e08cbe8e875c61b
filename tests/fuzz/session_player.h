// A client without a network, for fuzzers to play: its session, the connections that carry its
// commands, an upload, and what it lends to another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/rpc/stream/session_commands.h"
#include "tensord/server/session/session_table.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// A server's engine and sessions, on two CPU devices of 4 MiB: small enough that every input is
// quick. One for all inputs. Devices run when they are told to, so that an input always does the
// same.
struct FuzzWorld {
  FuzzWorld();

  // Has a device do a little of what it has been given.
  void RunTurn(int device);

  // Waits until the devices have nothing to do.
  void Drain();
  // Aborts where a byte of a device is in use.
  void CheckEmpty();

  Engine engine;
  SessionTable sessions;
  ServiceContext context;
};

// Does what the handlers of service_*.cc, write_stream.cc and session_stream.cc do with a message,
// from one thread. Whatever comes: a Status, or nothing.
class SessionPlayer {
 public:
  // Opens a session of that principal.
  SessionPlayer(FuzzWorld* world, absl::string_view principal);
  ~SessionPlayer();  // closes it

  // A message on the session's stream. The first of a connection attaches it, as those after an
  // error, which ends a connection, do.
  void Send(const v1::SessionStreamRequest& message);
  // The connection breaks, noticed or not: then the next takes its place.
  void Cut(bool noticed);
  // What there is to say goes out, fetched elements read.
  void Read(bool must_ack);

  // A message of Write: the first has a spec. Bytes, as they come.
  void Write(const std::string& message);
  void EndWrite();
  void BreakOffWrite();
  void GetUpload(uint64_t handle);

  void Publish(const v1::PublishTensorRequest& request);
  void Open(const v1::OpenPublishedRequest& request);
  void Unpublish(absl::string_view name);

 private:
  class Wire;

  void Land(grpc::ByteBuffer* message, const WriteChunk& chunk);
  absl::Status BeginWrite(v1::WriteSpec spec);

  FuzzWorld* const world_;
  const PrincipalRef principal_;
  SessionRef session_;
  std::shared_ptr<SessionCommands> commands_;
  std::shared_ptr<Wire> wire_;
  std::vector<std::shared_ptr<Wire>> broken_;  // connections whose end nobody has noticed
  uint64_t received_ = 0;
  std::unique_ptr<TensorUpload> upload_;
  std::shared_ptr<std::atomic<bool>> stop_;  // somebody wants the upload broken off
};

}  // namespace tensord::server
