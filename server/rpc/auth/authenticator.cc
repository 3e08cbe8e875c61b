#include "tensord/server/rpc/auth/authenticator.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <sys/stat.h>

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/token.h"
#include "tensord/server/log.h"
#include "tensord/server/rpc/auth/credential_errors.h"
#include "tensord/server/rpc/auth/listener_credentials.h"

namespace tensord::server {
namespace {

// How often the authenticator's thread checks files and credentials. A replaced file takes effect
// within twice this time, the expiry of a token within once.
constexpr auto kCheckInterval = std::chrono::milliseconds(400);
// If a call hasn't ended this long after the end of its credentials, because its client doesn't
// read, the authenticator cancels it.
constexpr auto kEndTimeout = std::chrono::seconds(5);

constexpr char kAuthorization[] = "authorization";
constexpr char kHowToSend[] = "send it as \"authorization: Bearer TOKEN\"";

// Credit is added to the connection in pieces of at least this size, because that takes a lock.
constexpr int64_t kCreditBytes = 64 << 10;
constexpr int64_t kCreditMessages = 256;
// The peer's control frames that acknowledge a message take 1/kAcknowledgementShare of its bytes,
// plus the framing of a message.
constexpr int64_t kAcknowledgementShare = 256;
// On the wire, the headers of a call take at most their text, kWireHeaderBytes for each header, and
// kHeaderOverheadBytes for the HTTP/2 frame and the pseudo-headers, without :path's text.
constexpr int64_t kWireHeaderBytes = 8;
constexpr int64_t kHeaderOverheadBytes = 512;

// The estimated memory of an open call: gRPC's call and the server's objects.
constexpr int64_t kCallBytes = 16 << 10;
// If a caller has reached its limit of host memory, it may still have this many open calls. So it
// can delete tensors and close sessions.
constexpr int64_t kMaxCallsPastLimit = 64;

bool IsLocalPeer(absl::string_view peer) {
  return absl::StartsWith(peer, "unix:") || absl::StartsWith(peer, "ipv4:127.") ||
         absl::StartsWith(peer, "ipv6:[::1]:") || absl::StartsWith(peer, "ipv6:%5B::1%5D:");
}

// The largest size of a call's headers, as HTTP/2's SETTINGS_MAX_HEADER_LIST_SIZE counts it. gRPC
// announces this limit, but enforces it only if the client acknowledges the announcement. A header
// that HPACK has compressed to one byte takes 75 bytes of memory in an unfinished header block, and
// 240 bytes in a call that gRPC has passed to the server.
constexpr int64_t kMaxHeadersBytes = 8 << 10;
constexpr int64_t kHeaderBytes = 32;  // what HTTP/2 counts for a header besides its text

// Returns the size of a call's headers if each takes `bytes_per_header` besides its text.
int64_t HeadersBytes(const grpc::ServerContext& call, int64_t bytes_per_header) {
  int64_t bytes = 0;
  for (const auto& [key, value] : call.client_metadata()) {
    bytes += static_cast<int64_t>(key.size() + value.size()) + bytes_per_header;
  }
  return bytes;
}

absl::Status CheckHeaders(const grpc::ServerContext& call) {
  const int64_t bytes = HeadersBytes(call, kHeaderBytes);
  if (bytes <= kMaxHeadersBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the headers of the call take ", bytes,
                                                 " bytes; the limit is ", kMaxHeadersBytes,
                                                 ": send less metadata"));
}

absl::StatusOr<std::shared_ptr<const TokenFile>> ReadTokens(const std::string& path) {
  struct stat file = {};
  const bool exists = stat(path.c_str(), &file) == 0;
  // A user who can write the file can give access to anyone. Reading it does no harm: it contains
  // hashes.
  if (exists && (file.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("users other than its owner can write ", path, ": run chmod go-w ", path));
  }
  std::string text;
  const bool is_empty = exists && S_ISREG(file.st_mode) && file.st_size == 0;
  if (!is_empty) {
    TENSORD_ASSIGN_OR_RETURN(text, ReadSecretFile(path));
  }
  absl::StatusOr<TokenFile> tokens = TokenFile::Parse(text);
  if (!tokens.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ", ", tokens.status().message()));
  }
  return std::make_shared<const TokenFile>(*std::move(tokens));
}

std::string FirstProperty(const grpc::AuthContext& context, const char* name) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

// Returns the certificates that the client presented in its handshake, in PEM, its own first. Empty
// if it presented none.
std::string PeerCertificates(const grpc::ServerContext& call) {
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  if (context == nullptr) return "";
  const std::string own = FirstProperty(*context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (own.empty()) return "";
  // On the server's side, OpenSSL's chain doesn't contain the client's own certificate.
  return absl::StrCat(own, "\n", FirstProperty(*context, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME));
}

void WarnIfKeyIsReadable(const TlsOptions& tls) {
  struct stat file = {};
  if (stat(tls.key_file.c_str(), &file) == 0 && (file.st_mode & S_IROTH) != 0) {
    LogLine(absl::StrCat("WARNING: all users of this machine can read ", tls.key_file));
  }
}

}  // namespace

absl::Status Admission::Admit(Authenticator* authenticator, grpc::ServerContext* call,
                              std::function<void(const absl::Status&)> ended) {
  call_ = call;
  began_at_ = std::chrono::steady_clock::now();
  listeners_ = authenticator->listeners_;
  if (listeners_ != nullptr) connection_ = listeners_->Find(call->peer());
  absl::Status admitted = CheckHeaders(*call);
  if (admitted.ok()) admitted = Authenticate(authenticator, call, ended);
  if (admitted.ok()) admitted = Add(authenticator, std::move(ended));
  if (admitted.ok()) return admitted;
  refused_ = true;
  if (absl::IsUnauthenticated(admitted)) failures_ = authenticator->FailureCounter(admitted);
  if (listeners_ != nullptr && !connection_call_.admitted) {
    // A client that works as intended knows the limit of open calls, but not the caller's limits.
    const bool at_limit =
        principal() != nullptr && connection_ != nullptr && !connection_->has_max_calls();
    listeners_->AddRefused(call->peer(), connection_, &connection_call_, at_limit);
  }
  if (authenticator->log_ != nullptr) {
    authenticator->log_->Refused(connection_ != nullptr ? connection_->address() : call->peer(),
                                 admitted);
  }
  return admitted;
}

absl::Status Admission::Add(Authenticator* authenticator,
                            std::function<void(const absl::Status&)> ended) {
  if (connection_ != nullptr) {
    connection_call_.end = std::move(ended);
    TENSORD_RETURN_IF_ERROR(listeners_->AddAdmitted(
        connection_, &connection_call_, *call_,
        kHeaderOverheadBytes + HeadersBytes(*call_, kWireHeaderBytes), principal()));
  }
  charge_ = Charge(BudgetOf(principal(), PrincipalLimit::kHostBytes));
  counted_ = Charge(BudgetRef(principal(), &principal()->calls()));
  counted_.AddPastLimit(1);
  if (principal()->calls().used() > kMaxCallsPastLimit) return charge_.Add(kCallBytes);
  charge_.AddPastLimit(kCallBytes);
  return absl::OkStatus();
}

absl::Status Admission::Authenticate(Authenticator* authenticator, grpc::ServerContext* call,
                                     std::function<void(const absl::Status&)> ended) {
  while (true) {
    const Authenticator::FilesRef files = authenticator->files();
    TENSORD_ASSIGN_OR_RETURN(credentials_, authenticator->Authenticate(*files, *call, connection_));
    // The credentials of an anonymous caller can't end.
    if (principal()->kind() == Principal::Kind::kAnonymous) return absl::OkStatus();
    MutexLock lock(&authenticator->mu_);
    if (authenticator->files_ != files) continue;  // the new files may not accept the credentials
    if (principal()->kind() == Principal::Kind::kToken) {
      const TokenFile::Token& token = *files->tokens->Find(credentials_.token);
      principal()->SetWeight(token.weight);
      principal()->SetLimits(token.limits);
    }
    authenticator_ = authenticator;
    ended_ = std::move(ended);
    authenticator->admitted_.insert(this);
    return absl::OkStatus();
  }
}

void Admission::Release() {
  if (authenticator_ == nullptr) return;
  MutexLock lock(&authenticator_->mu_);
  authenticator_->admitted_.erase(this);
  authenticator_ = nullptr;
}

Admission::~Admission() {
  Release();
  if (failures_ != nullptr) ++*failures_;
  if (connection_ == nullptr) return;
  if (credit_messages_ > 0) connection_->AddCredit(credit_bytes_, credit_messages_);
  connection_->Remove(&connection_call_);
}

absl::Status Admission::CheckMessageSize(size_t bytes) const {
  return listeners_ != nullptr ? listeners_->CheckMessageSize(bytes) : absl::OkStatus();
}

void Admission::MessageReleased(size_t bytes) { AddCredit(static_cast<int64_t>(bytes)); }

void Admission::MessageSent(size_t bytes) {
  AddCredit(static_cast<int64_t>(bytes) / kAcknowledgementShare);
}

void Admission::AddCredit(int64_t bytes) {
  if (connection_ == nullptr) return;
  const int64_t credit = credit_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const int64_t messages = credit_messages_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (credit < kCreditBytes && messages < kCreditMessages) return;
  connection_->AddCredit(credit_bytes_.exchange(0), credit_messages_.exchange(0));
}

void Admission::ServedAsPublic() {
  failures_ = nullptr;
  if (connection_ != nullptr && !connection_call_.admitted) connection_->ServedAsPublic();
}

void Admission::Cancelled() {
  if (connection_ == nullptr) return;
  const bool has_deadline = call_->deadline() != std::chrono::system_clock::time_point::max();
  const auto open_for = std::chrono::steady_clock::now() - began_at_;
  if (has_deadline && open_for >= Connection::kMaxCountedTime) return;
  listeners_->CountCancelled(connection_, has_deadline);
}

Authenticator::Authenticator(const AuthenticationOptions& options, const Limits& limits)
    : options_(options),
      principals_(limits),
      anonymous_(principals_.Get(Principal::Kind::kAnonymous, "anonymous")),
      token_watch_({options.token_file}),
      certificate_watch_(
          {options.tls.cert_file, options.tls.key_file, options.tls.client_ca_file}) {}

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::Make(
    const AuthenticationOptions& options, const Limits& limits) {
  std::unique_ptr<Authenticator> authenticator(new Authenticator(options, limits));
  Files files;
  if (!options.token_file.empty()) {
    TENSORD_ASSIGN_OR_RETURN(files.tokens, ReadTokens(options.token_file));
  }
  if (options.tls.enabled()) {
    TENSORD_ASSIGN_OR_RETURN(files.certificates, Certificates::Load(options.tls));
    WarnIfKeyIsReadable(options.tls);
  }
  const bool any = files.tokens != nullptr || files.certificates != nullptr;
  authenticator->SetFiles(std::move(files));
  if (any) authenticator->thread_ = std::thread([raw = authenticator.get()] { raw->Run(); });
  return authenticator;
}

Authenticator::~Authenticator() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<grpc::ServerCredentials> Authenticator::CredentialsFor(absl::string_view address) {
  if (!options_.tls.enabled() || absl::StartsWith(address, "unix:")) {
    return grpc::InsecureServerCredentials();
  }
  return std::make_shared<TlsListenerCredentials>([this] { return files()->certificates; },
                                                  options_.tls);
}

void Authenticator::Reload() {
  {
    MutexLock lock(&mu_);
    reload_ = true;
  }
  wake_.SignalAll();
}

Authenticator::FilesRef Authenticator::files() const {
  MutexLock lock(&mu_);
  return files_;
}

absl::StatusOr<Admission::Credentials> Authenticator::Authenticate(
    const Files& files, const grpc::ServerContext& call, const ConnectionRef& connection) {
  if (!options_.authenticates()) return Admission::Credentials{.principal = anonymous_};
  if (files.tokens != nullptr) {
    const auto [first, last] = call.client_metadata().equal_range(kAuthorization);
    if (first != last && std::next(first) != last) {
      return Unauthenticated(kCredentialsInvalid, "more than one authorization header; send one");
    }
    if (first != last) {
      return AuthenticateToken(*files.tokens,
                               absl::string_view(first->second.data(), first->second.size()));
    }
  }
  if (!options_.tls.client_ca_file.empty()) {
    const std::string chain = PeerCertificates(call);
    if (!chain.empty()) return AuthenticateCertificate(*files.certificates, chain);
  }
  const bool is_local =
      connection != nullptr ? IsLocalAddress(connection->address()) : IsLocalPeer(call.peer());
  if (options_.allow_anonymous_local && is_local) {
    return Admission::Credentials{.principal = anonymous_};
  }
  return CredentialsMissing();
}

absl::StatusOr<Admission::Credentials> Authenticator::AuthenticateToken(const TokenFile& tokens,
                                                                        absl::string_view header) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) {
    return Unauthenticated(
        kCredentialsInvalid,
        absl::StrCat("the authorization header isn't a bearer token; ", kHowToSend));
  }
  const absl::string_view token = absl::StripAsciiWhitespace(header.substr(kScheme.size()));
  Admission::Credentials credentials;
  const TokenFile::Token* known = nullptr;
  if (token.size() <= kMaxTokenBytes) {
    credentials.token = HashToken(token);
    known = tokens.Find(credentials.token);
  }
  if (known == nullptr) {
    return Unauthenticated(
        kCredentialsInvalid,
        "the server doesn't know the token: it was revoked, or it belongs to another server; ask "
        "the server's operator for a new one");
  }
  if (known->expires <= absl::Now()) {
    return Unauthenticated(kCredentialsExpired,
                           "the token has expired; ask the server's operator for a new one");
  }
  credentials.expires = known->expires;
  credentials.is_admin = known->admin;
  credentials.principal = principals_.Get(Principal::Kind::kToken, known->name);
  return credentials;
}

absl::StatusOr<Admission::Credentials> Authenticator::AuthenticateCertificate(
    const Certificates& certificates, const std::string& chain) {
  TENSORD_ASSIGN_OR_RETURN(const Certificates::Client client, certificates.Verify(chain));
  Admission::Credentials credentials;
  credentials.principal = principals_.Get(Principal::Kind::kCertificate, client.name);
  credentials.expires = client.expires;
  credentials.certificate = chain;
  return credentials;
}

absl::Status Authenticator::CredentialsMissing() const {
  const bool tokens = !options_.token_file.empty();
  const bool certificates = !options_.tls.client_ca_file.empty();
  return Unauthenticated(
      kCredentialsMissing,
      absl::StrCat(
          "the server requires authentication: ",
          tokens ? absl::StrCat("present a bearer token (name its file in the client's environment "
                                "as TENSORD_TOKEN_FILE; in a call, ",
                                kHowToSend, ")")
                 : "",
          tokens && certificates ? ", or " : "",
          certificates ? "present a client certificate (name its files in the client's environment "
                         "as TENSORD_TLS_CERT and TENSORD_TLS_KEY)"
                       : ""));
}

std::atomic<int64_t>* Authenticator::FailureCounter(const absl::Status& refused) {
  const std::string reason = ErrorReason(refused);
  if (reason == kCredentialsMissing) return &missing_;
  return reason == kCredentialsExpired ? &expired_ : &invalid_;
}

absl::StatusOr<absl::Time> Authenticator::Recheck(const Files& files,
                                                  const Admission::Credentials& credentials) {
  if (credentials.principal->kind() == Principal::Kind::kToken) {
    const TokenFile::Token* known = files.tokens->Find(credentials.token);
    if (known == nullptr || known->name != credentials.principal->name()) {
      return Unauthenticated(kCredentialsInvalid,
                             "the token was revoked; ask the server's operator for a new one");
    }
    if (credentials.is_admin && !known->admin) {
      return Unauthenticated(kCredentialsInvalid,
                             "the token is no longer an administrator's; call again");
    }
    credentials.principal->SetWeight(known->weight);
    credentials.principal->SetLimits(known->limits);
    return known->expires;
  }
  TENSORD_ASSIGN_OR_RETURN(const Certificates::Client client,
                           files.certificates->Verify(credentials.certificate));
  return client.expires;
}

void Authenticator::Run() {
  while (true) {
    bool reload = false;
    {
      MutexLock lock(&mu_);
      if (!stopping_ && !reload_) wake_.WaitFor(&mu_, kCheckInterval);
      if (stopping_) return;
      reload = std::exchange(reload_, false);
    }
    if (token_watch_.Changed() || (reload && !options_.token_file.empty())) LoadTokens();
    if (certificate_watch_.Changed() || (reload && options_.tls.enabled())) LoadCertificates();
    EndExpired();
  }
}

void Authenticator::LoadTokens() {
  absl::StatusOr<std::shared_ptr<const TokenFile>> tokens = ReadTokens(options_.token_file);
  if (!tokens.ok()) {
    LogLine(absl::StrCat("the server keeps the previous tokens: ", tokens.status().message()));
    return;
  }
  LogLine(absl::StrCat("reloaded ", options_.token_file, ": ", (*tokens)->size(), " tokens"));
  Files changed = *files();
  changed.tokens = *std::move(tokens);
  SetFiles(std::move(changed));
}

void Authenticator::LoadCertificates() {
  absl::StatusOr<std::shared_ptr<const Certificates>> loaded = Certificates::Load(options_.tls);
  if (!loaded.ok()) {
    LogLine(
        absl::StrCat("the server keeps the previous certificates: ", loaded.status().message()));
    return;
  }
  LogLine(absl::StrCat("reloaded ", options_.tls.cert_file, ": new connections use it"));
  Files changed = *files();
  changed.certificates = *std::move(loaded);
  SetFiles(std::move(changed));
}

void Authenticator::SetFiles(Files files) {
  const auto current = std::make_shared<const Files>(std::move(files));
  MutexLock lock(&mu_);
  files_ = current;
  for (Admission* admission : admitted_) {
    const absl::StatusOr<absl::Time> expires = Recheck(*current, admission->credentials_);
    if (expires.ok()) {
      admission->credentials_.expires = *expires;
    } else {
      EndLocked(admission, expires.status());
    }
  }
}

void Authenticator::EndExpired() {
  const absl::Time now = absl::Now();
  const auto cancel_before = std::chrono::steady_clock::now() - kEndTimeout;
  MutexLock lock(&mu_);
  for (Admission* admission : admitted_) {
    if (admission->ended_at_.has_value()) {
      if (*admission->ended_at_ < cancel_before) admission->call_->TryCancel();
    } else if (admission->credentials_.expires <= now) {
      EndLocked(admission,
                Unauthenticated(
                    kCredentialsExpired,
                    "the caller's token or certificate has expired; ask the server's operator for "
                    "a new one"));
    }
  }
}

void Authenticator::EndLocked(Admission* admission, const absl::Status& status) {
  if (admission->ended_at_.has_value()) return;
  admission->ended_at_ = std::chrono::steady_clock::now();
  admission->ended_(status);
}

}  // namespace tensord::server
