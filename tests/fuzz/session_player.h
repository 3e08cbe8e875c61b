// A client without a network, for fuzz targets: its session, connections, uploads and shared
// tensors.
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

// A server's engine and sessions, on two CPU devices of 4 MiB; the small size keeps all inputs
// fast. All inputs share one world. Devices run only in RunSlice() and Drain(), so that an input
// always has the same effect.
struct FuzzWorld {
  FuzzWorld();

  // Runs a part of the device's tasks.
  void RunSlice(int device);

  // Runs all tasks of all devices.
  void Drain();
  // Aborts if device memory is in use.
  void CheckEmpty();

  Engine engine;
  SessionTable sessions;
  ServiceContext context;
};

// Handles messages on one thread, as the handlers of service_*.cc, write_stream.cc and
// session_stream.cc do. Ignores their errors, but aborts if an invariant is violated. Not
// thread-safe.
class SessionPlayer {
 public:
  // Opens a session of this principal. The destructor closes it.
  SessionPlayer(FuzzWorld* world, absl::string_view principal);
  ~SessionPlayer();

  // Handles a message of the session's stream. If there is no connection, attaches one first. An
  // error ends the connection.
  void Send(const v1::SessionStreamRequest& message);
  // Breaks the connection. If the break isn't `noticed`, the server keeps the connection until a
  // new one takes its place.
  void Cut(bool noticed);
  // Takes all responses that are ready, and reads the fetched elements.
  void Read(bool must_ack);

  // Handles the bytes of a Write message. The first message of an upload has a spec.
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
  std::vector<std::shared_ptr<Wire>> broken_;  // connections whose break the server hasn't noticed
  uint64_t received_ = 0;
  std::unique_ptr<TensorUpload> upload_;
  std::shared_ptr<std::atomic<bool>> stop_;  // true if the upload must stop
};

}  // namespace tensord::server
