#include "tensord/server/rpc/server.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/boot_id.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/log.h"
#include "tensord/server/rpc/collect_metrics.h"
#include "tensord/server/rpc/methods.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {
namespace {

// Threads for work that may block, such as transfers that wait for a device.
constexpr int kWorkerThreads = 4;

// If a client disappears without closing its connection, keepalive closes the connection within
// about a minute. The lease of the client's session then begins. Clients may ping once a second.
constexpr int kKeepaliveIntervalMs = 30000;
constexpr int kKeepaliveTimeoutMs = 20000;
constexpr int kMinPingIntervalMs = 900;  // pings may arrive early
// The time limit for the TLS and HTTP/2 handshakes of a connection. It is long, because a client on
// a busy machine may be slow. Connection admission (listeners.h) doesn't depend on it.
constexpr int kHandshakeTimeoutMs = 20000;
// The maximum number of open calls on one connection.
constexpr int kMaxConcurrentCalls = 1024;

// How long the server waits for handlers after gRPC has ended all calls. Their last events come at
// once, but a worker may still run for a call.
constexpr auto kCallsEndTimeout = std::chrono::seconds(5);

// Returns the number of main queues. Each has a thread, which serves streams and unary calls, and
// runs ops inline. Too many threads wake one another, because each polls all connections.
int NumQueues() {
  constexpr int kMaxQueues = 8;
  constexpr int kCoresPerQueue = 4;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / kCoresPerQueue, 1,
                    kMaxQueues);
}

// How long clients may take to half-close their streams when the server drains.
constexpr auto kHalfCloseTimeout = std::chrono::seconds(1);

// The threads that decode large messages yield to those of the queues, which serve all callers.
constexpr int kMessageWorkersNice = 5;

// How long a connection without calls stays open when the server drains.
constexpr auto kIdleConnectionTimeout = std::chrono::milliseconds(200);

// How often a draining server checks whether its calls have ended.
constexpr auto kDrainPollInterval = std::chrono::milliseconds(5);

// Loads gRPC's reflection library. Loading it registers its service with every server that is built
// later, so the program doesn't link it.
absl::Status LoadReflection() {
  if (dlopen(TENSORD_REFLECTION_LIBRARY, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--reflection: gRPC's reflection library can't be loaded: ", dlerror()));
}

// Returns FAILED_PRECONDITION unless an address that other machines can reach has encryption and
// authentication.
absl::Status CheckRemote(const std::string& address, const AuthenticationOptions& authentication) {
  const bool encrypts = authentication.tls.enabled();
  const bool authenticates = authentication.authenticates();
  if (encrypts && authenticates) return absl::OkStatus();
  std::string missing;
  if (!encrypts) missing = "no encryption (give --tls-cert and --tls-key)";
  if (!authenticates) {
    absl::StrAppend(&missing, missing.empty() ? "" : " and ",
                    "no authentication (give --token-file or --tls-client-ca)");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("other machines can reach ", address, ", but the server has ", missing,
                   ". Give these flags, or listen on 127.0.0.1 and use a tunnel. With "
                   "--allow-insecure-remote the server serves the address as it is: then any host ",
                   authenticates ? "on the network can read tokens and tensors"
                                 : "that reaches the port can use the devices"));
}

absl::Status CheckAddress(const std::string& address, const ServerOptions& options) {
  if (absl::StartsWith(address, "unix:")) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is not a listen address; write HOST:PORT, [IPV6]:PORT or unix:PATH"));
  }
  if (IsLocalAddress(address) || options.allow_insecure_remote) return absl::OkStatus();
  return CheckRemote(address, options.authentication);
}

// Returns INVALID_ARGUMENT if the flags for TLS and authentication conflict, or if no client could
// authenticate on one of the addresses.
absl::Status CheckGateOptions(const ServerOptions& options) {
  const AuthenticationOptions& authentication = options.authentication;
  if (authentication.tls.cert_file.empty() != authentication.tls.key_file.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  if (!authentication.tls.client_ca_file.empty() && !authentication.tls.enabled()) {
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
  }
  const bool certificates_alone =
      !authentication.tls.client_ca_file.empty() && authentication.token_file.empty();
  for (const std::string& address : options.listen) {
    if (certificates_alone && !authentication.allow_anonymous_local &&
        absl::StartsWith(address, "unix:")) {
      return absl::InvalidArgumentError(
          absl::StrCat("clients can't present a certificate on ", address,
                       ": add --token-file or --allow-anonymous-local, or remove the address"));
    }
  }
  if (options.reflection && authentication.authenticates()) {
    return absl::InvalidArgumentError(
        "--reflection conflicts with --token-file and --tls-client-ca: gRPC's reflection service "
        "doesn't authenticate callers. Give grpcurl the .proto files instead (-import-path, "
        "-proto)");
  }
  return absl::OkStatus();
}

absl::Status CheckLimits(const Limits& limits) {
  if (limits.max_request_bytes_per_principal == 0 ||
      limits.max_request_bytes_per_principal >= 2 * limits.max_message_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--max-request-bytes-per-principal (", limits.max_request_bytes_per_principal,
                   ") must be at least twice --max-message-bytes (", limits.max_message_bytes,
                   "): raise the one or lower the other"));
}

std::vector<Device*> DevicesOf(const Engine& engine) {
  std::vector<Device*> devices;
  for (const DeviceSlot* slot : engine.slots()) devices.push_back(slot->device.get());
  return devices;
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

Server::Server(const ServerOptions& options, std::unique_ptr<Authenticator> authenticator,
               std::unique_ptr<Peers> peers, std::vector<std::unique_ptr<Device>> devices)
    : session_log_(options.log_sessions ? std::make_unique<SessionLog>() : nullptr),
      authenticator_(std::move(authenticator)),
      listeners_(options.limits),
      engine_(std::move(devices), options.fusion, options.graphs),
      memory_reserve_(authenticator_->host_budget()),
      memory_reclaimer_(DevicesOf(engine_), [this] { memory_reserve_.Refill(); }),
      sessions_(options.limits, engine_.slots()),
      workers_(kWorkerThreads),
      message_workers_(NumQueues() + 1, kMessageWorkersNice),
      context_{.engine = &engine_,
               .sessions = &sessions_,
               .workers = &workers_,
               .message_workers = &message_workers_,
               .limits = options.limits,
               .unavailable_kinds = options.unavailable_kinds,
               .host_name = HostName(),
               .peers = peers.get(),
               .pulls = &pulls_},
      peers_(std::move(peers)),
      pulls_(&context_, peers_.get()),
      unary_methods_(&context_),
      health_(&context_.streams),
      bulk_(&context_),
      on_not_restarted_(options.on_not_restarted),
      devices_serving_(engine_.slots().size(), true),
      devices_not_restarted_(engine_.slots().size(), false) {
  engine_.SetUnavailableKinds(options.unavailable_kinds);
  engine_.SetMaxPreparedBytes(options.limits.max_prepared_bytes);
  AddMethods(
      {.context = &context_, .unary = &unary_methods_, .bulk = bulk_.context(), .health = &health_},
      &dispatcher_);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, std::vector<std::unique_ptr<Device>> devices) {
  TENSORD_RETURN_IF_ERROR(CheckGateOptions(options));
  TENSORD_RETURN_IF_ERROR(CheckLimits(options.limits));
  for (const std::string& address : options.listen) {
    TENSORD_RETURN_IF_ERROR(CheckAddress(address, options));
  }
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Authenticator> authenticator,
                           Authenticator::Make(options.authentication, options.limits));
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Peers> peers,
                           Peers::Make(options.peers, options.authentication));
  if (options.reflection) TENSORD_RETURN_IF_ERROR(LoadReflection());
  std::unique_ptr<Server> server(
      new Server(options, std::move(authenticator), std::move(peers), std::move(devices)));
  TENSORD_RETURN_IF_ERROR(server->OpenCollectives(options));
  TENSORD_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

absl::Status Server::OpenCollectives(const ServerOptions& options) {
  std::string wanted = options.collectives;
  if (wanted.empty()) {
    const bool local = std::all_of(options.listen.begin(), options.listen.end(),
                                   [](const std::string& at) { return IsLocalAddress(at); });
    wanted = local ? "127.0.0.1" : "off";
  }
  context_.no_collectives_reason = CollectivesUnavailableReason();
  if (!context_.no_collectives_reason.empty()) {
    if (options.collectives.empty() || wanted == "off") return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("--collectives was given, but ", context_.no_collectives_reason));
  }
  if (wanted == "off") {
    context_.no_collectives_reason =
        "its operator has configured no network for groups (tensord --collectives)";
    return absl::OkStatus();
  }
  absl::StatusOr<CollectiveNetwork> network = CollectiveNetwork::Find(wanted);
  if (!network.ok()) {
    if (!options.collectives.empty()) return network.status();
    context_.no_collectives_reason = "this machine has no loopback network";
    return absl::OkStatus();
  }
  collectives_ = std::make_unique<Collectives>(&engine_, *std::move(network), options.limits,
                                               options.communicator_makers);
  context_.collectives = collectives_.get();
  return absl::OkStatus();
}

absl::Status Server::Listen(const ServerOptions& options) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentCalls);
  builder.SetMaxReceiveMessageSize(-1);  // ServerCall checks it, with an error that says what to do
  // gRPC would decompress a message before any handler could refuse it.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  if (options.grpc_quota_bytes > 0) {
    builder.SetResourceQuota(
        grpc::ResourceQuota("tensord").Resize(static_cast<size_t>(options.grpc_quota_bytes)));
  }
  for (const std::string& address : options.listen) {
    credentials_.push_back(authenticator_->CredentialsFor(address));
    TENSORD_RETURN_IF_ERROR(listeners_.Listen(address, &builder, credentials_.back()));
  }
  authenticator_->SetListeners(&listeners_);
  context_.peer_address =
      PeerAddress(options.peers.advertise, listeners_.addresses(), context_.host_name);
  authenticator_->SetLog(session_log_.get());
  sessions_.SetLog(session_log_.get());
  dispatcher_.RegisterWith(&builder);
  const auto spin = std::chrono::microseconds(options.spin_microseconds);
  for (int i = 0; i < NumQueues(); ++i) {
    queues_.push_back(std::make_unique<CallQueue>(&builder, authenticator_.get(), spin));
  }
  bulk_.AddQueues(&builder, queues_.front().get());
  if (bulk_.shares_memory()) context_.boot_id = BootId();
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr) {
    return absl::InternalError("the gRPC server can't start; set GRPC_VERBOSITY=ERROR to log why");
  }
  SetServing(true);
  engine_.SetDeviceListener(
      [this](DeviceSlot& slot, DeviceEvent event) { OnDeviceEvent(slot, event); });
  bulk_.Start(&dispatcher_);
  for (const auto& queue : queues_) dispatcher_.AwaitCalls(queue.get(), QueueKind::kMain);
  for (const auto& queue : queues_) queue->Start();
  return listeners_.Start(
      [this](std::function<void()> then) { AfterEarlierEvents(std::move(then)); });
}

std::vector<CallQueue*> Server::AllQueues() const {
  std::vector<CallQueue*> queues = bulk_.queues();
  for (const auto& queue : queues_) queues.push_back(queue.get());
  return queues;
}

void Server::AfterEarlierEvents(std::function<void()> then) {
  // The last reference runs `then`.
  auto last = std::shared_ptr<void>(nullptr, [then = std::move(then)](void*) { then(); });
  for (CallQueue* queue : AllQueues()) {
    queue->AddCall();  // the queue exists, and its thread polls, until the task has run
    queue->PostBarrier([queue, reference = last]() mutable {
      reference.reset();
      queue->RemoveCall();
    });
  }
}

void Server::SetServing(bool serving) {
  MutexLock lock(&health_mu_);
  serving_ = serving;
  ReportHealth();
}

void Server::ReportHealth() {
  bool any = false;
  for (const DeviceSlot* slot : engine_.slots()) {
    const bool device_serving = devices_serving_[slot->index];
    any = any || device_serving;
    health_.Set(slot->device->name().ToString(), serving_ && device_serving);
  }
  health_.Set("", serving_ && any);
  health_.Set(v1::TensorService::service_full_name(), serving_ && any);
}

void Server::OnDeviceEvent(DeviceSlot& slot, DeviceEvent event) {
  const std::string name = slot.device->name().ToString();
  if (event == DeviceEvent::kNotRestarted) {
    LogLine(absl::StrCat(name, " could not be restarted: ", slot.device->health().reason));
    ReportNotRestarted(slot);
    return;
  }
  const bool serving = event == DeviceEvent::kServing;
  {
    MutexLock lock(&health_mu_);
    devices_serving_[slot.index] = serving;
    devices_not_restarted_[slot.index] = false;
    ReportHealth();
  }
  if (serving) {
    LogLine(absl::StrCat(name, " serves again"));
    return;
  }
  const std::string reason = slot.device->health().reason;
  LogLine(absl::StrCat(name, " was lost: ", reason));
  const absl::Status error =
      absl::DataLossError(absl::StrCat(name, " was lost before the tensor was done: ", reason));
  for (const SessionRef& session : sessions_.All()) session->FailWaiting(slot, error);
}

void Server::ReportNotRestarted(const DeviceSlot& slot) {
  if (!on_not_restarted_) return;
  bool all = true;
  {
    MutexLock lock(&health_mu_);
    devices_not_restarted_[slot.index] = true;
    for (const DeviceSlot* each : engine_.slots()) {
      all &= each->device->restartable() == nullptr || devices_not_restarted_[each->index];
    }
  }
  on_not_restarted_(all);
}

void Server::CollectMetrics(metrics::Snapshot* snapshot) {
  server::CollectMetrics({.started_at = started_at_,
                          .engine = &engine_,
                          .sessions = &sessions_,
                          .authenticator = authenticator_.get(),
                          .listeners = &listeners_,
                          .dispatcher = &dispatcher_},
                         snapshot);
}

bool Server::HasSessionCalls() const {
  if (peers_->queue()->Any()) return true;
  for (const SessionRef& session : sessions_.All()) {
    if (session->HasCalls()) return true;
  }
  return false;
}

bool Server::HasOpenCalls() const {
  const std::vector<CallQueue*> queues = AllQueues();
  return std::any_of(queues.begin(), queues.end(),
                     [](const CallQueue* queue) { return queue->HasCalls(); });
}

void Server::Shutdown(std::chrono::milliseconds grace) {
  if (grpc_server_ == nullptr) return;
  SetServing(false);
  listeners_.Stop();
  const auto end = std::chrono::steady_clock::now() + grace;
  // Reads must end first. If a client learns of the shutdown during a read, its connection is
  // closed while the read's last bytes are still in flight.
  context_.reads.Drain();
  context_.reads.AwaitNone(end);
  // grpc::Server::Shutdown() refuses new calls, and returns when all handlers have ended. Meanwhile
  // closer_ waits for the calls and uploads, which a client gives up when its stream ends. Then it
  // drains the streams. After the grace period it closes the sessions, which ends calls that still
  // wait.
  Mutex mu;
  CondVar changed;
  bool done = false;
  closer_.Post(nullptr, [&] {
    const auto wait_while = [&](const std::function<bool()>& condition) {
      MutexLock lock(&mu);
      while (!done && condition() && std::chrono::steady_clock::now() < end) {
        changed.WaitFor(&mu, kDrainPollInterval);
      }
    };
    wait_while([this] { return HasSessionCalls(); });
    bulk_.DrainRings();
    context_.streams.Drain();
    const auto hang_up_at = std::chrono::steady_clock::now() + kHalfCloseTimeout;
    wait_while([&] { return HasOpenCalls() && std::chrono::steady_clock::now() < hang_up_at; });
    context_.streams.EndDrain();
    wait_while([this] { return HasOpenCalls(); });
    // An idle client may not notice that it should close its connection. So the server closes the
    // connections that remain.
    const auto close_at = std::chrono::steady_clock::now() + kIdleConnectionTimeout;
    wait_while([close_at] { return std::chrono::steady_clock::now() < close_at; });
    if (!HasOpenCalls()) grpc_server_cancel_all_calls(grpc_server_->c_server());
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
  closer_.Stop();
  grpc_server_->Wait();
  EndQueues(end);
  grpc_server_.reset();
}

void Server::EndQueues(std::chrono::steady_clock::time_point grace_end) {
  // gRPC has ended every call. A queue that has been shut down accepts no operations. So each queue
  // first handles its pending events, which may begin some.
  for (const auto& queue : queues_) queue->AwaitEarlierEvents();
  peers_->queue()->Stop();
  message_workers_.Stop();
  workers_.Stop();
  const auto deadline = std::chrono::steady_clock::now() + kCallsEndTimeout;
  for (CallQueue* queue : AllQueues()) queue->AwaitNoCalls(deadline);
  bulk_.Stop(grace_end);
  queues_.clear();
}

Server::~Server() {
  Shutdown(std::chrono::milliseconds(0));
  engine_.SetDeviceListener(nullptr);
}

}  // namespace tensord::server
