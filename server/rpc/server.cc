#include "tensord/server/rpc/server.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/boot_id.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/methods.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {
namespace {

// Threads for transfers that wait for a device.
constexpr int kWorkerThreads = 4;
// Room beside the elements in the largest message.
constexpr int kMessageOverheadBytes = 64 << 10;

// A peer that has gone without a word is noticed in about a minute, so that its session's lease
// runs; clients may probe us once a second.
constexpr int kKeepaliveIntervalMs = 30000;
constexpr int kKeepaliveTimeoutMs = 20000;
constexpr int kMinPingIntervalMs = 900;  // a little early
// The time limit for the TLS and HTTP/2 handshakes of a connection. It is long, because a client on
// a busy machine may be slow. Connection admission (listeners.h) doesn't depend on it.
constexpr int kHandshakeTimeoutMs = 20000;
// Calls at once on one connection.
constexpr int kMaxConcurrentCalls = 1024;

// After gRPC's own end of a call its last events come at once; a worker may have to finish its
// part.
constexpr auto kCallsEndTimeout = std::chrono::seconds(5);

// Threads that serve streams and unary calls, and run ops inline. More of them than are needed
// wake one another: gRPC has them watch each other's connections.
int NumQueues() {
  constexpr int kMost = 8;
  constexpr int kCoresPerQueue = 4;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / kCoresPerQueue, 1,
                    kMost);
}

// What clients are given to half-close their streams when the server drains.
constexpr auto kGoodbye = std::chrono::seconds(1);

// What a connection without calls is left for when the server drains.
constexpr auto kFarewell = std::chrono::milliseconds(200);

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

// What others than this machine reach is encrypted, and asks who calls.
absl::Status CheckRemote(const std::string& address, const GateOptions& gate) {
  const bool asks = gate.authenticates();
  if (gate.tls.enabled() && asks) return absl::OkStatus();
  std::string wrong;
  if (!gate.tls.enabled()) wrong = "nothing here is encrypted (give --tls-cert and --tls-key)";
  if (!asks) {
    absl::StrAppend(&wrong, wrong.empty() ? "" : ", and ",
                    "nobody is asked who they are (give --token-file, or --tls-client-ca)");
  }
  return absl::FailedPreconditionError(
      absl::StrCat(address, " can be reached from other machines, but ", wrong,
                   ". Give these flags, or listen on 127.0.0.1 and tunnel. --allow-insecure-remote "
                   "serves it all "
                   "the same: whoever reaches the port can then ",
                   asks ? "read the tokens and tensors that pass" : "use the devices"));
}

absl::Status CheckAddress(const std::string& address, const ServerOptions& options) {
  if (absl::StartsWith(address, "unix:")) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is no listen address; write HOST:PORT, [IPV6]:PORT or unix:PATH"));
  }
  if (IsLocalAddress(address) || options.allow_insecure_remote) return absl::OkStatus();
  return CheckRemote(address, options.gate);
}

// Flags that make sense together, and shut nobody out whom they were meant to let in.
absl::Status CheckGate(const ServerOptions& options) {
  const GateOptions& gate = options.gate;
  if (gate.tls.cert_file.empty() != gate.tls.key_file.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  if (!gate.tls.client_ca_file.empty() && !gate.tls.enabled()) {
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
  }
  const bool certificates_alone = !gate.tls.client_ca_file.empty() && gate.token_file.empty();
  for (const std::string& address : options.listen) {
    if (certificates_alone && !gate.allow_anonymous_local && absl::StartsWith(address, "unix:")) {
      return absl::InvalidArgumentError(
          absl::StrCat("nobody can show a certificate on ", address,
                       ": give --token-file or --allow-anonymous-local too, or leave it out"));
    }
  }
  if (options.reflection && gate.authenticates()) {
    return absl::InvalidArgumentError(
        "--reflection can't be had with --token-file or --tls-client-ca: gRPC's reflection service "
        "answers whoever asks. Give grpcurl the .proto files (-import-path, -proto) instead");
  }
  return absl::OkStatus();
}

// Returns what this machine calls itself.
std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

Server::Server(const ServerOptions& options, std::unique_ptr<Gate> gate,
               std::unique_ptr<Peers> peers, std::vector<std::unique_ptr<Device>> devices)
    : session_log_(options.log_sessions ? std::make_unique<SessionLog>() : nullptr),
      gate_(std::move(gate)),
      engine_(std::move(devices), options.fusion, options.graphs),
      sessions_(options.limits, engine_.slots()),
      workers_(kWorkerThreads),
      context_{.engine = &engine_,
               .sessions = &sessions_,
               .workers = &workers_,
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
      devices_serving_(engine_.slots().size(), true) {
  AddMethods(
      {.context = &context_, .unary = &unary_methods_, .bulk = bulk_.context(), .health = &health_},
      &dispatcher_);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, std::vector<std::unique_ptr<Device>> devices) {
  TENSORD_RETURN_IF_ERROR(CheckGate(options));
  for (const std::string& address : options.listen) {
    TENSORD_RETURN_IF_ERROR(CheckAddress(address, options));
  }
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Gate> gate, Gate::Make(options.gate));
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Peers> peers, Peers::Make(options.peers, options.gate));
  if (options.reflection) TENSORD_RETURN_IF_ERROR(LoadReflection());
  std::unique_ptr<Server> server(
      new Server(options, std::move(gate), std::move(peers), std::move(devices)));
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
        "its operator has given no network for them (tensord --collectives)";
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
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(options.limits.max_message_bytes + kMessageOverheadBytes));
  // A compressed message is inflated before any handler can refuse it.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  for (const std::string& address : options.listen) {
    credentials_.push_back(gate_->CredentialsFor(address));
    TENSORD_RETURN_IF_ERROR(listeners_.Listen(address, &builder, credentials_.back()));
  }
  gate_->SetListeners(&listeners_);
  context_.peer_address =
      PeerAddress(options.peers.advertise, listeners_.addresses(), context_.host_name);
  gate_->SetLog(session_log_.get());
  sessions_.SetLog(session_log_.get());
  dispatcher_.RegisterWith(&builder);
  const auto spin = std::chrono::microseconds(options.spin_microseconds);
  for (int i = 0; i < NumQueues(); ++i) {
    queues_.push_back(std::make_unique<CallQueue>(&builder, gate_.get(), spin));
  }
  bulk_.AddQueues(&builder, queues_.front().get());
  if (bulk_.shares_memory()) context_.boot_id = BootId();
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr) {
    return absl::InternalError("gRPC's server can't be started; GRPC_VERBOSITY=ERROR says why");
  }
  SetServing(true);
  engine_.SetServingListener(
      [this](DeviceSlot& slot, bool serving) { DeviceChanged(slot, serving); });
  bulk_.Start(&dispatcher_);
  for (const auto& queue : queues_) dispatcher_.AwaitCalls(queue.get(), QueueKind::kMain);
  for (const auto& queue : queues_) queue->Start();
  listeners_.Start();
  return absl::OkStatus();
}

void Server::SetServing(bool serving) {
  MutexLock lock(&health_mu_);
  serving_ = serving;
  TellHealth();
}

void Server::TellHealth() {
  bool any = false;
  for (const DeviceSlot* slot : engine_.slots()) {
    const bool device_serving = devices_serving_[slot->index];
    any = any || device_serving;
    health_.Set(slot->device->name().ToString(), serving_ && device_serving);
  }
  health_.Set("", serving_ && any);
  health_.Set(v1::TensorService::service_full_name(), serving_ && any);
}

void Server::DeviceChanged(DeviceSlot& slot, bool serving) {
  const std::string name = slot.device->name().ToString();
  {
    MutexLock lock(&health_mu_);
    devices_serving_[slot.index] = serving;
    TellHealth();
  }
  if (serving) {
    std::cerr << "tensord: " << name << " is back\n";
    return;
  }
  const std::string reason = slot.device->health().reason;
  std::cerr << "tensord: " << name << " was lost: " << reason << "\n";
  const absl::Status error =
      absl::DataLossError(absl::StrCat(name, " was lost, and what was promised on it: ", reason));
  for (const SessionRef& session : sessions_.All()) session->FailWaiting(slot, error);
}

bool Server::HasCalls() const {
  if (pulls_.Any()) return true;
  for (const SessionRef& session : sessions_.All()) {
    if (session->HasCalls()) return true;
  }
  return false;
}

bool Server::AnyCalls() const {
  return bulk_.AnyCalls() || std::any_of(queues_.begin(), queues_.end(),
                                         [](const auto& queue) { return queue->AnyCalls(); });
}

void Server::Shutdown(std::chrono::milliseconds grace) {
  if (grpc_server_ == nullptr) return;
  SetServing(false);
  listeners_.Stop();
  const auto end = std::chrono::steady_clock::now() + grace;
  // Reads come first: a connection whose client hears of the shutdown before the end of a read is
  // closed with the read's last bytes still on the way.
  context_.reads.Drain();
  context_.reads.AwaitNone(end);
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
    bulk_.DrainRings();
    context_.streams.Drain();
    const auto hang_up = std::chrono::steady_clock::now() + kGoodbye;
    wait_while([&] { return AnyCalls() && std::chrono::steady_clock::now() < hang_up; });
    context_.streams.HangUp();
    wait_while([this] { return AnyCalls(); });
    // Clients that do nothing don't hear that they are to hang up: they get a moment.
    const auto farewell = std::chrono::steady_clock::now() + kFarewell;
    wait_while([farewell] { return std::chrono::steady_clock::now() < farewell; });
    if (!AnyCalls()) grpc_server_cancel_all_calls(grpc_server_->c_server());
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
  pulls_.Stop(deadline);
  bulk_.AwaitNoCalls(deadline);
  for (const auto& queue : queues_) queue->AwaitNoCalls(deadline);
  bulk_.Stop(grace_end);
  queues_.clear();
}

Server::~Server() {
  Shutdown(std::chrono::milliseconds(0));
  engine_.SetServingListener(nullptr);
}

}  // namespace tensord::server
