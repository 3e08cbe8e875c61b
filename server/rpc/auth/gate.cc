#include "tensord/server/rpc/auth/gate.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <sys/stat.h>

#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/auth/credential_errors.h"
#include "tensord/server/rpc/auth/listener_credentials.h"

namespace tensord::server {
namespace {

using CallState = Listeners::CallState;

// A change of a file is taken in within twice that, an end of a token within once.
constexpr auto kLookInterval = std::chrono::milliseconds(400);
// A call that was told to end and hasn't, because its client doesn't read, is cut.
constexpr auto kTimeToEnd = std::chrono::seconds(5);

constexpr char kAuthorization[] = "authorization";
constexpr char kHowToSend[] = "send it as \"authorization: Bearer TOKEN\"";

bool IsLocalPeer(absl::string_view peer) {
  return absl::StartsWith(peer, "unix:") || absl::StartsWith(peer, "ipv4:127.") ||
         absl::StartsWith(peer, "ipv6:[::1]:") || absl::StartsWith(peer, "ipv6:%5B::1%5D:");
}

// Whoever may write the file lets in whom they like. That others may read it does no harm.
absl::Status CheckOthersDontWrite(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0 || (file.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " may be written by others than its owner: chmod go-w ", path));
}

absl::StatusOr<std::shared_ptr<const TokenFile>> ReadTokens(const std::string& path) {
  TENSORD_RETURN_IF_ERROR(CheckOthersDontWrite(path));
  struct stat file = {};
  const bool is_empty = stat(path.c_str(), &file) == 0 && file.st_size == 0;
  std::string text;
  if (!is_empty) {
    TENSORD_ASSIGN_OR_RETURN(text, ReadSecretFile(path));
  }
  absl::StatusOr<TokenFile> tokens = TokenFile::Parse(text);
  if (!tokens.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ", ", tokens.status().message()));
  }
  return std::make_shared<const TokenFile>(*std::move(tokens));
}

std::vector<std::string> CertificateFiles(const TlsOptions& tls) {
  std::vector<std::string> paths;
  for (const std::string* path : {&tls.cert_file, &tls.key_file, &tls.client_ca_file}) {
    if (!path->empty()) paths.push_back(*path);
  }
  return paths;
}

std::string FirstProperty(const grpc::AuthContext& context, const char* name) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

// The certificates that the client has shown in its handshake, in PEM, its own first; empty: none.
std::string PeerCertificates(const grpc::ServerContext& call) {
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  if (context == nullptr) return "";
  const std::string own = FirstProperty(*context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (own.empty()) return "";
  // On this side of a connection OpenSSL leaves the client's own certificate out of the chain.
  return absl::StrCat(own, "\n", FirstProperty(*context, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME));
}

void WarnOfReadableKey(const TlsOptions& tls) {
  struct stat file = {};
  if (stat(tls.key_file.c_str(), &file) == 0 && (file.st_mode & S_IROTH) != 0) {
    std::cerr << "tensord: WARNING: everybody on this machine can read " << tls.key_file << "\n";
  }
}

}  // namespace

absl::Status Admission::Enter(Gate* gate, grpc::ServerContext* call,
                              std::function<void(const absl::Status&)> ended) {
  call_ = call;
  const absl::Status shown = ShowPass(gate, call, std::move(ended));
  if (!shown.ok() && gate->log_ != nullptr) gate->log_->Refused(call->peer(), shown);
  if (gate->listeners_ == nullptr) return shown;
  listeners_ = gate->listeners_;
  began_at_ = Listeners::Clock::now();
  state_ =
      shown.ok() ? listeners_->CallAdmitted(call->peer()) : listeners_->CallRefused(call->peer());
  return shown;
}

absl::Status Admission::ShowPass(Gate* gate, grpc::ServerContext* call,
                                 std::function<void(const absl::Status&)> ended) {
  while (true) {
    const Gate::FilesRef files = gate->files();
    TENSORD_ASSIGN_OR_RETURN(pass_, gate->Identify(*files, *call));
    if (pass_.expires == absl::InfiniteFuture() && !pass_.by_token && pass_.certificate.empty()) {
      return absl::OkStatus();  // nothing that could end
    }
    MutexLock lock(&gate->mu_);
    if (gate->files_ != files) continue;  // and what was good may be so no more
    gate_ = gate;
    ended_ = std::move(ended);
    gate->inside_.insert(this);
    return absl::OkStatus();
  }
}

void Admission::Leave() {
  if (gate_ == nullptr) return;
  MutexLock lock(&gate_->mu_);
  gate_->inside_.erase(this);
  gate_ = nullptr;
}

Admission::~Admission() {
  Leave();
  if (state_ != CallState::kNotCounted) listeners_->CallEnded(call_->peer(), began_at_, state_);
}

void Admission::RequestReceived(size_t bytes) {
  if (state_ != CallState::kRequestPending) return;
  state_ = CallState::kRequestReceived;
  listeners_->RequestReceived(call_->peer(), began_at_, static_cast<int64_t>(bytes));
}

void Admission::SessionUsed() {
  if (std::exchange(state_, CallState::kNotCounted) == CallState::kNotCounted) return;
  listeners_->SessionUsed(call_->peer(), began_at_);
}

void Admission::ServedAsPublic() {
  if (listeners_ != nullptr) listeners_->RefusedCallServed(call_->peer(), began_at_);
}

void Admission::Cancelled() {
  if (listeners_ != nullptr) listeners_->CallCancelled(call_->peer(), began_at_);
}

Gate::Gate(const GateOptions& options)
    : options_(options),
      anonymous_(principals_.Get(Principal::Kind::kAnonymous, "anonymous")),
      token_watch_(options.token_file.empty() ? std::vector<std::string>()
                                              : std::vector<std::string>{options.token_file}),
      certificate_watch_(CertificateFiles(options.tls)) {}

absl::StatusOr<std::unique_ptr<Gate>> Gate::Make(const GateOptions& options) {
  std::unique_ptr<Gate> gate(new Gate(options));
  Files files;
  if (!options.token_file.empty()) {
    TENSORD_ASSIGN_OR_RETURN(files.tokens, ReadTokens(options.token_file));
  }
  if (options.tls.enabled()) {
    TENSORD_ASSIGN_OR_RETURN(files.certificates, Certificates::Load(options.tls));
    WarnOfReadableKey(options.tls);
  }
  const bool any = files.tokens != nullptr || files.certificates != nullptr;
  gate->TakeOver(std::move(files));
  if (any) gate->thread_ = std::thread([raw = gate.get()] { raw->Run(); });
  return gate;
}

Gate::~Gate() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<grpc::ServerCredentials> Gate::CredentialsFor(absl::string_view address) {
  if (!options_.tls.enabled() || absl::StartsWith(address, "unix:")) {
    return grpc::InsecureServerCredentials();
  }
  return std::make_shared<TlsListenerCredentials>([this] { return files()->certificates; },
                                                  options_.tls);
}

void Gate::Reload() {
  {
    MutexLock lock(&mu_);
    reload_ = true;
  }
  wake_.SignalAll();
}

Gate::FilesRef Gate::files() const {
  MutexLock lock(&mu_);
  return files_;
}

absl::StatusOr<Admission::Pass> Gate::Identify(const Files& files,
                                               const grpc::ServerContext& call) {
  if (!options_.authenticates()) return Admission::Pass{.principal = anonymous_};
  if (files.tokens != nullptr) {
    const auto [first, last] = call.client_metadata().equal_range(kAuthorization);
    if (first != last && std::next(first) != last) {
      return Unauthenticated(kCredentialsInvalid, "more than one authorization header; send one");
    }
    if (first != last) {
      return ByToken(*files.tokens, absl::string_view(first->second.data(), first->second.size()));
    }
  }
  if (!options_.tls.client_ca_file.empty()) {
    const std::string chain = PeerCertificates(call);
    if (!chain.empty()) return ByCertificate(*files.certificates, chain);
  }
  if (options_.allow_anonymous_local && IsLocalPeer(call.peer())) {
    return Admission::Pass{.principal = anonymous_};
  }
  return NobodyCalls();
}

absl::StatusOr<Admission::Pass> Gate::ByToken(const TokenFile& tokens, absl::string_view header) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) {
    return Unauthenticated(
        kCredentialsInvalid,
        absl::StrCat("the authorization header is no bearer token; ", kHowToSend));
  }
  const absl::string_view token = absl::StripAsciiWhitespace(header.substr(kScheme.size()));
  Admission::Pass pass;
  pass.by_token = true;
  const TokenFile::Token* known = nullptr;
  if (token.size() <= kMaxTokenBytes) {
    pass.token = HashToken(token);
    known = tokens.Find(pass.token);
  }
  if (known == nullptr) {
    return Unauthenticated(
        kCredentialsInvalid,
        "the token isn't known here: it was revoked, or is another server's; ask whoever runs this "
        "one for a new token");
  }
  if (known->expires <= absl::Now()) {
    return Unauthenticated(kCredentialsExpired,
                           "the token has expired; ask whoever runs the server for a new one");
  }
  pass.expires = known->expires;
  pass.principal = principals_.Get(Principal::Kind::kToken, known->name);
  pass.principal->SetWeight(known->weight);
  return pass;
}

absl::StatusOr<Admission::Pass> Gate::ByCertificate(const Certificates& certificates,
                                                    const std::string& chain) {
  TENSORD_ASSIGN_OR_RETURN(const Certificates::Client client, certificates.Verify(chain));
  Admission::Pass pass;
  pass.principal = principals_.Get(Principal::Kind::kCertificate, client.name);
  pass.expires = client.expires;
  pass.certificate = chain;
  return pass;
}

absl::Status Gate::NobodyCalls() const {
  const bool tokens = !options_.token_file.empty();
  const bool certificates = !options_.tls.client_ca_file.empty();
  return Unauthenticated(
      kCredentialsMissing,
      absl::StrCat(
          "this server wants to know who calls: ",
          tokens ? absl::StrCat("it takes a bearer token (TENSORD_TOKEN_FILE names a file in the "
                                "environment of clients; in a call, ",
                                kHowToSend, ")")
                 : "",
          tokens && certificates ? ", or " : "",
          certificates ? "it takes a client certificate (TENSORD_TLS_CERT and TENSORD_TLS_KEY name "
                         "one in the environment of clients)"
                       : ""));
}

absl::StatusOr<absl::Time> Gate::Judge(const Files& files, const Admission::Pass& pass) {
  if (pass.by_token) {
    const TokenFile::Token* known = files.tokens->Find(pass.token);
    if (known == nullptr || known->name != pass.principal->name()) {
      return Unauthenticated(kCredentialsInvalid,
                             "the token was revoked; ask whoever runs the server for a new one");
    }
    return known->expires;
  }
  TENSORD_ASSIGN_OR_RETURN(const Certificates::Client client,
                           files.certificates->Verify(pass.certificate));
  return client.expires;
}

void Gate::Run() {
  while (true) {
    bool reload = false;
    {
      MutexLock lock(&mu_);
      if (!stopping_ && !reload_) wake_.WaitFor(&mu_, kLookInterval);
      if (stopping_) return;
      reload = std::exchange(reload_, false);
    }
    if (token_watch_.Changed() || (reload && !options_.token_file.empty())) LoadTokens();
    if (certificate_watch_.Changed() || (reload && options_.tls.enabled())) LoadCertificates();
    EndThoseThatExpired();
  }
}

void Gate::LoadTokens() {
  absl::StatusOr<std::shared_ptr<const TokenFile>> tokens = ReadTokens(options_.token_file);
  if (!tokens.ok()) {
    std::cerr << absl::StrCat("tensord: the tokens stay as they were: ", tokens.status().message(),
                              "\n");
    return;
  }
  std::cerr << absl::StrCat("tensord: ", options_.token_file, " read anew: ", (*tokens)->size(),
                            " tokens\n");
  Files changed = *files();
  changed.tokens = *std::move(tokens);
  TakeOver(std::move(changed));
}

void Gate::LoadCertificates() {
  absl::StatusOr<std::shared_ptr<const Certificates>> loaded = Certificates::Load(options_.tls);
  if (!loaded.ok()) {
    std::cerr << absl::StrCat(
        "tensord: the certificates stay as they were: ", loaded.status().message(), "\n");
    return;
  }
  std::cerr << absl::StrCat("tensord: ", options_.tls.cert_file,
                            " read anew: new connections have it\n");
  Files changed = *files();
  changed.certificates = *std::move(loaded);
  TakeOver(std::move(changed));
}

// Those inside are looked at anew: who wouldn't be let in now is told so.
void Gate::TakeOver(Files files) {
  const auto taken = std::make_shared<const Files>(std::move(files));
  MutexLock lock(&mu_);
  files_ = taken;
  for (Admission* admission : inside_) {
    const Admission::Pass& pass = admission->pass_;
    const absl::StatusOr<absl::Time> expires = Judge(*taken, pass);
    if (expires.ok()) {
      admission->pass_.expires = *expires;
      if (pass.by_token) pass.principal->SetWeight(taken->tokens->Find(pass.token)->weight);
    } else {
      TellLocked(admission, expires.status());
    }
  }
}

void Gate::EndThoseThatExpired() {
  const absl::Time now = absl::Now();
  const auto cut_before = std::chrono::steady_clock::now() - kTimeToEnd;
  MutexLock lock(&mu_);
  for (Admission* admission : inside_) {
    if (admission->told_) {
      if (admission->told_at_ < cut_before) admission->call_->TryCancel();
    } else if (admission->pass_.expires <= now) {
      TellLocked(admission,
                 Unauthenticated(
                     kCredentialsExpired,
                     "what the caller was let in by has expired; ask whoever runs the server for a "
                     "new token or certificate"));
    }
  }
}

void Gate::TellLocked(Admission* admission, const absl::Status& status) {
  if (std::exchange(admission->told_, true)) return;
  admission->told_at_ = std::chrono::steady_clock::now();
  admission->ended_(status);
}

}  // namespace tensord::server
