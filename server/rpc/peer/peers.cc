#include "tensord/server/rpc/peer/peers.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/token.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/session/tickets.h"

namespace tensord::server {
namespace {

// The time between two checks whether the files have changed.
constexpr auto kFileCheckInterval = std::chrono::seconds(1);
// The most channels that are kept for later pulls.
constexpr size_t kMaxChannels = 256;
// The largest message of a peer. The messages of SendCall are smaller than 1 MiB.
constexpr int kMaxResponseBytes = 8 << 20;
constexpr int kFirstReconnectPauseMs = 50;
constexpr int kMaxReconnectPauseMs = 1000;
// After a server's memory couldn't be mapped, this server requests it again after this time.
constexpr std::chrono::minutes kSharingRetryInterval{1};
// A server may close the connection if keepalive pings come more often.
constexpr std::chrono::seconds kMinKeepaliveInterval{5};

struct HostAndPort {
  absl::string_view host;
  absl::string_view port;
};

// Returns whether `host` is a name, an IPv4 address or "[IPv6]". gRPC can't interpret such a host
// as another kind of target.
bool IsHost(absl::string_view host) {
  const bool v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (v6) host = host.substr(1, host.size() - 2);
  return !host.empty() && std::all_of(host.begin(), host.end(), [v6](char c) {
    return v6 ? absl::ascii_isxdigit(c) || c == ':' || c == '.'
              : absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsPort(absl::string_view port) {
  uint32_t number = 0;
  return !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), [](char c) { return absl::ascii_isdigit(c); }) &&
         absl::SimpleAtoi(port, &number) && number > 0 && number < 65536;
}

HostAndPort Split(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return {address, ""};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

bool IsAddress(absl::string_view address) {
  const HostAndPort parts = Split(address);
  return IsHost(parts.host) && IsPort(parts.port);
}

bool IsPattern(absl::string_view pattern) {
  const HostAndPort parts = Split(pattern);
  absl::string_view host = parts.host;
  absl::ConsumePrefix(&host, "*.");
  return IsHost(host) && (parts.port == "*" || IsPort(parts.port));
}

bool Matches(absl::string_view pattern, absl::string_view address) {
  const HostAndPort wanted = Split(pattern);
  const HostAndPort given = Split(address);
  if (wanted.port != "*" && wanted.port != given.port) return false;
  if (!absl::StartsWith(wanted.host, "*.")) {
    return absl::EqualsIgnoreCase(wanted.host, given.host);
  }
  const absl::string_view domain = wanted.host.substr(1);
  return given.host.size() > domain.size() && absl::EndsWithIgnoreCase(given.host, domain);
}

absl::Status CheckPatterns(const PeerOptions& options, bool use_tls) {
  for (const std::string& pattern : options.peers) {
    if (!IsPattern(pattern)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", pattern, "\" in --peers names no server; write HOST:PORT, with * for ",
                       "any port or *.DOMAIN for any host in a domain"));
    }
    if (!options.token_file.empty() && !use_tls && !IsLocalAddress(pattern)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a token isn't sent unencrypted over the network, and ", pattern,
          " isn't this machine: give --peer-tls-ca too, or leave --peer-token-file out"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  TENSORD_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  const std::string token(absl::StripAsciiWhitespace(text));
  if (IsToken(token)) return token;
  return absl::InvalidArgumentError(
      absl::StrCat(path, " holds no token: one word of at most ", kMaxTokenBytes, " characters"));
}

PeerOptions WithOwnCertificate(PeerOptions options, const TlsOptions& own) {
  if (!options.cert_file.empty() || !options.key_file.empty()) return options;
  options.cert_file = own.cert_file;
  options.key_file = own.key_file;
  return options;
}

}  // namespace

PeerQueue::~PeerQueue() {
  Stop();
  queue_.Shutdown();
  {
    MutexLock lock(&mu_);
    ending_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void PeerQueue::BeginOperation(PeerOperation* operation) {
  MutexLock lock(&mu_);
  operations_.insert(operation);
  if (stopping_) operation->Cancel();
  changed_.SignalAll();
}

void PeerQueue::EndOperation(PeerOperation* operation) {
  MutexLock lock(&mu_);
  operations_.erase(operation);
  changed_.SignalAll();
}

bool PeerQueue::Any() const {
  MutexLock lock(&mu_);
  return !operations_.empty();
}

void PeerQueue::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  for (PeerOperation* operation : operations_) operation->Cancel();
  while (!operations_.empty()) changed_.Wait(&mu_);
}

void PeerQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (operations_.empty() && !ending_) changed_.Wait(&mu_);
    }
    if (!queue_.Next(&tag, &ok)) return;
    TsanAcquire(tag);
    static_cast<QueueEvent*>(tag)->OnCompleted(ok);
  }
}

Peers::Peers(const PeerOptions& options, const AuthenticationOptions& authentication)
    : options_(WithOwnCertificate(options, authentication.tls)),
      authenticates_callers_(authentication.authenticates()),
      use_tls_(authentication.tls.enabled() || !options.ca_file.empty()) {}

absl::StatusOr<std::unique_ptr<Peers>> Peers::Make(const PeerOptions& options,
                                                   const AuthenticationOptions& authentication) {
  std::unique_ptr<Peers> peers(new Peers(options, authentication));
  TENSORD_RETURN_IF_ERROR(peers->Check());
  TENSORD_ASSIGN_OR_RETURN(Files files, peers->ReadFiles());
  MutexLock lock(&peers->mu_);
  peers->files_ = std::move(files);
  peers->files_checked_at_ = std::chrono::steady_clock::now();
  return peers;
}

absl::Status Peers::Check() const {
  if (options_.cert_file.empty() != options_.key_file.empty()) {
    return absl::InvalidArgumentError("--peer-tls-cert and --peer-tls-key go together");
  }
  if (!options_.cert_file.empty() && !use_tls_) {
    return absl::InvalidArgumentError("--peer-tls-cert needs --peer-tls-ca");
  }
  if (!options_.advertise.empty() && !IsAddress(options_.advertise)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--advertise needs HOST:PORT, not \"", options_.advertise, "\""));
  }
  return CheckPatterns(options_, use_tls_);
}

absl::StatusOr<Peers::Files> Peers::ReadFiles() const {
  Files files;
  if (!any()) return files;
  if (!options_.token_file.empty()) {
    TENSORD_ASSIGN_OR_RETURN(files.token, ReadToken(options_.token_file));
  }
  if (!options_.ca_file.empty()) {
    TENSORD_ASSIGN_OR_RETURN(files.ca, ReadSecretFile(options_.ca_file));
  }
  if (!options_.cert_file.empty()) {
    TENSORD_ASSIGN_OR_RETURN(files.cert, ReadSecretFile(options_.cert_file));
    TENSORD_ASSIGN_OR_RETURN(files.key, ReadSecretFile(options_.key_file));
  }
  return files;
}

absl::Status Peers::CheckListed(absl::string_view address) const {
  if (IsAddress(address) &&
      std::any_of(options_.peers.begin(), options_.peers.end(),
                  [&](const std::string& pattern) { return Matches(pattern, address); })) {
    return absl::OkStatus();
  }
  return WithErrorInfo(
      absl::PermissionDeniedError(
          absl::StrCat("this server fetches nothing from ", address.substr(0, 256),
                       ": its operator hasn't listed that server, as \"HOST:PORT\", in --peers")),
      "PEER_NOT_LISTED");
}

absl::Status Peers::CheckCaller(const Principal& caller) const {
  if (!authenticates_callers_) return absl::OkStatus();
  const auto& names = options_.principals;
  const bool known = caller.kind() != Principal::Kind::kAnonymous &&
                     std::find(names.begin(), names.end(), caller.name()) != names.end();
  if (known) return absl::OkStatus();
  const std::string subject = caller.kind() == Principal::Kind::kAnonymous
                                  ? "the caller, which presented neither a token nor a certificate,"
                                  : absl::StrCat("the caller, \"", caller.name(), "\" by its ",
                                                 KindName(caller.kind()), ",");
  return WithErrorInfo(
      absl::PermissionDeniedError(
          absl::StrCat(subject,
                       " isn't listed as a server: the operator of this server hasn't named it in "
                       "--peer-principals")),
      "NOT_A_PEER", {{"caller", caller.name()}});
}

std::string Peers::CertificateHint(const grpc::Status& status) const {
  // With TLS 1.3, our end of the handshake finishes before the peer checks our certificate. So a
  // peer that rejects it closes the connection after the handshake. An error that the server itself
  // returns has details.
  const std::string& message = status.error_message();
  const bool closed = absl::StrContains(message, "Socket closed") ||
                      absl::StrContains(message, "Connection reset") ||
                      absl::StrContains(message, "ALERT");
  if (!use_tls_ || !closed || status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      !status.error_details().empty()) {
    return "";
  }
  return absl::StrCat(
      message,
      "; the connection was closed after the TLS handshake. That server may require a certificate ",
      "(--tls-client-auth=require) signed by an authority in its --tls-client-ca: ",
      options_.cert_file.empty()
          ? "this server has no certificate (--peer-tls-cert, --peer-tls-key)"
          : "check the certificate of this server (--peer-tls-cert, or else --tls-cert)");
}

void Peers::RefreshLocked() {
  const auto now = std::chrono::steady_clock::now();
  if (now - files_checked_at_ < kFileCheckInterval) return;
  files_checked_at_ = now;
  absl::StatusOr<Files> read = ReadFiles();
  if (!read.ok()) return;  // a file may be half written
  // A channel keeps the certificates with which it was made, so new ones need new channels.
  if (read->ca != files_.ca || read->cert != files_.cert || read->key != files_.key) {
    channels_.clear();
  }
  files_ = *std::move(read);
}

std::shared_ptr<grpc::Channel> Peers::Connect(const std::string& address, int number) {
  MutexLock lock(&mu_);
  RefreshLocked();
  const std::pair<std::string, int> key(address, number);
  const auto found = channels_.find(key);
  if (found != channels_.end()) return found->second;
  if (channels_.size() >= kMaxChannels) channels_.clear();  // calls keep their channels alive
  return channels_[key] = MakeChannelLocked(address);
}

std::shared_ptr<grpc::Channel> Peers::MakeChannelLocked(const std::string& address) {
  const std::chrono::milliseconds keepalive = std::max(options_.timeout, kMinKeepaliveInterval);
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxResponseBytes);
  // A small compressed message may become a huge one before its size is checked.
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(keepalive.count()));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(keepalive.count()));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectPauseMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(keepalive.count()));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectPauseMs);
  // Without these, a proxy or a service config could redirect calls to servers that aren't listed.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      use_tls_ ? grpc::SslCredentials({files_.ca, files_.key, files_.cert})
               : grpc::InsecureChannelCredentials();
  return grpc::CreateCustomChannel(absl::StrCat("dns:///", address), credentials, args);
}

void Peers::Authorize(grpc::ClientContext* call) {
  MutexLock lock(&mu_);
  RefreshLocked();
  if (!files_.token.empty()) {
    call->AddMetadata("authorization", absl::StrCat("Bearer ", files_.token));
  }
}

bool Peers::MayShareWith(const std::string& address) {
  MutexLock lock(&mu_);
  const auto found = no_sharing_until_.find(address);
  return found == no_sharing_until_.end() || std::chrono::steady_clock::now() >= found->second;
}

void Peers::DisableSharingWith(const std::string& address) {
  MutexLock lock(&mu_);
  if (no_sharing_until_.size() >= kMaxChannels) no_sharing_until_.clear();
  no_sharing_until_[address] = std::chrono::steady_clock::now() + kSharingRetryInterval;
}

std::string PeerAddress(const std::string& advertise, const std::vector<std::string>& listening,
                        const std::string& host_name) {
  if (!advertise.empty()) return advertise;
  for (const std::string& address : listening) {
    if (absl::StartsWith(address, "unix:")) continue;
    const HostAndPort parts = Split(address);
    const bool wildcard = parts.host == "0.0.0.0" || parts.host == "[::]" || parts.host == "*";
    return wildcard ? absl::StrCat(host_name, ":", parts.port) : address;
  }
  return "";
}

}  // namespace tensord::server
