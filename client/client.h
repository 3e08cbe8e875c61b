// A connection to a tensord server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tensord/client/device.h"
#include "tensord/client/status_or_vector.h"
#include "tensord/client/tensor.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

// How connections are encrypted. Files are PEM. If a field isn't set, the client uses the
// environment variable that its comment names.
struct TlsOptions {
  // TENSORD_TLS=1. If ca_file or cert_file is set, the client uses TLS, too.
  bool use = false;
  // TENSORD_TLS_CA. The authorities that may have signed the server's certificate. Default: those
  // of the system.
  std::string ca_file;
  // TENSORD_TLS_CERT, TENSORD_TLS_KEY. The client's certificate and its key, for servers that
  // authenticate clients by certificate.
  std::string cert_file;
  std::string key_file;
  // TENSORD_TLS_SERVER_NAME. The name that the server's certificate must have. Default: the host of
  // the address.
  std::string server_name;
};

struct ConnectOptions {
  // A name of this program, which the server keeps with the session. At most 128 bytes.
  std::string client_name;
  // The time limit of Connect.
  absl::Duration connect_timeout = absl::Seconds(10);
  // How long the server keeps the session after it has lost the connection. Zero asks for the
  // server's default. The server may grant less.
  absl::Duration lease = absl::ZeroDuration();
  // How long the client tries to reconnect after it has lost the connection. If it is zero, the
  // client tries as long as the session's lease. If it is negative, the client doesn't try.
  absl::Duration reconnect_timeout = absl::ZeroDuration();
  // How often the client probes an idle connection, and how long it waits for the answer before it
  // counts the connection as lost. Intervals below a second count as a second: servers close
  // connections that probe more often.
  absl::Duration keepalive_interval = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // A thread that waits for an answer polls for this time before it sleeps. Polling uses a core,
  // and saves the tens of microseconds that waking up takes.
  absl::Duration spin = absl::ZeroDuration();
  // Limits the commands, and their bytes, that the server hasn't acknowledged yet. At a limit, the
  // next call waits (backpressure). Both must be at least 1.
  int64_t max_pending_commands = 64 * 1024;
  int64_t max_pending_bytes = 64 * 1024 * 1024;
  // Large transfers to and from a server on the same host go through memory that it shares with
  // this program, if both allow it. TENSORD_SHARED_MEMORY=0 in the environment switches this off.
  bool shared_memory = true;
  // The maximum number of connections that one upload of 32 MiB or more uses, if it doesn't use
  // shared memory. One connection encrypts no faster than one core. At most 8. With 0, the client
  // uses one connection without TLS, and with TLS one for every two cores of this machine, at most
  // 4. It opens the further connections at the first such upload, and closes them after 30 idle
  // seconds. If the server refuses one, uploads use fewer.
  int max_upload_connections = 0;
  // Has no effect for Unix sockets, whose connections aren't encrypted.
  TlsOptions tls;
  // The client's token, for servers that authenticate clients by token: the token itself, or a file
  // that Connect reads. If neither is set, TENSORD_TOKEN_FILE names the file. The client sends a
  // token only to this machine or over TLS; otherwise Connect returns FAILED_PRECONDITION. Errors
  // and the trace never contain the token.
  std::string token;
  std::string token_file;
};

// What a server reports about itself.
struct ServerInfo {
  std::string version;  // of the program, as in "1.2.3"
  int min_protocol_version = 0;
  int max_protocol_version = 0;
  std::vector<std::string> features;
  std::string epoch;  // new with every start of the server
  int64_t max_message_bytes = 0;
  std::string host_name;
  absl::Duration uptime;
  // The kinds of devices that the server supports but can't offer, such as "cuda", and why: "no
  // NVIDIA driver found".
  std::map<std::string, std::string> unavailable_devices;
  std::string peer_address;  // the address for other servers; empty if it has none
  // This client's identity at the server: the name of its token or certificate. If the server
  // hasn't authenticated this client, it is empty, and lists of sessions show "(anonymous)".
  std::string caller;
};

// A tensor that the server holds.
struct TensorInfo {
  uint64_t handle = 0;
  TensorSpec spec;         // dtype kUnspecified if the server refused the op that makes the tensor
  std::string device;      // empty if the server refused the op
  int64_t size_bytes = 0;  // 0 if the tensor has failed
  uint64_t session_number = 0;  // the tensor's session; set by ListAllTensors
  absl::Status status;          // why the tensor has failed, perhaps cut short; otherwise OK
  std::string principal;        // the owner of the session; set by ListTensorsOfAllPrincipals
};

// The result of a server's check whether it can fetch tensors from another server.
struct PeerCheck {
  // OK means that this server reached the other server and may fetch from it. PERMISSION_DENIED
  // means that this server's operator hasn't listed the other server (tensord --peers), or that the
  // other server doesn't accept this one as a peer. Other codes, such as UNAVAILABLE and
  // UNAUTHENTICATED, say why this server didn't reach it.
  absl::Status status;
  ServerInfo server;          // of the other server; `version` is empty if it wasn't reached
  absl::Duration round_trip;  // of a small call
};

// How many calls waited, and the sum of their waits.
struct WaitStats {
  int64_t count = 0;
  absl::Duration time;
};

// What a connection has done so far.
struct ClientStats {
  int64_t commands_sent = 0;     // or queued to be sent
  int64_t messages_sent = 0;     // on the command stream; each carries one command or more
  int64_t reconnects = 0;        // how often the connection was lost and made again
  int64_t bytes_uploaded = 0;    // by uploads outside the command stream
  int64_t bytes_downloaded = 0;  // by reads of more than 1 MiB
  int64_t bytes_shared = 0;      // the part of both that went through shared memory
  // Copies to this server that went through this program because the servers couldn't transfer them
  // directly (Tensor::copy_report says why). With TENSORD_TRACE=1 in the environment, each is
  // reported on standard error.
  int64_t copies_relayed = 0;
  // The part of copies_relayed that didn't try the direct route, because an earlier copy had failed
  // on it. A copy tries the route again after 30 s (up to 240 s after repeated failures), or when
  // this program has reconnected to one of the two servers.
  int64_t copies_route_skipped = 0;
  // How many calls waited for the server, and how long: the sums over the kinds below. Making and
  // computing tensors doesn't wait. With TENSORD_TRACE=1 in the environment, the library reports
  // each wait on standard error with its subject, its duration and the number of bytes.
  int64_t waits = 0;
  absl::Duration waited;
  WaitStats reads;             // for a tensor's elements
  WaitStats uploads;           // for the server to receive more than kMaxInlineBytes
  WaitStats tensor_waits;      // Tensor::Wait, Client::Publish, and reads of more than 64 MiB
  WaitStats synchronizes;      // Synchronize, and calls that first wait until all commands have run
  WaitStats info_calls;        // ListDevices and other calls that return information
  WaitStats full_queue_waits;  // for max_pending_commands or max_pending_bytes
};

// A handle on a connection and its session. A Client is a value: copies share both. Thread-safe.
//
// The session ends, and the server frees all its tensors, when Close is called or when the last
// Client, Device, Tensor, Program and Group of it is destroyed. If the connection breaks, the
// client reconnects and continues, with each op applied once: calls that wait for the server wait
// longer, for at most ConnectOptions::reconnect_timeout. After that time, or if the server shuts
// down, calls under way and later calls return UNAVAILABLE. If the server has been restarted, or
// the session's lease has run out, they return DATA_LOSS.
//
// Fork. A connection belongs to the process that made it. In a child that was forked after its
// parent began its first Connect, calls that would use the connection return FAILED_PRECONDITION,
// and so does Connect. Close and destructors have no effect in the child, so the parent keeps its
// connection. The child may exec a program that connects. The same holds for Device, Tensor,
// Program, Group and Cluster (client/README.md, section Fork).
class Client {
 public:
  // Makes a Client without a connection. Every call fails with FAILED_PRECONDITION.
  Client() = default;

  // Opens a session at `address`, "host:port" or "unix:/path", and reads the list of devices.
  // Blocks. Errors:
  //   INVALID_ARGUMENT     `address` or `options` is malformed.
  //   UNAVAILABLE          no server answers in connect_timeout, the host's name isn't resolved,
  //                        or the other end closes each connection. The message names the address.
  //   UNAUTHENTICATED      the server doesn't accept the client's credentials.
  //   NOT_FOUND            a file of the credentials doesn't exist.
  //   FAILED_PRECONDITION  the server supports no protocol version of this client; or the token
  //                        must not be sent without TLS; or this process is a child that was
  //                        forked after its parent began its first Connect.
  //   RESOURCE_EXHAUSTED   the caller or the server has too many sessions.
  static absl::StatusOr<Client> Connect(absl::string_view address,
                                        const ConnectOptions& options = {});

  // Returns the address given to Connect. Without a connection, returns "".
  const std::string& address() const;
  // Returns what the server reported at Connect. Without a connection, returns default values.
  const ServerInfo& info() const;
  const std::string& epoch() const { return info().epoch; }
  // Returns the number under which ListAllTensors shows this session.
  uint64_t session_number() const;
  // Returns the lease that the server granted.
  absl::Duration lease() const;

  // Returns the server's devices, in its order.
  std::vector<Device> devices() const;
  // Returns the device named "cuda:1"; "cuda" is "cuda:0". If the server has no such device,
  // returns NOT_FOUND with the names of its devices and the reason in
  // ServerInfo::unavailable_devices. If `name` is malformed, returns INVALID_ARGUMENT.
  absl::StatusOr<Device> device(absl::string_view name) const;
  // Rejects nullptr, which would otherwise convert to an absl::string_view.
  absl::StatusOr<Device> device(std::nullptr_t) const = delete;
  // Returns devices()[index]. If `index` is out of range, returns OUT_OF_RANGE with the number of
  // devices. A default-constructed Client returns FAILED_PRECONDITION.
  absl::StatusOr<Device> device(int index) const;
  // Returns the number of devices of a kind: DeviceCount(DeviceKind::kCuda) is the number of GPUs.
  int DeviceCount(DeviceKind kind) const;
  // Returns whether the server has a device of a kind. If it has none,
  // ServerInfo::unavailable_devices may say why.
  bool IsAvailable(DeviceKind kind) const { return DeviceCount(kind) > 0; }
  // Returns the GPU with index `i` among the GPUs of devices(). Every device that isn't a CPU
  // counts as a GPU. If there is none, returns cpu:0. If there is neither, returns a Device that
  // isn't valid().
  Device TryDevice(int i = 0) const;
  // Returns every GPU. If there is none, returns cpu:0 alone.
  std::vector<Device> TryAllDevices() const;

  // The following functions block until the server has answered. ListDevices, memory and
  // the functions that list tensors first wait until everything sent so far has run.

  absl::StatusOr<ServerInfo> GetServerInfo() const;
  StatusOrVector<DeviceInfo> ListDevices() const;
  // Returns the memory figures of one device. If the device isn't one of this connection, returns
  // INVALID_ARGUMENT.
  absl::StatusOr<MemoryInfo> memory(const Device& device) const;
  // Returns this session's tensors.
  StatusOrVector<TensorInfo> ListTensors() const;
  // Returns the tensors of all sessions with this client's identity (ServerInfo::caller).
  StatusOrVector<TensorInfo> ListAllTensors() const;
  // Returns the tensors of all sessions of all principals. If this client's token doesn't have the
  // flag "admin", returns PERMISSION_DENIED.
  StatusOrVector<TensorInfo> ListTensorsOfAllPrincipals() const;
  // Makes the server check whether it can fetch from the server whose ServerInfo::peer_address is
  // `address`. PeerCheck::status has the result. If the call to this server fails, returns its
  // error: UNIMPLEMENTED if the server is too old.
  absl::StatusOr<PeerCheck> CheckPeer(absl::string_view address) const;
  // Waits until everything sent so far has run. Returns the first error that the server has found
  // and that no read, Wait or Synchronize has returned yet. If there is none, returns OK.
  absl::Status Synchronize() const;

  // Shares a tensor with other clients, which open it without a copy (Open). `principals` are their
  // identities at the server, such as "alice" (a token) or "cn:bob" (a certificate). Sessions
  // with this client's own identity may also open it. Waits for the tensor, and returns its error
  // if it has one. The name lasts until Unpublish or the end of this session; tensors that were
  // opened stay valid. If `tensor` is published under the name already, `principals` replaces the
  // earlier list: identities that aren't in it can't open the tensor any more. If another published
  // tensor of this identity has the name, returns ALREADY_EXISTS. If `tensor` belongs to another
  // connection, returns INVALID_ARGUMENT.
  absl::Status Publish(const Tensor& tensor, absl::string_view name,
                       const std::vector<std::string>& principals = {}) const;
  // Ends the sharing. If no published tensor of this identity has the name, returns NOT_FOUND.
  absl::Status Unpublish(absl::string_view name) const;
  // Opens a tensor that the identity `owner` has shared with this identity. An empty `owner` means
  // this identity itself. If there is no such tensor, returns NOT_FOUND.
  absl::StatusOr<Tensor> Open(absl::string_view name, absl::string_view owner = "") const;

  // The following functions don't contact the server, except Close.

  // Returns OK while the client is connected or reconnects. If the session has ended, returns
  // UNAVAILABLE or DATA_LOSS with the reason. A session may also end because an administrator or
  // another program of the same identity closed it (tensorctl close). After Close, returns
  // FAILED_PRECONDITION.
  absl::Status status() const;
  // Returns whether the client is connected. A broken connection counts as connected until the
  // client detects the break.
  bool connected() const;
  ClientStats stats() const;

  // Ends the session. Blocks for at most about two seconds. Calls on its remaining tensors then
  // fail with FAILED_PRECONDITION. A second call has no effect.
  void Close();

 private:
  friend class Cluster;
  explicit Client(std::shared_ptr<internal::Session> session) : session_(std::move(session)) {}

  std::shared_ptr<internal::Session> session_;
};

}  // namespace tensord
