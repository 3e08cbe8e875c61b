// Errors of connecting and of identities, and errors of tensorctl.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tensord/common/util/owned_fd.h"
#include "tensord/common/util/token_file.h"
#include "tensord/tests/integration/errors_page.h"
#include "tensord/tests/integration/rpc_helpers.h"
#include "tensord/tests/integration/test_certificates.h"
#include "tensord/tests/run_command.h"

namespace tensord::integration {
namespace {

// Without this, gRPC prints an error for each handshake that fails.
[[maybe_unused]] const bool kQuiet = setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0) == 0;

// A port of 127.0.0.1 on which no program answers.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }
  // From now on the system accepts connections.
  void Listen() { EXPECT_EQ(listen(fd_.get(), 8), 0); }
  const std::string& address() const { return address_; }

 private:
  OwnedFd fd_;
  std::string address_;
};

std::string Line(const std::string& name, const std::string& token,
                 absl::Time expires = absl::InfiniteFuture(), const std::string& limits = "") {
  return *TokenLine(name, HashToken(token), expires, 1, /*admin=*/false, limits) + "\n";
}

ConnectOptions WithToken(const std::string& token) {
  ConnectOptions options;
  options.token = token;
  return options;
}

ConnectOptions WithTls(const TlsOptions& tls) {
  ConnectOptions options;
  options.tls = tls;
  return options;
}

std::vector<std::string> TlsFlags(const TestFolder& folder, const CertificatePair& pair) {
  return {"--tls-cert=" + folder.Write("server.pem", pair.cert),
          "--tls-key=" + folder.Write("server.key", pair.key)};
}

void AddTlsErrors(ErrorsPage* page, const std::string& plain_address) {
  const TestFolder folder;
  page->Replace(folder.path(), "/certs");
  const Authority authority;
  const std::string ca = folder.Write("ca.pem", authority.pem());
  const std::string wrong_ca = folder.Write("wrong.pem", Authority().pem());
  const auto server =
      StartDaemon(page, "gpu-b", TlsFlags(folder, authority.Issue(ServerRequest())));
  std::vector<std::string> flags = TlsFlags(folder, authority.Issue(ServerRequest()));
  flags.push_back("--tls-client-ca=" + ca);
  const auto mutual = StartDaemon(page, "gpu-c", flags);
  ASSERT_TRUE(server != nullptr && mutual != nullptr);
  page->Add("without TLS, to a server that uses TLS", Client::Connect(server->address()));
  page->Add("with TLS, to a server that doesn't use TLS",
            Client::Connect(plain_address, WithTls({.ca_file = ca})));
  page->Add("with `ca_file` of another authority",
            Client::Connect(server->address(), WithTls({.ca_file = wrong_ca})));
  page->Add("by an address that isn't in the server's certificate",
            Client::Connect(server->address(), WithTls({.ca_file = ca, .server_name = "gpu-x"})));
  page->Add("without a certificate, to a server that requires one",
            Client::Connect(mutual->address(), WithTls({.ca_file = ca})));
  page->Add("with `cert_file` alone",
            Client::Connect(server->address(), WithTls({.ca_file = ca, .cert_file = ca})));
  page->Add(
      "with a `ca_file` that isn't PEM",
      Client::Connect(server->address(), WithTls({.ca_file = folder.Write("text", "hello")})));
}

// Adds a row for a connection through a proxy that doesn't exist.
void AddProxyErrors(ErrorsPage* page, const std::string& address, const std::string& proxy) {
  ASSERT_EQ(setenv("http_proxy", ("http://" + proxy).c_str(), /*overwrite=*/1), 0);
  page->Add("with `http_proxy`, where no proxy listens", Client::Connect(address));
  ASSERT_EQ(setenv("no_proxy", "localhost,127.0.0.1,::1", /*overwrite=*/1), 0);
  EXPECT_TRUE(Client::Connect(address).ok());
  unsetenv("http_proxy");
  unsetenv("no_proxy");
}

// Adds a row for a command: its exit code, and its error without the reference to the help text.
void AddCommand(ErrorsPage* page, const std::string& arguments) {
  const TestFolder folder;
  const CommandResult result = RunCommand(
      absl::StrCat("env -u TENSORD_SERVER -u TENSORD_SERVERS -u TENSORD_TOKEN_FILE " TENSORCTL_PATH
                   " ",
                   arguments),
      folder.File("errors"));
  absl::string_view error = result.err;
  error = absl::StripSuffix(absl::StripPrefix(error, "tensorctl: "), "\n");
  error = absl::StripSuffix(error, "\nSee \"tensorctl help\" and \"tensorctl help COMMAND\".");
  page->AddRow(CodeText("tensorctl " + arguments), absl::StrCat(result.exit_code),
               absl::StrReplaceAll(error, {{"\n", " ⏎ "}}));
}

}  // namespace

void AddConnectErrors(ErrorsPage* page) {
  const auto server = StartDaemon(page, "gpu-a");
  ASSERT_NE(server, nullptr);
  SilentPort port;
  page->Replace(port.address(), "gpu-b:50051");
  page->BeginSection("Connecting", "`Client::Connect` returns these errors.");
  page->Add("to an address without a port", Client::Connect("gpu-a"));
  page->Add("to an address with a scheme", Client::Connect("http://gpu-a:50051"));
  page->Add("to an address whose port is too large", Client::Connect("gpu-a:99999"));
  page->Add("to a port on which no server listens", Client::Connect(port.address()));
  AddProxyErrors(page, server->address(), port.address());
  page->Add("to a host that doesn't exist", Client::Connect("no-such-host.invalid:50051"));
  port.Listen();
  ConnectOptions options;
  options.connect_timeout = absl::Milliseconds(200);
  page->Add("to a host that doesn't answer", Client::Connect(port.address(), options));
  options = {};
  options.client_name = std::string(200, 'x');
  page->Add("with a `client_name` of 200 characters", Client::Connect(server->address(), options));
  page->Add("`Cluster::Connect` without addresses", Cluster::Connect(std::vector<std::string>()));
  page->Add("`Cluster::Connect` with an address twice",
            Cluster::Connect({"gpu-a:50051", "gpu-a:50051"}));
  AddTlsErrors(page, server->address());
}

void AddIdentityErrors(ErrorsPage* page) {
  const TestFolder folder;
  page->Replace(folder.path(), "/tokens");
  const std::string tokens =
      absl::StrCat(Line("alice", "alices"), Line("bob", "bobs"),
                   Line("old", "olds", absl::Now() - absl::Hours(1)),
                   Line("carol", "carols", absl::InfiniteFuture(), "max-sessions=1"));
  const auto server =
      StartDaemon(page, "gpu-a", {"--token-file=" + folder.Write("tokens", tokens)});
  ASSERT_NE(server, nullptr);
  const std::string& address = server->address();
  page->BeginSection(
      "Identity",
      "The server has `--token-file`. `alice` and `bob` are clients with tokens. `x` is a "
      "tensor of `alice`.");
  page->Add("connects without a token", Client::Connect(address));
  page->Add("connects with an unknown token", Client::Connect(address, WithToken("guess")));
  page->Add("connects with an expired token", Client::Connect(address, WithToken("olds")));
  page->Add("connects with two words as the token", Client::Connect(address, WithToken("a b")));
  page->Add("connects with a token to another machine, without TLS",
            Client::Connect("gpu-b:50051", WithToken("alices")));
  ConnectOptions options;
  options.token_file = folder.File("none");
  page->Add("connects with a token file that doesn't exist", Client::Connect(address, options));
  const auto carol = Client::Connect(address, WithToken("carols"));
  page->Add("connects again with a token that permits one session",
            Client::Connect(address, WithToken("carols")));
  const auto connected = Client::Connect(address, WithToken("alices"));
  const auto bobs = Client::Connect(address, WithToken("bobs"));
  ASSERT_TRUE(connected.ok() && bobs.ok()) << connected.status() << bobs.status();
  const Client& alice = *connected;
  const Client& bob = *bobs;
  const Tensor x = Ones(*alice.device("cpu:0"), {2});
  TENSORD_ERROR_ROW(page, bob.Open("weights", "alice"));
  TENSORD_ERROR_ROW(page, alice.Publish(x, "my weights"));
  ASSERT_TRUE(alice.Publish(x, "weights").ok());
  page->Add("`alice.Publish(y, \"weights\")`, if `x` has this name",
            alice.Publish(x + 1, "weights"));
  TENSORD_ERROR_ROW(page, bob.ListTensorsOfAllPrincipals());
  RpcClient bobs_calls(address, {.token = "bobs"});
  v1::CloseSessionRequest close;
  close.set_session_number(alice.session_number());
  page->Add("bob closes alice's session by its number",
            bobs_calls.Call<v1::CloseSessionResponse>("CloseSession", close));
}

void AddTensorctlErrors(ErrorsPage* page) {
  const TestFolder folder;
  page->Replace(folder.path(), "/tokens");
  const auto server = StartDaemon(page, "gpu-a");
  const auto strict = StartDaemon(
      page, "gpu-b", {"--token-file=" + folder.Write("tokens", Line("alice", "alices"))});
  ASSERT_TRUE(server != nullptr && strict != nullptr);
  SilentPort port;
  page->Replace(port.address(), "gpu-c:50051");
  page->BeginSection("tensorctl",
                     "gpu-a has no authentication, gpu-b has `--token-file`, and no server listens "
                     "on gpu-c. ⏎ stands for the end of a line.",
                     "| command | exit code | message |");
  const std::string at_a = absl::StrCat("--server ", server->address(), " ");
  AddCommand(page, "devcies");
  AddCommand(page, "devices --jsno");
  AddCommand(page, at_a + "close twelve");
  AddCommand(page, at_a + "close 99");
  AddCommand(page, at_a + "tensors --device cuda:0");
  AddCommand(page, absl::StrCat("--server ", strict->address(), " devices"));
  AddCommand(page, absl::StrCat("--server ", port.address(), " devices"));
}

}  // namespace tensord::integration
