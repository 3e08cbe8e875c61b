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
#include "tensord/common/mutex.h"
#include "tensord/common/tensor_spec.h"

namespace grpc {
class Status;
}
namespace tensord::v1 {
class Collective;
class WriteSpec;
}  // namespace tensord::v1

namespace tensord::internal {

// Thread-safe. The last reference must not be let go of from the session's own threads, which hold
// none. In a forked child (fork_guard.h), member functions that would use the connection return
// ForkedError(). Those that return no status have no effect there.
class Session {
 public:
  static absl::StatusOr<std::shared_ptr<Session>> Open(const std::string& address,
                                                       const ConnectOptions& options,
                                                       const std::string& label = "");
  // Ends the session. In a forked child, leaves the connection as it is: the parent uses it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Fixed at Open.
  const std::string& address() const { return address_; }
  const ServerInfo& info() const { return info_; }
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // nullptr where the server has no such device.
  const DeviceInfo* FindDevice(DeviceName name) const;
  uint64_t number() const { return number_; }
  absl::Duration lease() const { return lease_; }
  // The secret that names it to the server.
  const std::string& id() const { return id_; }
  // What the server is called where there are several, before its devices' names; empty where it is
  // the only one.
  const std::string& label() const { return label_; }
  // "cuda:0", or "gpu-a/cuda:0".
  std::string NameOf(DeviceName device) const;

  uint64_t NextHandle();

  // Commands: these don't wait for the server unless too many are under way. The error is that the
  // connection is gone; SendOp's may also be inference's.
  absl::StatusOr<QueuedOp> SendOp(absl::string_view op, absl::Span<const QueuedInput> inputs,
                                  const Attributes& attrs);
  absl::Status SendCreation(absl::string_view op, DeviceName device, uint64_t output,
                            const Attributes& attrs);
  // The number of an op's definition on the stream; RESOURCE_EXHAUSTED where there are too many.
  absl::StatusOr<uint32_t> DefineOp(absl::string_view op, size_t num_inputs,
                                    const Attributes& attrs);
  // Keeps a program, v1::Program, and tells its number.
  absl::StatusOr<uint32_t> SendProgram(DeviceName device, absl::Span<const TensorSpec> inputs,
                                       absl::Span<const uint32_t> ops,
                                       absl::Span<const uint32_t> outputs);
  // Runs it into new handles.
  absl::Status SendRun(uint32_t program, absl::Span<const uint64_t> inputs, size_t num_outputs,
                       std::vector<uint64_t>* outputs);
  void DropProgram(uint32_t number);
  absl::Status SendCopy(uint64_t input, uint64_t output, DeviceName device);
  void Drop(uint64_t handle);
  // Makes `handle`, to be filled by a Write or a PullTensor with what is returned.
  absl::StatusOr<v1::WriteSpec> Promise(uint64_t handle, const TensorSpec& spec, DeviceName device);
  // Nothing is going to fill it, for this reason.
  void FailPromise(uint64_t handle, const absl::Status& error);
  // Members of groups (group.h). A number for one to be made, a member's part of an operation, and
  // its end once all of those have run.
  uint32_t NextMember() { return ++last_member_; }
  absl::Status SendCollective(const v1::Collective& collective);
  void LeaveGroup(uint32_t member);
  // How many commands have been given so far; what waits for them is looked after from here on.
  uint64_t commands_given();

  // The following wait for the server.

  // Makes `handle` from `data`, spec.size_bytes() of it. After an error it doesn't exist.
  absl::Status Upload(uint64_t handle, const TensorSpec& spec, DeviceName device,
                      absl::Span<const uint8_t> data, const TransferOptions& options);
  // Fills `out`, spec.size_bytes() of it, with the elements of `handle`.
  absl::Status Download(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out,
                        const TransferOptions& options);
  // Fills what Promise has promised; after an error it is still promised.
  absl::Status FillPromise(const v1::WriteSpec& write, absl::Span<const uint8_t> data);
  // The error of `handle`, once it has a value or never will have.
  absl::Status Await(uint64_t handle);
  // Until everything sent so far has run; the error is that the connection is gone.
  absl::Status Barrier();
  // Barrier, and then the first error not told yet.
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

  absl::Status status() const;
  // Whether the stream has a connection now; otherwise another is being made, or status() says why
  // not.
  bool connected() const;
  ClientStats stats() const;
  void Close();

  // For calls of one's own, which must have ended before the session goes.
  struct Connection;
  Connection& connection() { return *connection_; }
  // What such a call's end means.
  absl::Status Outcome(const grpc::Status& status) const;

 private:
  absl::Status Push(const v1::Command& command);
  Session(std::string address, std::string label, std::unique_ptr<Connection> connection);
  absl::Status Greet(const ConnectOptions& options);
  // Runs `ask`, which asks the server something by the call that it is given, and again where the
  // connection broke under the question. Each such question may be asked twice.
  template <typename Ask>
  absl::Status Insist(Ask ask);
  // Whether the call broke off with its connection, and the stream stands (again).
  bool Recovered(const grpc::Status& status);
  grpc::Status FinishUpload(const v1::WriteSpec& write, absl::Span<const uint8_t> data,
                            const TransferOptions& options, grpc::Status status);
  // Has the server end the session, in bounded time. `stands`: it hasn't been given up;
  // `connected`: nor lost its connection.
  void EndAtServer(bool stands, bool connected);
  absl::Status Fetch(uint64_t handle, const TensorSpec& spec, absl::Span<uint8_t> out);

  const std::string address_;
  const std::string label_;
  std::unique_ptr<Connection> connection_;  // only the destructor moves it
  ServerInfo info_;
  std::vector<DeviceInfo> devices_;
  std::string id_;
  uint64_t number_ = 0;
  absl::Duration lease_;
  // Commands that the last finished Barrier covered.
  std::atomic<uint64_t> settled_commands_{0};
  std::atomic<uint32_t> last_member_{0};

  Mutex close_mu_;
  bool closed_ ABSL_GUARDED_BY(close_mu_) = false;
};

}  // namespace tensord::internal
