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
#include "tensord/client/tensor.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

// How a connection is encrypted; files are PEM. Each that is left out comes from the environment
// where it is set there.
struct TlsOptions {
  // Also where ca_file or cert_file is given. TENSORD_TLS=1.
  bool use = false;
  // The authorities that may have signed the server's certificate. TENSORD_TLS_CA; without it the
  // system's.
  std::string ca_file;
  // Who we are, for servers that want a certificate. TENSORD_TLS_CERT, TENSORD_TLS_KEY.
  std::string cert_file;
  std::string key_file;
  // The name that must be in the server's certificate, where it isn't the address's.
  // TENSORD_TLS_SERVER_NAME.
  std::string server_name;
};

struct ConnectOptions {
  // What this program calls itself, which the server keeps with the session; at most 128 bytes.
  std::string client_name;
  // How long Connect may take in all.
  absl::Duration connect_timeout = absl::Seconds(10);
  // How long the server keeps the session after this program is gone without a word. Zero: the
  // server's default. The server may grant less.
  absl::Duration lease = absl::ZeroDuration();
  // How long to try to come back to a server that can't be reached any more. Zero: as long as the
  // session's lease; negative: not at all.
  absl::Duration reconnect_timeout = absl::ZeroDuration();
  // How often an idle connection is probed, and how long an answer may take before the server
  // counts as gone. At least a second: servers take more for an attack.
  absl::Duration keepalive_interval = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // How long a read of a small tensor looks for its answer without going to sleep. It takes a core
  // for that time, and saves the tens of microseconds in which a thread wakes up.
  absl::Duration spin = absl::ZeroDuration();
  // What may be under way before a call waits for the server to take something in.
  int64_t max_pending_commands = 64 * 1024;
  int64_t max_pending_bytes = 64 * 1024 * 1024;
  // Large transfers to and from a server on the same host go through memory that it shares with
  // this program, where both can; otherwise, or where TENSORD_SHARED_MEMORY=0 is set, over the
  // connection.
  bool shared_memory = true;
  // Connections to Unix sockets aren't encrypted, whatever this says.
  TlsOptions tls;
  // Who we are, for servers that want a token: the token, or the file that holds it, which is read
  // by Connect. TENSORD_TOKEN_FILE names one in the environment. A token is sent to this machine or
  // over TLS: Connect fails with FAILED_PRECONDITION otherwise. It appears in no error, figure or
  // trace.
  std::string token;
  std::string token_file;
};

// What a server says of itself.
struct ServerInfo {
  std::string version;  // of the program: "0.1.0"
  int min_protocol_version = 0;
  int max_protocol_version = 0;
  std::vector<std::string> features;
  std::string epoch;  // new with every start of the server
  int64_t max_message_bytes = 0;
  std::string host_name;
  absl::Duration uptime;
  // The kinds of devices that the server could serve and its machine doesn't have, such as "cuda",
  // and why: "no NVIDIA driver found".
  std::map<std::string, std::string> unavailable_devices;
  std::string peer_address;  // where other servers find it; empty: nowhere
  // Who we are to it: the name of our token or certificate; empty where it doesn't ask.
  std::string caller;
};

// A tensor that the server holds.
struct TensorInfo {
  uint64_t handle = 0;
  TensorSpec spec;     // of dtype kUnspecified where there is no tensor: its op has failed
  std::string device;  // empty likewise
  int64_t size_bytes = 0;
  uint64_t session_number = 0;  // set by ListAllTensors: which session it belongs to
};

// What a server found when it tried another one, as if to fetch a tensor from there.
struct PeerCheck {
  // OK: it was reached, and would let the server fetch. PERMISSION_DENIED: the server's operator
  // hasn't listed it, or it doesn't take the server for one. UNAVAILABLE, UNAUTHENTICATED, …
  absl::Status status;
  ServerInfo server;  // what the other says of itself; without a version where it wasn't reached
  absl::Duration round_trip;  // of a small question
};

// How often calls waited, and for how long in all.
struct WaitStats {
  int64_t count = 0;
  absl::Duration time;
};

// What a connection has done so far.
struct ClientStats {
  int64_t commands_sent = 0;
  int64_t messages_sent = 0;   // on the command stream; the others rode along
  int64_t reconnects = 0;      // times the connection was lost, and made anew
  int64_t bytes_uploaded = 0;  // besides the command stream
  int64_t bytes_downloaded = 0;
  int64_t bytes_shared = 0;  // of both: what went through memory shared with the server
  // Copies to this server that came through this program, as servers couldn't do it between them
  // (Tensor::copy_report says why). With TENSORD_TRACE=1 each is told on standard error.
  int64_t copies_relayed = 0;
  // Of those: what went through this program at once, as an earlier copy had found the way between
  // the two servers shut. It is tried again after half a minute, later after up to four minutes,
  // and when a connection to one of the two was made anew.
  int64_t copies_untried = 0;
  // Times a call waited for the server, and for how long: the sum of those below. Making and
  // computing tensors doesn't wait, and so doesn't count. With TENSORD_TRACE=1 in the environment
  // each wait is also told on standard error: what for, how long, how many bytes.
  int64_t waits = 0;
  absl::Duration waited;
  WaitStats reads;         // for a tensor's elements
  WaitStats uploads;       // for more than kMaxInlineBytes to be taken in
  WaitStats tensor_waits;  // Tensor::Wait, and a large read that asks first
  WaitStats synchronizes;  // Synchronize, and questions that must not overtake what was sent
  WaitStats questions;     // ListDevices and the like
  WaitStats full_pipes;    // for room: as much as may be was under way
};

// A handle on a connection and its session; copies share them. Usable from any number of threads.
//
// The session is closed, and all its tensors freed, by Close() or when the last Client, Device and
// Tensor of it is gone. When the network breaks, the client comes back by itself and goes on where
// it was, each op applied once: what waits for the server waits longer, for at most
// ConnectOptions::reconnect_timeout. After that, and when the server shuts down, everything under
// way and everything later returns UNAVAILABLE; where the server has started anew, or has given the
// session up, DATA_LOSS.
//
// Fork. A connection belongs to the process that made it. In a child that was forked after its
// parent began its first Connect, calls that would use the connection return FAILED_PRECONDITION,
// and so does Connect. Close and destructors have no effect in the child, so the parent can go on.
// The child may exec a program that connects. All of this holds for Device, Tensor, Program, Group
// and Cluster, too (client/README.md, section Fork).
class Client {
 public:
  // No connection: every call fails with FAILED_PRECONDITION.
  Client() = default;

  // Opens a session at `address`, "host:port" or "unix:/path", and reads the list of devices.
  // Blocks. Errors:
  //   INVALID_ARGUMENT     `address` or `options` is malformed.
  //   UNAVAILABLE          no server answers in connect_timeout, the host's name isn't resolved,
  //                        or the other end closes each connection. The message names the address.
  //   UNAUTHENTICATED      the server doesn't accept the client's credentials.
  //   FAILED_PRECONDITION  the server supports no protocol version of this client, or this process
  //                        is a child that was forked after its parent began its first Connect.
  static absl::StatusOr<Client> Connect(absl::string_view address,
                                        const ConnectOptions& options = {});

  // As told to Connect.
  const std::string& address() const;
  // As of Connect.
  const ServerInfo& info() const;
  const std::string& epoch() const { return info().epoch; }
  // The number under which ListAllTensors shows this session.
  uint64_t session_number() const;
  // The lease that the server granted.
  absl::Duration lease() const;

  // The server's devices, in its order.
  std::vector<Device> devices() const;
  // "cuda:1"; "cuda" is "cuda:0". NOT_FOUND, naming those that are there, where there is none.
  absl::StatusOr<Device> device(absl::string_view name) const;
  // Rejects nullptr, which would otherwise convert to an absl::string_view.
  absl::StatusOr<Device> device(std::nullptr_t) const = delete;
  // Returns devices()[index]. If `index` is out of range, returns OUT_OF_RANGE with the number of
  // devices. A default-constructed Client returns FAILED_PRECONDITION.
  absl::StatusOr<Device> device(int index) const;
  // cuda:i where there is one, cpu:0 otherwise. Not valid() where there is neither.
  Device TryDevice(int i = 0) const;
  // Every GPU, or cpu:0 alone where there is none.
  std::vector<Device> TryAllDevices() const;

  // The following ask the server and wait for its answer; all but GetServerInfo and CheckPeer wait
  // for everything sent so far to have run.
  absl::StatusOr<ServerInfo> GetServerInfo() const;
  absl::StatusOr<std::vector<DeviceInfo>> ListDevices() const;
  // The figures of one device, now.
  absl::StatusOr<MemoryInfo> memory(const Device& device) const;
  // This session's tensors.
  absl::StatusOr<std::vector<TensorInfo>> ListTensors() const;
  // Those of every session of ours: who opened one sees it.
  absl::StatusOr<std::vector<TensorInfo>> ListAllTensors() const;
  // Whether the server can fetch from another one, whose ServerInfo::peer_address this is. What is
  // wrong between the two is in the answer, and UNIMPLEMENTED is from a server too old to say.
  absl::StatusOr<PeerCheck> CheckPeer(absl::string_view address) const;
  // Waits until everything sent so far has run. Returns the first error found by the server that no
  // read, Wait or Synchronize has returned yet, if any.
  absl::Status Synchronize() const;

  // Lends a tensor to others. They open it without a copy by the name and who we are; our own
  // sessions may, too. `principals`: who they are to the server, such as "alice" by a token,
  // "cn:bob" by a certificate. Waits for the tensor. The name lasts until Unpublish or the end of
  // this session; what was opened lives on. ALREADY_EXISTS where another tensor of ours has the
  // name.
  absl::Status Publish(const Tensor& tensor, absl::string_view name,
                       const std::vector<std::string>& principals = {}) const;
  // NOT_FOUND where nothing of ours has the name.
  absl::Status Unpublish(absl::string_view name) const;
  // A tensor that `owner` (empty: we ourselves) has published to us. NOT_FOUND where there is none.
  absl::StatusOr<Tensor> Open(absl::string_view name, absl::string_view owner = "") const;

  // OK while the connection stands or is being made anew; UNAVAILABLE with the reason once it is
  // lost for good, FAILED_PRECONDITION once it is closed.
  absl::Status status() const;
  // Whether it stands at this moment, as far as is known.
  bool connected() const;
  ClientStats stats() const;

  // Ends the session now, in bounded time, whoever still holds tensors of it: those then fail with
  // FAILED_PRECONDITION. Without effect the second time.
  void Close();

 private:
  friend class Cluster;
  explicit Client(std::shared_ptr<internal::Session> session) : session_(std::move(session)) {}

  std::shared_ptr<internal::Session> session_;
};

}  // namespace tensord
