// The connection and the session that a Client, its Devices and its Tensors share.
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
#include "tensord/client/internal/dtype_support.h"
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

class UploadPlan;

// The largest read that uses the command stream. A larger one is a Read call of its own.
inline constexpr int64_t kMaxGetElementsBytes = 1024 * 1024;

// The sessions whose tensors are listed: this session, all sessions of its principal, or all
// sessions of all principals.
enum class TensorScope { kSession, kPrincipal, kAllPrincipals };

// A session at a server, its command stream and its calls. Thread-safe. The stream's thread must
// not release the last reference, because the destructor joins that thread. The process's
// background threads (background.h) may release it.
//
// A call that blocks returns CANCELLED early if its thread is interrupted (interruption.h).
//
// In a forked child (fork_guard.h), functions that would use the connection return ForkedError().
// Functions that return no status have no effect there.
class Session {
 public:
  // Connects and opens a session, as Client::Connect does. Blocks. `label` is the server's name in
  // a cluster.
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
  // If the server lacks the dtype, returns UNIMPLEMENTED. `what` is the op or call that needs it.
  absl::Status CheckDType(absl::string_view what, DType dtype) const {
    return dtype_support_.Check(what, dtype);
  }
  // If the server has no such device, returns nullptr.
  const DeviceInfo* FindDevice(DeviceName name) const;
  // Parses the name of a device of this server ("cuda:1", "cuda"). If the server has no such
  // device, returns NOT_FOUND with the names of its devices, and the reason that the server gives
  // if it can't offer this kind.
  absl::StatusOr<DeviceName> ParseDevice(absl::string_view name) const;
  uint64_t number() const { return number_; }
  absl::Duration lease() const { return lease_; }
  // The secret that identifies the session to the server.
  const std::string& id() const { return id_; }
  // The server's name in its cluster, which stands before the names of its devices. Empty for the
  // server of a Client.
  const std::string& label() const { return label_; }
  // Returns "cuda:0". In a cluster, returns "gpu-a/cuda:0".
  std::string NameOf(DeviceName device) const;

  // Returns a handle that no tensor of the session has had. In a forked child, returns 0.
  uint64_t NextHandle();

  // Commands. The functions queue a command for the stream and don't wait for the server, unless
  // the queue is full (ConnectOptions::max_pending_commands). If the session has ended, they send
  // nothing and return the reason.

  // Runs an op. Its outputs have new handles: sets `*queued`. If inference fails, returns its error.
  absl::Status SendOp(const OpToQueue& op, QueuedOp* queued);
  // Sends a program (v1::Program), which the server keeps, and returns its number. If the stream
  // has too many programs, or the program has too many ops, returns RESOURCE_EXHAUSTED.
  absl::StatusOr<uint32_t> SendProgram(DeviceName device, absl::Span<const TensorSpec> inputs,
                                       absl::Span<const ProgramOp> ops,
                                       absl::Span<const uint32_t> outputs);
  // Runs a program. Sets `outputs` to the new handles of its results.
  absl::Status SendRun(uint32_t program, absl::Span<const uint64_t> inputs, size_t num_outputs,
                       std::vector<uint64_t>* outputs);
  // Makes the server free a program. It must not be run afterwards.
  void DropProgram(uint32_t number);
  // Copies `input` to another device of the server, as `output`.
  absl::Status SendCopy(uint64_t input, uint64_t output, DeviceName device);
  // Makes the server free a handle. Never waits.
  void Drop(uint64_t handle);
  // Promises a tensor with this handle. A Write or PullTensor with the returned spec brings its
  // elements later.
  absl::StatusOr<v1::WriteSpec> Promise(uint64_t handle, const TensorSpec& spec, DeviceName device);
  // Sets the error of a promised handle, because no call will bring its elements.
  void FailPromise(uint64_t handle, const absl::Status& error);
  // Members of groups (group.h).

  // Returns a number for a new member.
  uint32_t NextMember() { return ++last_member_; }
  // Sends a member's part of an operation.
  absl::Status SendCollective(const v1::Collective& collective);
  // Makes the server free the member after all earlier operations have run.
  void LeaveGroup(uint32_t member);

  // Makes sure that all queued commands are sent, even if no thread waits for an answer: sends
  // those that are held back, and wakes the stream's thread, which polls. Returns the number of the
  // last command, for the field after_command of a call that must not overtake it. Returns 0 in a
  // forked child.
  uint64_t FlushCommands();

  // The following block until the server has answered.

  // Makes a tensor with this handle from `data`, which has spec.size_bytes(). After an error the
  // handle is dropped.
  absl::Status Upload(uint64_t handle, const TensorSpec& spec, DeviceName device,
                      absl::Span<const uint8_t> data, const TransferOptions& options);
  // Fills `out`, which has spec.size_bytes(), with the elements of `handle`. After an error the
  // contents of `out` are undefined.
  absl::Status Download(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out,
                        const TransferOptions& options);
  // Uploads the elements of a promised handle. After an error the handle is still promised.
  absl::Status FillPromise(const v1::WriteSpec& write, absl::Span<const uint8_t> data);
  // Blocks until the work that makes `handle` has finished or failed, and returns its error.
  absl::Status Await(uint64_t handle);
  // Blocks until everything sent so far has run. If the session has ended, returns the reason.
  // Doesn't return errors of the commands.
  absl::Status Barrier();
  // Calls Barrier, and returns the first error that no function has returned yet.
  absl::Status Synchronize();

  // Do the same as Client's functions of these names.
  absl::Status Publish(uint64_t handle, absl::string_view name,
                       const std::vector<std::string>& principals);
  absl::Status Unpublish(absl::string_view name);
  absl::StatusOr<TensorInfo> OpenPublished(absl::string_view name, absl::string_view owner);

  absl::StatusOr<ServerInfo> GetServerInfo();
  absl::StatusOr<PeerCheck> CheckPeer(absl::string_view address);
  absl::StatusOr<std::vector<DeviceInfo>> ListDevices();
  absl::StatusOr<std::vector<TensorInfo>> ListTensors(TensorScope scope);

  // Returns OK until the session has ended, then the reason.
  absl::Status status() const;
  // Returns whether the stream is connected. If not, it is reconnecting, or status() has the reason
  // why it doesn't.
  bool connected() const;
  ClientStats stats() const;
  // Ends the session at the server. Blocks for about two seconds at most. A second call has no
  // effect.
  void Close();

  // For calls that other classes make. They must have ended before the session is destroyed.
  struct Connection;
  Connection& connection() { return *connection_; }
  // Converts the status of such a call. If the call is CANCELLED or UNAVAILABLE and the session has
  // ended, returns the reason of that. If the server has closed the session, returns DATA_LOSS.
  absl::Status Outcome(const grpc::Status& status) const;

 private:
  Session(std::string address, std::string label, std::unique_ptr<Connection> connection);
  // The calls of Open: checks the protocol version, lists the devices, opens the session.
  absl::Status Handshake(const ConnectOptions& options);
  absl::Status Push(const v1::Command& command);
  // Runs `call`, which makes a gRPC call in the given context. Each time the connection broke, runs
  // it again: the server may see the call twice. Returns the last outcome.
  template <typename Call>
  absl::Status CallWithRetry(Call call);
  // Makes a unary call of the service with CallWithRetry, each attempt within `timeout`.
  template <typename Method, typename Request, typename Response>
  absl::Status Ask(Method method, const Request& request, Response* response,
                   absl::Duration timeout);
  // If `status` says that the connection broke, blocks until the stream is connected again, and
  // returns true: the caller may repeat the call. Otherwise, or if the stream has ended, returns
  // false.
  bool AwaitReconnect(const grpc::Status& status);
  // Sends the bytes of an upload from `offset` on, over the bulk connection and, in parts, over
  // further ones. All attempts of this upload share `plan`.
  grpc::Status SendUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                          const TransferOptions& options, int64_t offset, bool wait_for_ready,
                          UploadPlan* plan);
  // If an upload failed with `status` because its connection broke, asks the server how much it has
  // received, and sends the rest. Returns the last status.
  grpc::Status ResumeUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                            const TransferOptions& options, UploadPlan* plan, grpc::Status status);
  // Makes the call that ends the session, within kCloseTimeout. `alive` says that the stream hasn't
  // ended, and `connected` that it is connected.
  void EndAtServer(bool alive, bool connected);
  absl::Status GetElements(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out);

  const std::string address_;
  const std::string label_;
  std::unique_ptr<Connection> connection_;  // only the destructor moves it
  ServerInfo info_;
  DTypeSupport dtype_support_;
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
