#include "tensord/server/rpc/server.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/boot_id.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/rpc/session_stream.h"

namespace tensord::server {
namespace {

// Threads for transfers that wait for a device.
constexpr int kWorkerThreads = 4;
// Room beside the elements in the largest message.
constexpr int kMessageOverheadBytes = 64 << 10;

// A peer that has gone without a word is noticed in about a minute, so that its session's lease
// runs; clients may probe us as often as every five seconds.
constexpr int kKeepaliveIntervalMs = 30000;
constexpr int kKeepaliveTimeoutMs = 20000;
constexpr int kLeastPingIntervalMs = 5000;
// Calls at once on one connection.
constexpr int kMaxConcurrentCalls = 1024;

// After gRPC's own end of a call its last events come at once; a worker may have to finish its
// part.
constexpr auto kCallsEndTimeout = std::chrono::seconds(5);

// Threads that serve streams and unary calls, and run what is brief. More of them than are needed
// wake one another: gRPC has them watch each other's connections.
int NumQueues() {
  constexpr int kMost = 8;
  constexpr int kCoresPerQueue = 4;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / kCoresPerQueue, 1,
                    kMost);
}

// How often a server that drains looks whether its calls have ended.
constexpr auto kDrainPollInterval = std::chrono::milliseconds(5);

// Merely loading gRPC's reflection library registers its service with every server built
// afterwards, so that it must not be linked: it is loaded where reflection was asked for.
absl::Status LoadReflection() {
  if (dlopen(TENSORD_REFLECTION_LIBRARY, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "reflection was asked for, but gRPC's library for it can't be loaded: ", dlerror()));
}

// gRPC unlinks whatever socket it finds at the path, also one that another server listens on.
absl::Status CheckUnixSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"unix:", path, "\": a path of 1 to ", sizeof(address.sun_path) - 1, " bytes is needed"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "no socket can be made");
  const int connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const bool somebody_answers = connected == 0 || errno == EAGAIN;
  close(fd);
  if (somebody_answers) {
    return absl::UnavailableError(
        absl::StrCat("can't listen on unix:", path, ": another server listens there"));
  }
  return absl::OkStatus();
}

absl::Status CheckAddress(const std::string& address, bool allow_insecure_remote) {
  if (absl::StartsWith(address, "unix:")) return CheckUnixSocket(address.substr(5));
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is no listen address; write HOST:PORT, [IPV6]:PORT or unix:PATH"));
  }
  if (IsLocalAddress(address) || allow_insecure_remote) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(address,
                   " can be reached from other machines, and nothing here is encrypted or "
                   "authenticated: whoever reaches the port may use the devices. Listen on "
                   "127.0.0.1 and tunnel, "
                   "or give --allow-insecure-remote on a network that you trust"));
}

std::string WithPort(const std::string& address, int port) {
  if (absl::StartsWith(address, "unix:")) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

bool IsLocalAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::string_view host = address.substr(0, address.rfind(':'));
  if (host == "localhost" || host == "[::1]") return true;
  // 127.0.0.0/8 as four numbers, so that 127.example.com isn't taken for it.
  const std::vector<absl::string_view> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (absl::string_view part : parts) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 0 || number > 255) return false;
  }
  return true;
}

Server::Server(const ServerOptions& options, std::vector<std::unique_ptr<Device>> devices)
    : engine_(std::move(devices), options.fusion),
      sessions_(options.limits, engine_.slots()),
      workers_(kWorkerThreads),
      context_{.engine = &engine_,
               .sessions = &sessions_,
               .workers = &workers_,
               .limits = options.limits,
               .cuda_unavailable_reason = CudaUnavailableReason()},
      methods_(&context_, &rpc_) {}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, std::vector<std::unique_ptr<Device>> devices) {
  for (const std::string& address : options.listen) {
    TENSORD_RETURN_IF_ERROR(CheckAddress(address, options.allow_insecure_remote));
  }
  if (options.reflection) TENSORD_RETURN_IF_ERROR(LoadReflection());
  std::unique_ptr<Server> server(new Server(options, std::move(devices)));
  TENSORD_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

absl::Status Server::Listen(const ServerOptions& options) {
  grpc::ServerBuilder builder;
  // Two servers on one port would share its connections without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kLeastPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentCalls);
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(options.limits.max_message_bytes + kMessageOverheadBytes));
  // A compressed message is inflated before any handler can refuse it.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  std::vector<int> ports(options.listen.size(), 0);
  for (size_t i = 0; i < ports.size(); ++i) {
    builder.AddListeningPort(options.listen[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterService(&rpc_);
  health_ = std::make_unique<HealthService>(&builder);
  const auto spin = std::chrono::microseconds(options.spin_microseconds);
  for (int i = 0; i < NumQueues(); ++i) {
    queues_.push_back(std::make_unique<CallQueue>(&builder, spin));
  }
  bulk_ = std::make_unique<BulkService>(&context_, &rpc_, &builder, queues_.front().get());
  if (bulk_->shares_memory()) context_.boot_id = BootId();
  grpc_server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (grpc_server_ == nullptr || ports[i] == 0) {
      return absl::UnavailableError(absl::StrCat(
          "can't listen on ", options.listen[i],
          ": the address is in use, isn't this machine's, or its folder doesn't exist"));
    }
    addresses_.push_back(WithPort(options.listen[i], ports[i]));
  }
  SetServing(true);
  bulk_->Start();
  for (const auto& queue : queues_) {
    methods_.Await(queue.get());
    health_->Await(queue.get());
    SessionStream::Await(&context_, &rpc_, queue.get());
  }
  for (const auto& queue : queues_) queue->Start();
  return absl::OkStatus();
}

void Server::SetServing(bool serving) {
  health_->Set("", serving);
  health_->Set(v1::TensorService::service_full_name(), serving);
  for (const DeviceSlot* slot : engine_.slots()) {
    health_->Set(slot->device->name().ToString(), serving);
  }
}

bool Server::HasCalls() const {
  for (const SessionRef& session : sessions_.All()) {
    if (session->HasCalls()) return true;
  }
  return false;
}

void Server::Shutdown(std::chrono::milliseconds grace) {
  if (grpc_server_ == nullptr) return;
  SetServing(false);
  const auto end = std::chrono::steady_clock::now() + grace;
  bulk_->DrainReads(end);
  // gRPC's Shutdown takes no new calls and returns when the last handler has. Meanwhile: calls and
  // uploads first, which a client gives up when its stream ends; then the streams; then, the grace
  // being over, whoever still waits for something that may never come.
  Mutex mu;
  CondVar changed;
  bool done = false;
  std::thread closer([&] {
    const auto wait_while = [&](const std::function<bool()>& condition) {
      MutexLock lock(&mu);
      while (!done && condition() && std::chrono::steady_clock::now() < end) {
        changed.WaitFor(&mu, kDrainPollInterval);
      }
    };
    wait_while([this] { return HasCalls(); });
    methods_.DrainStreams();
    bulk_->DrainSharedMemory();
    health_->EndWatches();
    wait_while([] { return true; });
    for (const SessionRef& session : sessions_.All()) session->Close();
  });
  grpc_server_->Shutdown(std::chrono::system_clock::now() +
                         std::max(end - std::chrono::steady_clock::now(), end - end));
  {
    MutexLock lock(&mu);
    done = true;
    changed.SignalAll();
  }
  closer.join();
  grpc_server_->Wait();
  EndQueues(end);
  grpc_server_.reset();
}

void Server::EndQueues(std::chrono::steady_clock::time_point grace_end) {
  // gRPC is done with every call. Nothing may be begun on a queue that has been shut down: so
  // calls that have news of it on the way get it first.
  for (const auto& queue : queues_) queue->Settle();
  const auto deadline = std::chrono::steady_clock::now() + kCallsEndTimeout;
  bulk_->AwaitNoCalls(deadline);
  for (const auto& queue : queues_) queue->AwaitNoCalls(deadline);
  bulk_->Stop(grace_end);
  queues_.clear();
}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

}  // namespace tensord::server
