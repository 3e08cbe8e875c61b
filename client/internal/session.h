// What a Client, its Devices and its Tensors share: the connection and the session on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/client.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/common/attributes.h"
#include "tensord/common/device_name.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/common/util/mutex.h"

namespace grpc {
class Status;
}
namespace tensord::v1 {
class Collective;
class WriteSpec;
}  // namespace tensord::v1

namespace tensord::internal {

// A session of the server, its command stream and its calls. Thread-safe. The last reference must
// not be released on a thread of the session itself (its stream's): the destructor joins that. The
// process's background threads (background.h) may release it.
//
// In a forked child (fork_guard.h), functions that would use the connection return ForkedError();
// those that return no status have no effect there.
class Session {
 public:
  // Connects and opens a session, as Client::Connect. Blocks. `label`: the server's name in a
  // cluster.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const std::string& address,
                                                       const ConnectOptions& options,
                                                       const std::string& label = "");
  // Ends the session. In a forked child, leaves the connection as it is: the parent uses it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // These are fixed by Open.
  const std::string& address() const { return address_; }
  const ServerInfo& info() const { return info_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // Returns nullptr if the server has no such device.
  const DeviceInfo* FindDevice(DeviceName name) const;
  uint64_t number() const { return number_; }
  absl::Duration lease() const { return lease_; }
  // The secret that identifies the session to the server.
  const std::string& id() const { return id_; }
  // The server's name in its cluster, which stands before the names of its devices. Empty for the
  // server of a Client.
  const std::string& label() const { return label_; }
  // "cuda:0", in a cluster "gpu-a/cuda:0".
  std::string NameOf(DeviceName device) const;

  // A handle that no tensor of the session has had.
  uint64_t NextHandle();

  // Commands. They are queued for the stream and don't wait for the server, unless more are under
  // way than ConnectOptions allow. The error is that the session has ended; nothing is sent then.

  // An op with inputs into a new handle. The error may also be that of the op's inference.
  absl::StatusOr<QueuedOp> SendOp(absl::string_view op, absl::Span<const QueuedInput> inputs,
                                  const Attributes& attrs);
  // An op without inputs into `output`.
  absl::Status SendCreation(absl::string_view op, DeviceName device, uint64_t output,
                            const Attributes& attrs);
  // Defines an op for use in programs, and returns its number on the stream. RESOURCE_EXHAUSTED if
  // the stream has too many.
  absl::StatusOr<uint32_t> DefineOp(absl::string_view op, size_t num_inputs,
                                    const Attributes& attrs);
  // Has the server keep a program (v1::Program), and returns its number. RESOURCE_EXHAUSTED if the
  // stream has too many.
  absl::StatusOr<uint32_t> SendProgram(DeviceName device, absl::Span<const TensorSpec> inputs,
                                       absl::Span<const uint32_t> ops,
                                       absl::Span<const uint32_t> outputs);
  // Runs a program, whose results become the new handles in `outputs`.
  absl::Status SendRun(uint32_t program, absl::Span<const uint64_t> inputs, size_t num_outputs,
                       std::vector<uint64_t>* outputs);
  // Has the server free a program, which must not be run afterwards.
  void DropProgram(uint32_t number);
  // Copies `input` to another device of the server, as `output`.
  absl::Status SendCopy(uint64_t input, uint64_t output, DeviceName device);
  // Has the server free a handle. Never waits.
  void Drop(uint64_t handle);
  // Makes `handle`, whose elements a Write or PullTensor with the returned spec brings.
  absl::StatusOr<v1::WriteSpec> Promise(uint64_t handle, const TensorSpec& spec, DeviceName device);
  // Gives a promised handle this error, because no call will bring its elements.
  void FailPromise(uint64_t handle, const absl::Status& error);
  // Members of groups (group.h): a number for a new one, its part of an operation, and its end once
  // all operations before have run.
  uint32_t NextMember() { return ++last_member_; }
  absl::Status SendCollective(const v1::Collective& collective);
  void LeaveGroup(uint32_t member);
  // Has the commands so far sent although no thread may wait for an answer: sends what is held back
  // and wakes the stream's own thread, which then polls. Returns the number of the last command,
  // for the field after_command of a call that must not overtake it. 0 in a forked child.
  uint64_t FlushCommands();

  // The following block until the server has answered.

  // Makes `handle` from `data`, spec.size_bytes() of it. After an error the handle is dropped.
  absl::Status Upload(uint64_t handle, const TensorSpec& spec, DeviceName device,
                      absl::Span<const uint8_t> data, const TransferOptions& options);
  // Fills `out`, spec.size_bytes() of it, with the elements of `handle`. After an error the
  // contents of `out` are undefined.
  absl::Status Download(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out,
                        const TransferOptions& options);
  // Brings the elements of a promised handle. After an error it is still promised.
  absl::Status FillPromise(const v1::WriteSpec& write, absl::Span<const uint8_t> data);
  // Blocks until the work that makes `handle` has finished or failed, and returns its error.
  absl::Status Await(uint64_t handle);
  // Blocks until everything sent so far has run. The error is that the session has ended; errors of
  // what has run aren't returned.
  absl::Status Barrier();
  // Barrier, and then the first error that no function has returned yet.
  absl::Status Synchronize();

  // As Client's.
  absl::Status Publish(uint64_t handle, absl::string_view name,
                       const std::vector<std::string>& principals);
  absl::Status Unpublish(absl::string_view name);
  absl::StatusOr<TensorInfo> OpenPublished(absl::string_view name, absl::string_view owner);

  absl::StatusOr<ServerInfo> GetServerInfo();
  absl::StatusOr<PeerCheck> CheckPeer(absl::string_view address);
  absl::StatusOr<std::vector<DeviceInfo>> ListDevices();
  absl::StatusOr<std::vector<TensorInfo>> ListTensors(bool all_sessions);

  // OK until the session has ended, then the reason.
  absl::Status status() const;
  // Whether the stream is connected. If not, it reconnects, or status() says why it doesn't.
  bool connected() const;
  ClientStats stats() const;
  // Ends the session at the server, in bounded time. No effect the second time.
  void Close();

  // For calls that other classes make. They must have ended before the session is destroyed.
  struct Connection;
  Connection& connection() { return *connection_; }
  // Converts the status of such a call. If it is CANCELLED or UNAVAILABLE because the session has
  // ended, returns why that has ended.
  absl::Status Outcome(const grpc::Status& status) const;

 private:
  Session(std::string address, std::string label, std::unique_ptr<Connection> connection);
  // The calls of Open: checks the protocol version, lists the devices, opens the session.
  absl::Status Handshake(const ConnectOptions& options);
  absl::Status Push(const v1::Command& command);
  // Runs `call`, which makes a call in the context that it is given, and runs it again each time
  // the connection broke: the server may see the call twice. Returns the last outcome.
  template <typename Call>
  absl::Status CallWithRetry(Call call);
  // Makes a unary call of the service with CallWithRetry, each attempt within `timeout`.
  template <typename Method, typename Request, typename Response>
  absl::Status Ask(Method method, const Request& request, Response* response,
                   absl::Duration timeout);
  // If the call failed with its connection, blocks until the stream is connected again. Returns
  // whether it is, so that the call may be made again.
  bool AwaitReconnect(const grpc::Status& status);
  // Continues an upload that failed with `status`, if its connection broke: asks the server what it
  // has received, and sends the rest. Returns the last status.
  grpc::Status ResumeUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                            const TransferOptions& options, grpc::Status status);
  // Makes the call that ends the session, in bounded time. `alive`: the stream hasn't ended;
  // `connected`: it is connected.
  void EndAtServer(bool alive, bool connected);
  absl::Status Fetch(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out);

  const std::string address_;
  const std::string label_;
  std::unique_ptr<Connection> connection_;  // only the destructor moves it
  ServerInfo info_;
  std::vector<DeviceInfo> devices_;
  std::string id_;
  uint64_t number_ = 0;
  absl::Duration lease_;
  // The number of commands that the last finished Barrier covered.
  std::atomic<uint64_t> settled_commands_{0};
  std::atomic<uint32_t> last_member_{0};

  Mutex close_mu_;
  bool closed_ ABSL_GUARDED_BY(close_mu_) = false;
};

}  // namespace tensord::internal
