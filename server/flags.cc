#include "tensord/server/flags.h"

#include <CLI/CLI.hpp>
#include <string>

namespace tensord::server {
namespace {

constexpr int kUsageError = 2;
constexpr int64_t kMostMessageBytes = 1 << 30;
constexpr int64_t kMostObjects = int64_t{1} << 40;
constexpr int64_t kMostBytes = int64_t{1} << 50;

constexpr char kDescription[] =
    "Serves this machine's GPUs, or its processors, as tensor devices over gRPC.";
constexpr char kExamples[] =
    "Examples:\n"
    "  tensord                                  every GPU, and cpu:0, on 127.0.0.1:50051\n"
    "  tensord --devices=cpu,cpu                two logical devices on the processors\n"
    "  tensord --devices=cuda:0=20GiB,cuda:1    two GPUs, 20 GiB at most of the first\n"
    "  tensord --listen=unix:/run/tensord.sock  for this machine alone\n"
    "  tensord --listen=0.0.0.0:50051 --tls-cert=server.pem --tls-key=server.key "
    "--token-file=tokens\n"
    "                                           for those who have a token\n\n"
    "SIGTERM and SIGINT drain: new work is refused, accepted work finished, exit status 0. "
    "SIGHUP\nhas tokens and certificates read anew at once.";

void AddServing(CLI::App& app, DaemonFlags* flags) {
  app.add_option("--listen", flags->server.listen,
                 "Addresses to serve, by comma: HOST:PORT (port 0 takes a free one), [IPV6]:PORT "
                 "or unix:PATH")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--devices", flags->devices,
                 "Logical devices, by comma, each KIND[:INDEX][=LIMIT]; without it every GPU and "
                 "one CPU device");
  app.add_option("--cpu-threads", flags->cpu_threads,
                 "Threads that the CPU devices share out; 0 for one a processor")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--port-file", flags->port_file,
                 "File to write the bound addresses to, one a line, once the server is ready");
  app.add_flag(
      "--allow-insecure-remote", flags->server.allow_insecure_remote,
      "Serve addresses that other machines can reach even where there is no TLS, or nobody is "
      "asked who they are: whoever reaches the port can then use the devices");
  app.add_option("--collectives", flags->server.collectives,
                 "Address or interface, such as 10.0.0.5 or eth0, that groups of devices talk over "
                 "for collective operations, unencrypted, with servers on the same network, or on "
                 "that of the BITS in 10.0.0.5/BITS; \"off\" for none. Without it: loopback, where "
                 "--listen has nothing else");
  app.add_flag("--reflection", flags->server.reflection,
               "Offer gRPC server reflection: grpcurl then needs no proto files");
  app.add_option("--grace-seconds", flags->grace_seconds,
                 "How long accepted work may take to finish after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
}

void AddIdentity(CLI::App& app, GateOptions* gate) {
  const std::string group = "Who may call";
  app.add_option(
         "--token-file", gate->token_file,
         "File of hashed bearer tokens, a line each: NAME sha256:HEX [expires=TIME] [weight=N]; "
         "\"tensorctl token NAME\" makes one. Read anew when it changes")
      ->group(group);
  app.add_option(
         "--tls-cert", gate->tls.cert_file,
         "Certificate (PEM, with what it takes up to an authority): every TCP listener then "
         "speaks TLS, Unix sockets don't. Read anew when it changes")
      ->group(group);
  app.add_option("--tls-key", gate->tls.key_file, "Its key (PEM, without a password)")
      ->group(group);
  app.add_option("--tls-client-ca", gate->tls.client_ca_file,
                 "Authorities (PEM) whose certificates let clients in")
      ->group(group);
  app.add_option_function<std::string>(
         "--tls-client-auth",
         [gate](const std::string& how) {
           gate->tls.client_certificate_required = how == "require";
         },
         "With --tls-client-ca: whether a client must show a certificate, or may come by a token "
         "instead")
      ->check(CLI::IsMember({"require", "optional"}))
      ->default_str("require")
      ->group(group);
  app.add_flag("--allow-anonymous-local", gate->allow_anonymous_local,
               "Ask callers from this machine (loopback, Unix sockets) for no credentials, though "
               "others have to show some")
      ->group(group);
}

void AddPeers(CLI::App& app, PeerOptions* peers) {
  const std::string group = "Other servers";
  app.add_option("--peers", peers->peers,
                 "Servers that tensors may be fetched from, by comma, HOST:PORT each: * as the "
                 "port is any, *.DOMAIN any host in a domain; no other is ever called")
      ->delimiter(',')
      ->group(group);
  app.add_option("--advertise", peers->advertise,
                 "HOST:PORT by which other servers reach this one; without it the first TCP "
                 "address that is listened on")
      ->group(group);
  app.add_option("--peer-principals", peers->principals,
                 "Callers, by comma and as in the token file or \"dns:NAME\", that are servers and "
                 "may fetch from this one, where callers are asked who they are")
      ->delimiter(',')
      ->group(group);
  app.add_option("--peer-token-file", peers->token_file,
                 "File with the bearer token that this server shows to others. Read anew when it "
                 "changes")
      ->group(group);
  app.add_option("--peer-tls-ca", peers->ca_file,
                 "Authorities (PEM) of the other servers' certificates: they are then called with "
                 "TLS, as they are where this server speaks it")
      ->group(group);
  app.add_option("--peer-tls-cert", peers->cert_file,
                 "Certificate (PEM) that this server shows to others; without it --tls-cert")
      ->group(group);
  app.add_option("--peer-tls-key", peers->key_file, "Its key (PEM, without a password)")
      ->group(group);
  app.add_option_function<int64_t>(
         "--peer-timeout-seconds",
         [peers](int64_t seconds) { peers->timeout = std::chrono::seconds(seconds); },
         "How long another server may be out of reach before a fetch from it gives up")
      ->check(CLI::Range(int64_t{1}, int64_t{86400}))
      ->default_str("10")
      ->group(group);
}

void AddTuning(CLI::App& app, DaemonFlags* flags) {
  app.add_option(
         "--spin-us", flags->server.spin_microseconds,
         "How long threads that serve session streams look for the next message before they "
         "sleep, in microseconds: saves waking up, and takes a core each meanwhile")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str()
      ->group("Tuning");
  app.add_option("--fault-socket", flags->fault_socket,
                 "For tests: Unix socket to steer devices named faulty:cpu by (see "
                 "server/device/fault/fault_control.h)")
      ->group("Tuning");
  app.add_flag("--fusion,!--no-fusion", flags->server.fusion,
               "Run elementwise ops that follow one another, or a linear and its activation, as "
               "one kernel")
      ->capture_default_str()
      ->group("Tuning");
  app.add_flag("--graphs,!--no-graphs", flags->server.graphs,
               "Run recorded programs on a GPU as CUDA graphs, where that is faster")
      ->capture_default_str()
      ->group("Tuning");
}

// Those that are off unless they are given.
void AddQuotas(CLI::App& app, Limits* limits) {
  const auto add = [&app](const char* flag, int64_t* limit, const char* what, bool bytes) {
    CLI::Option* option = app.add_option(flag, *limit, what)
                              ->check(CLI::Range(int64_t{0}, kMostBytes))
                              ->capture_default_str()
                              ->group("Limits");
    if (bytes) option->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  };
  add("--max-bytes-per-session", &limits->max_bytes_per_session,
      "Memory that one session may hold on each device, such as 8GiB; 0 here and below: no limit",
      true);
  add("--max-bytes-per-principal", &limits->max_bytes_per_principal,
      "Memory on each device that the sessions of one caller may hold together", true);
  add("--max-sessions-per-principal", &limits->max_sessions_per_principal,
      "Sessions of one caller at once", false);
  add("--max-handles-per-principal", &limits->max_handles_per_principal,
      "Tensors that the sessions of one caller may hold together", false);
  add("--max-upload-bytes-per-principal", &limits->max_upload_bytes_per_principal,
      "Bytes that one caller's unfinished uploads, under way or broken off, may come to", true);
}

void AddLimits(CLI::App& app, Limits* limits) {
  const std::string group = "Limits";
  app.add_option("--max-message-bytes", limits->max_message_bytes,
                 "Largest payload of one message; larger tensors are streamed")
      ->check(CLI::Range(int64_t{1} << 12, kMostMessageBytes))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-sessions", limits->max_sessions, "Sessions at once")
      ->check(CLI::Range(int64_t{1}, kMostObjects))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-handles-per-session", limits->max_handles_per_session,
                 "Tensors that one session may hold")
      ->check(CLI::Range(int64_t{1}, kMostObjects))
      ->capture_default_str()
      ->group(group);
  AddQuotas(app, limits);
  app.add_option("--max-published-per-principal", limits->max_published_per_principal,
                 "Tensors that one caller may lend to others under names; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-tickets-per-principal", limits->max_tickets_per_principal,
                 "Tickets of one caller, by which other servers fetch its tensors, that haven't "
                 "been used up")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-pulls-per-principal", limits->max_pulls_per_principal,
                 "Tensors that are being fetched from other servers for one caller at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-group-members-per-session", limits->max_group_members_per_session,
                 "Members of groups for collective operations that one session may have; each has "
                 "a thread; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1024}))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--lease-seconds", limits->default_lease_seconds,
         "How long a session outlives its last call or stream, where the client doesn't say")
      ->check(CLI::Range(int64_t{1}, limits->max_lease_seconds))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

bool ParseFlags(int argc, char** argv, DaemonFlags* flags, int* exit_status) {
  CLI::App app(kDescription, "tensord");
  app.footer(kExamples);
  app.set_version_flag("--version", "tensord " TENSORD_VERSION, "Print the version and exit");
  AddServing(app, flags);
  AddIdentity(app, &flags->server.gate);
  AddPeers(app, &flags->server.peers);
  AddTuning(app, flags);
  AddLimits(app, &flags->server.limits);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // help and version come this way too
    *exit_status = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  return true;
}

}  // namespace tensord::server
