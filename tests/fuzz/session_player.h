// A client without a network, for fuzz targets: its sessions, connections, uploads, shared tensors
// and tickets.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
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
  // Runs all tasks. Then aborts if device memory is in use, or if memory or objects are charged to
  // a principal. Call it when both clients have been destroyed.
  void CheckEmpty();

  // The principals of the two clients. A principal's charges exist only as long as the principal,
  // so these references keep them for CheckEmpty().
  const PrincipalRef one;
  const PrincipalRef other;
  Engine engine;
  SessionTable sessions;
  ServiceContext context;
};

// Handles messages on one thread, as the handlers in server/rpc/unary/, bulk/, peer/ and stream/
// do. Ignores errors of the messages, but aborts if an invariant is violated. Not thread-safe.
class SessionPlayer {
 public:
  // Opens a session of this principal. The destructor closes it.
  SessionPlayer(FuzzWorld* world, PrincipalRef principal);
  ~SessionPlayer();

  // How much of a message is applied: as little as possible, or all.
  enum class Slice { kSmallest, kAll };
  // Handles a message of the session's stream: applies the first slice of the message. If there is
  // no connection, attaches one before. An error ends the connection.
  void Send(const v1::SessionStreamRequest& message, Slice slice);
  // Applies the next slice of each unfinished message, of this connection and of earlier ones.
  void Continue(Slice slice);
  // Breaks the connection. If its message is unfinished, Continue() still applies the rest. If the
  // break isn't `noticed`, the server keeps the connection until a new one takes its place.
  void Cut(bool noticed);
  // Closes the session, breaks the connection, and opens another session. The message and the
  // upload of the closed session may be unfinished.
  void Close();
  // Takes all responses that are ready, and reads the requested elements.
  void Read(bool must_ack);

  // Handles the bytes of a Write message. The first message of an upload has a spec.
  void Write(const std::string& message);
  void EndWrite();
  void AbortWrite();
  void GetUpload(uint64_t handle);

  void Publish(const v1::PublishTensorRequest& request);
  void Open(const v1::OpenPublishedRequest& request);
  void Unpublish(absl::string_view name);

  void CreateTicket(const v1::CreateTicketRequest& request);
  // Handle the first message of another server's Fetch, and its ReleaseTicket. A fuzz input can't
  // contain a valid ticket. So the size of request.ticket() selects one of the tickets that were
  // issued.
  void Fetch(const v1::FetchRequest& request);
  void ReleaseTicket(const v1::ReleaseTicketRequest& request);
  // Ends the oldest fetch. `finished` says that the other server has received all bytes.
  void EndFetch(bool finished);

 private:
  class Wire;

  void OpenSession();
  // Applies a slice of the wire's message: the first one if `begin`, otherwise the next one.
  void Apply(Wire& wire, bool begin, Slice slice);
  // Detaches the connections that have ended, except those whose message is unfinished.
  void DetachEnded();
  void StoreChunk(grpc::ByteBuffer* message, const WriteChunk& chunk);
  absl::Status BeginWrite(v1::WriteSpec spec);

  FuzzWorld* const world_;
  const PrincipalRef principal_;
  SessionRef session_;
  std::shared_ptr<SessionCommands> commands_;
  std::shared_ptr<Wire> wire_;                // the client's connection, or null
  std::vector<std::shared_ptr<Wire>> wires_;  // the connections that the server has; oldest first
  uint64_t received_ = 0;
  std::unique_ptr<TensorUpload> upload_;
  std::shared_ptr<std::atomic<bool>> stop_;  // true if the upload must stop
  std::vector<std::string> tickets_;
  std::deque<std::unique_ptr<Tickets::Use>> fetches_;
};

}  // namespace tensord::server
