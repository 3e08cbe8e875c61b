#include "tensord/server/flags.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "tensord/common/util/nearest_word.h"
#include "tensord/server/device/byte_size.h"

namespace tensord::server {
namespace {

constexpr int kUsageError = 2;
constexpr int64_t kMaxMessageBytes = 1 << 30;
constexpr int64_t kMaxObjects = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 50;

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
    "A SIZE is bytes, or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 1.5GiB.\n\n"
    "SIGTERM and SIGINT drain: new work is refused, accepted work finished, exit status 0. "
    "SIGHUP\nhas tokens and certificates read anew at once.";

// A whole number from `low` to `high`, which help calls by `word`.
CLI::Option* Number(CLI::Option* option, int64_t low, int64_t high, const char* word) {
  return option->check(CLI::Range(low, high).description(""))
      ->type_name(word)
      ->capture_default_str();
}

// Bytes, as ParseByteSize takes them.
CLI::Option* Bytes(CLI::Option* option, int64_t low, int64_t high) {
  const auto parse = [](const std::string& text) {
    const absl::StatusOr<int64_t> bytes = ParseByteSize(text);
    if (!bytes.ok()) throw CLI::ValidationError(std::string(bytes.status().message()));
    return std::to_string(*bytes);
  };
  return Number(option, low, high, "SIZE")->transform(parse, "");
}

void AddServing(CLI::App& app, DaemonFlags* flags) {
  app.add_option("--listen", flags->server.listen,
                 "Addresses to serve, by comma: HOST:PORT (port 0 takes a free one), [IPV6]:PORT "
                 "or unix:PATH")
      ->delimiter(',')
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--devices", flags->devices,
                 "Logical devices, by comma, each KIND[:INDEX][=LIMIT], the limit a SIZE as below; "
                 "without it every GPU and one CPU device")
      ->type_name("DEVICES");
  Number(app.add_option("--cpu-threads", flags->cpu_threads,
                        "Threads that the CPU devices share out; 0 for one a processor"),
         0, 4096, "COUNT");
  app.add_option("--port-file", flags->port_file,
                 "File to write the bound addresses to, one a line, once the server is ready")
      ->type_name("FILE");
  app.add_flag(
      "--allow-insecure-remote", flags->server.allow_insecure_remote,
      "Serve addresses that other machines can reach even where there is no TLS, or nobody is "
      "asked who they are: whoever reaches the port can then use the devices");
  app.add_option("--collectives", flags->server.collectives,
                 "Address or interface, such as 10.0.0.5 or eth0, that groups of devices talk over "
                 "for collective operations, unencrypted, with servers on the same network, or on "
                 "that of the BITS in 10.0.0.5/BITS; \"off\" for none. Without it: 127.0.0.1 where "
                 "all of --listen is loopback, otherwise off")
      ->type_name("NETWORK");
  app.add_flag("--log-sessions", flags->server.log_sessions,
               "Tell on standard error of each session that is opened, closed or expires, and of "
               "each caller that is refused");
  app.add_flag("--reflection", flags->server.reflection,
               "Offer gRPC server reflection: grpcurl then needs no proto files");
  app.add_option("--grace-seconds", flags->grace_seconds,
                 "How long accepted work may take to finish after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86400.0).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
}

void AddIdentity(CLI::App& app, GateOptions* gate) {
  const std::string group = "Who may call";
  app.add_option(
         "--token-file", gate->token_file,
         "File of hashed bearer tokens, a line each: NAME sha256:HEX [expires=TIME] [weight=N]; "
         "\"tensorctl token NAME\" makes one. Read anew when it changes")
      ->type_name("FILE")
      ->group(group);
  app.add_option(
         "--tls-cert", gate->tls.cert_file,
         "Certificate (PEM, with what it takes up to an authority): every TCP listener then "
         "speaks TLS, Unix sockets don't. Read anew when it changes")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls-key", gate->tls.key_file, "Its key (PEM, without a password)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls-client-ca", gate->tls.client_ca_file,
                 "Authorities (PEM) whose certificates let clients in")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<std::string>(
         "--tls-client-auth",
         [gate](const std::string& how) {
           gate->tls.client_certificate_required = how == "require";
         },
         "With --tls-client-ca: whether a client must show a certificate (require), or may come by "
         "a token instead (optional)")
      ->check(CLI::IsMember({"require", "optional"}).description(""))
      ->type_name("HOW")
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
                 "port is any, *.DOMAIN any host in a domain; no other is ever called. From one on "
                 "this host large tensors come through shared memory, unless the environment of "
                 "either has TENSORD_SHARED_MEMORY=0")
      ->delimiter(',')
      ->type_name("ADDRESSES")
      ->group(group);
  app.add_option("--advertise", peers->advertise,
                 "HOST:PORT by which other servers reach this one; without it the first TCP "
                 "address that is listened on")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option("--peer-principals", peers->principals,
                 "Callers, by comma and as in the token file or \"dns:NAME\", that are servers and "
                 "may fetch from this one, where callers are asked who they are")
      ->delimiter(',')
      ->type_name("NAMES")
      ->group(group);
  app.add_option("--peer-token-file", peers->token_file,
                 "File with the bearer token that this server shows to others. Read anew when it "
                 "changes")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--peer-tls-ca", peers->ca_file,
                 "Authorities (PEM) of the other servers' certificates: they are then called with "
                 "TLS, as they are where this server speaks it")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--peer-tls-cert", peers->cert_file,
                 "Certificate (PEM) that this server shows to others; without it --tls-cert")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--peer-tls-key", peers->key_file, "Its key (PEM, without a password)")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<int64_t>(
         "--peer-timeout-seconds",
         [peers](int64_t seconds) { peers->timeout = std::chrono::seconds(seconds); },
         "How long another server may be out of reach before a fetch from it gives up, and one "
         "that "
         "fetches through shared memory may hold it without a word")
      ->check(CLI::Range(int64_t{1}, int64_t{86400}).description(""))
      ->default_str("10")
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--peer-connections", peers->connections,
                 "Over how many connections a copy from another server may be spread, where one "
                 "carries less than a gigabyte a second")
      ->check(CLI::Range(1, 16).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

void AddTuning(CLI::App& app, DaemonFlags* flags) {
  Number(app.add_option(
             "--spin-us", flags->server.spin_microseconds,
             "How long threads that serve session streams look for the next message before they "
             "sleep: saves waking up, and takes a core each meanwhile"),
         0, 1000000, "MICROSECONDS")
      ->group("Tuning");
  app.add_option("--fault-socket", flags->fault_socket,
                 "For tests: Unix socket to steer devices named faulty:cpu by (see "
                 "server/device/fault/fault_control.h)")
      ->type_name("PATH")
      ->group("Tuning");
  app.add_flag_callback(
         "--no-fusion", [flags] { flags->server.fusion = false; },
         "Run elementwise ops that follow one another, or a linear and its activation, one by one, "
         "and not as one kernel")
      ->group("Tuning");
  app.add_flag_callback(
         "--no-graphs", [flags] { flags->server.graphs = false; },
         "Run recorded programs on a GPU op by op, and not as CUDA graphs")
      ->group("Tuning");
}

// Those that are off unless they are given.
void AddQuotas(CLI::App& app, Limits* limits) {
  const auto bytes = [&app](const char* flag, int64_t* limit, const char* what) {
    Bytes(app.add_option(flag, *limit, what), 0, kMaxBytes)->group("Limits");
  };
  const auto count = [&app](const char* flag, int64_t* limit, const char* what) {
    Number(app.add_option(flag, *limit, what), 0, kMaxObjects, "COUNT")->group("Limits");
  };
  bytes("--max-bytes-per-session", &limits->max_bytes_per_session,
        "Memory that one session may hold on each device, such as 8GiB; 0 here and below: no "
        "limit");
  bytes("--max-bytes-per-principal", &limits->max_bytes_per_principal,
        "Memory on each device that the sessions of one caller may hold together");
  count("--max-sessions-per-principal", &limits->max_sessions_per_principal,
        "Sessions of one caller at once");
  count("--max-handles-per-principal", &limits->max_handles_per_principal,
        "Tensors that the sessions of one caller may hold together");
  bytes("--max-upload-bytes-per-principal", &limits->max_upload_bytes_per_principal,
        "Bytes that one caller's unfinished uploads, under way or broken off, may come to");
}

void AddLimits(CLI::App& app, Limits* limits) {
  const auto count = [&app](const char* flag, int64_t* limit, int64_t low, int64_t high,
                            const char* what, const char* word = "COUNT") {
    Number(app.add_option(flag, *limit, what), low, high, word)->group("Limits");
  };
  Bytes(app.add_option("--max-message-bytes", limits->max_message_bytes,
                       "Largest payload of one message; larger tensors are streamed"),
        int64_t{1} << 12, kMaxMessageBytes)
      ->default_str("16MiB")
      ->group("Limits");
  count("--max-sessions", &limits->max_sessions, 1, kMaxObjects, "Sessions at once");
  count("--max-handles-per-session", &limits->max_handles_per_session, 1, kMaxObjects,
        "Tensors that one session may hold");
  AddQuotas(app, limits);
  count("--max-published-per-principal", &limits->max_published_per_principal, 0, int64_t{1} << 20,
        "Tensors that one caller may lend to others under names; 0: none");
  count("--max-tickets-per-principal", &limits->max_tickets_per_principal, 1, int64_t{1} << 20,
        "Tickets of one caller, by which other servers fetch its tensors, that haven't been used "
        "up");
  count("--max-pulls-per-principal", &limits->max_pulls_per_principal, 1, int64_t{1} << 16,
        "Tensors that are being fetched from other servers for one caller at once");
  count("--max-group-members-per-session", &limits->max_group_members_per_session, 0, 1024,
        "Members of groups for collective operations that one session may have; each has a "
        "thread; 0: none");
  count("--lease-seconds", &limits->default_lease_seconds, 1, limits->max_lease_seconds,
        "How long a session outlives its last call or stream, where the client doesn't say",
        "SECONDS");
}

// The flag that the first unknown argument is a likely misspelling of; empty if there is none.
std::string NearestFlag(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty() || unknown[0].rfind("--", 0) != 0) return "";
  const std::string name = unknown[0].substr(2, unknown[0].find('=') - 2);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return Nearest(name, names);
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
  } catch (const CLI::ExtrasError& error) {
    app.exit(error);
    const std::string meant = NearestFlag(app);
    if (!meant.empty()) std::cerr << "Did you mean --" << meant << "?\n";
    *exit_status = kUsageError;
    return false;
  } catch (const CLI::ParseError& error) {  // help and version come this way too
    *exit_status = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  return true;
}

}  // namespace tensord::server
