// Daemons that fetch tensors from each other, and uploads whose progress a test controls.
#pragma once

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {

inline const TensorSpec kMillion{DType::kFloat32, {1 << 20}};  // 4 MiB

// Returns bytes that depend on their positions.
inline std::string Pattern(int64_t size) {
  std::string bytes(size, '\0');
  for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 11);
  return bytes;
}

// A daemon, a client of it, and a session with a stream.
class Node {
 public:
  static constexpr char kAnyPeer[] = "--peers=127.0.0.1:*";

  // If the daemon can't be started, the test fails.
  explicit Node(std::vector<std::string> flags = {kAnyPeer}, RpcCredentials credentials = {},
                const std::vector<std::string>& environment = {}) {
    flags.push_back("--devices=cpu=1GiB,cpu=64MiB");
    auto started = DaemonProcess::Start(flags, environment);
    EXPECT_TRUE(started.ok()) << started.status();
    if (!started.ok()) return;
    daemon = *std::move(started);
    Connect(std::move(credentials));
  }

  void Connect(RpcCredentials credentials) {
    stream.reset();
    session.reset();
    commands = 0;
    client = std::make_unique<RpcClient>(daemon->address(), std::move(credentials));
    const auto about = client->Call<v1::ServerInfo>("GetServerInfo", v1::GetServerInfoRequest());
    EXPECT_TRUE(about.ok()) << about.status();
    if (about.ok()) info = *about;
    session = std::make_unique<RpcSession>(*client);
  }

  // If the daemon still runs, ends the stream and calls ExpectTerminatesCleanly().
  void TerminateIfRunning() {
    if (daemon == nullptr || !daemon->running()) return;
    stream.reset();
    daemon->ExpectTerminatesCleanly();
  }

  const std::string& address() const { return daemon->address(); }

  // Sends a command on the session's stream. Returns the command's number.
  uint64_t Command(const v1::Command& command) {
    v1::SessionStreamRequest request;
    if (stream == nullptr) {
      stream = client->SessionStream();
      request.mutable_attach()->set_session(session->id());
    }
    *request.add_commands() = command;
    EXPECT_TRUE(stream->Send(request));
    return ++commands;
  }
  uint64_t Promise(uint64_t handle, const TensorSpec& spec) {
    v1::Command command;
    command.mutable_promise()->set_handle(handle);
    *command.mutable_promise()->mutable_spec() = ToProto(spec);
    command.mutable_promise()->set_device("cpu:0");
    return Command(command);
  }
  uint64_t FailPromise(uint64_t handle, absl::StatusCode code, const std::string& message) {
    v1::Command command;
    command.mutable_fail()->set_handle(handle);
    command.mutable_fail()->set_code(static_cast<int>(code));
    command.mutable_fail()->set_message(message);
    return Command(command);
  }

  // Creates a tensor of `count` random elements. A handle gives the same elements on every server.
  void Random(uint64_t handle, int64_t count) {
    v1::CreateTensorRequest request;
    request.set_session(session->id());
    request.set_handle(handle);
    *request.mutable_spec() = ToProto(TensorSpec{DType::kFloat32, {count}});
    request.set_device("cpu:0");
    request.mutable_uniform()->set_seed(static_cast<int64_t>(handle));
    const auto made = client->Call<v1::Tensor>("CreateTensor", request);
    EXPECT_TRUE(made.ok()) << made.status();
  }

  // Reads all bytes of a tensor.
  absl::StatusOr<std::string> Bytes(uint64_t handle) {
    auto read = client->Read(session->ReadRequest(handle));
    std::string bytes;
    while (const auto message = read->Next()) bytes += message->data();
    const absl::Status status = read->Finish();
    if (!status.ok()) return status;
    return bytes;
  }

  // Returns the first message of an upload. The daemon handles it after all commands that have been
  // sent, so that a promise of the tensor comes first.
  v1::WriteRequest FirstWrite(uint64_t handle, const TensorSpec& spec) const {
    v1::WriteRequest message = session->FirstWrite(handle, spec);
    message.mutable_spec()->set_after_command(commands);
    return message;
  }

  // Uploads a tensor's bytes from offset `begin` on.
  absl::Status UploadBytes(uint64_t handle, const TensorSpec& spec, const std::string& bytes,
                           size_t begin = 0) {
    constexpr size_t kChunkBytes = 1 << 20;
    auto write = client->Write();
    bool sending = write->Send(FirstWrite(handle, spec));
    for (size_t at = begin; sending && at < bytes.size();) {
      v1::WriteRequest chunk;
      chunk.set_offset(static_cast<int64_t>(at));
      chunk.set_data(bytes.substr(at, kChunkBytes));
      at += chunk.data().size();
      sending = write->Send(chunk);
    }
    return write->Finish().status();
  }

  // Returns a ticket with which `destination` may fetch the tensor.
  absl::StatusOr<v1::Ticket> Ticket(uint64_t handle, const Node& destination) {
    v1::CreateTicketRequest request;
    request.set_session(session->id());
    request.set_handle(handle);
    request.set_after_command(commands);
    request.set_destination_epoch(destination.info.epoch());
    return client->Call<v1::Ticket>("CreateTicket", request);
  }

  // Fetches a tensor from `source` with a ticket. If `address` isn't empty, connects to it instead
  // of the source's own address.
  absl::StatusOr<v1::PullTensorResponse> Pull(uint64_t handle, const TensorSpec& spec,
                                              const Node& source, const std::string& ticket,
                                              const std::string& address = "") {
    return client->Call<v1::PullTensorResponse>("PullTensor",
                                                PullRequest(handle, spec, source, ticket, address));
  }
  v1::PullTensorRequest PullRequest(uint64_t handle, const TensorSpec& spec, const Node& source,
                                    const std::string& ticket, const std::string& address) {
    v1::PullTensorRequest request;
    v1::WriteSpec* made = request.mutable_tensor();
    made->set_session(session->id());
    made->set_handle(handle);
    *made->mutable_spec() = ToProto(spec);
    made->set_device("cpu:0");
    made->set_after_command(commands);
    request.set_source_address(address.empty() ? source.info.peer_address() : address);
    request.set_ticket(ticket);
    return request;
  }
  std::future<absl::StatusOr<v1::PullTensorResponse>> PullAsync(uint64_t handle,
                                                                const TensorSpec& spec,
                                                                const Node& source,
                                                                const std::string& ticket,
                                                                const std::string& address = "") {
    return std::async(std::launch::async,
                      [=, this, &source] { return Pull(handle, spec, source, ticket, address); });
  }

  absl::StatusOr<v1::Upload> Upload(uint64_t handle) {
    v1::GetUploadRequest request;
    request.set_session(session->id());
    request.set_handle(handle);
    request.set_after_command(commands);
    return client->Call<v1::Upload>("GetUpload", request);
  }

  std::unique_ptr<DaemonProcess> daemon;
  std::unique_ptr<RpcClient> client;
  v1::ServerInfo info;
  std::unique_ptr<RpcSession> session;
  std::unique_ptr<StreamCall> stream;
  std::atomic<uint64_t> commands = 0;
};

// An upload of a promised tensor, which the test sends piece by piece. A copy of the tensor can't
// end before all bytes have been sent.
class PartialUpload {
 public:
  // Promises the tensor on `node`, which must outlive this object, and begins the upload.
  PartialUpload(Node& node, uint64_t handle, const TensorSpec& spec, std::string bytes)
      : bytes_(std::move(bytes)) {
    node.Promise(handle, spec);
    call_ = node.client->Write();
    EXPECT_TRUE(call_->Send(node.FirstWrite(handle, spec)));
  }

  // Sends the bytes up to offset `end`.
  void SendTo(int64_t end) {
    constexpr int64_t kChunkBytes = 1 << 20;
    while (sent_ < end) {
      v1::WriteRequest chunk;
      chunk.set_offset(sent_);
      chunk.set_data(bytes_.substr(sent_, std::min(kChunkBytes, end - sent_)));
      sent_ += static_cast<int64_t>(chunk.data().size());
      ASSERT_TRUE(call_->Send(chunk));
    }
  }
  // Sends the remaining bytes. Returns the status of the upload.
  absl::Status Finish() {
    SendTo(static_cast<int64_t>(bytes_.size()));
    return call_->Finish().status();
  }
  void Cancel() { call_->Cancel(); }
  const std::string& bytes() const { return bytes_; }

 private:
  const std::string bytes_;
  int64_t sent_ = 0;
  std::unique_ptr<WriteCall> call_;
};

}  // namespace tensord::integration
