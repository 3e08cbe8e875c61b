#include "tensord/server/flags.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/byte_size.h"
#include "tensord/common/util/nearest_word.h"

namespace tensord::server {
namespace {

constexpr int kUsageError = 2;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMaxMessageBytes = 1 << 30;
constexpr int64_t kMaxObjects = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 50;

constexpr char kDescription[] =
    "Serves this machine's GPUs, or its processors, as tensor devices over gRPC.";
constexpr char kExamples[] =
    "Examples:\n"
    "  tensord                                  every GPU, and cpu:0, on 127.0.0.1:50051\n"
    "  tensord --devices=cpu,cpu                two logical devices on the processors\n"
    "  tensord --devices=cuda:0=20GiB,cuda:1    two GPUs, at most 20 GiB of the first\n"
    "  tensord --listen=unix:/run/tensord.sock  for this machine only\n"
    "  tensord --listen=0.0.0.0:50051 --tls-cert=server.pem --tls-key=server.key "
    "--token-file=tokens\n"
    "                                           for clients with a token\n\n"
    "A SIZE is in bytes, or has a unit: KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 1.5GiB.\n\n"
    "On SIGTERM or SIGINT the server refuses new work, finishes accepted work, and exits with "
    "status 0.\nOn SIGHUP it reloads tokens and certificates.";

// Makes the option take an integer from `low` to `high`. Help shows `word` for the value.
CLI::Option* Number(CLI::Option* option, int64_t low, int64_t high, const char* word) {
  return option->check(CLI::Range(low, high).description(""))
      ->type_name(word)
      ->capture_default_str();
}

// Returns the number of the ExitWhenLost with this name, in digits. If there is none, throws.
std::string ParseExitWhenLost(const std::string& text) {
  const auto number = [](ExitWhenLost when) { return std::to_string(static_cast<int>(when)); };
  if (text == "all") return number(ExitWhenLost::kAll);
  if (text == "any") return number(ExitWhenLost::kAny);
  if (text == "never") return number(ExitWhenLost::kNever);
  throw CLI::ValidationError(absl::StrCat("it must be all, any or never, not \"", text, "\""));
}

// Makes the option take a number of bytes, as ParseByteSize() does. Help shows a default of whole
// MiB as such.
CLI::Option* Bytes(CLI::Option* option, int64_t low, int64_t high) {
  const auto parse = [](const std::string& text) {
    const absl::StatusOr<int64_t> bytes = ParseByteSize(text);
    if (!bytes.ok()) throw CLI::ValidationError(std::string(bytes.status().message()));
    return std::to_string(*bytes);
  };
  Number(option, low, high, "SIZE")->transform(parse, "");
  int64_t bytes = 0;
  if (absl::SimpleAtoi(option->get_default_str(), &bytes) && bytes > 0 && bytes % kMiB == 0) {
    option->default_str(absl::StrCat(bytes / kMiB, "MiB"));
  }
  return option;
}

void AddServing(CLI::App& app, DaemonFlags* flags) {
  app.add_option("--listen", flags->server.listen,
                 "Addresses to listen on, separated by commas: HOST:PORT (port 0: a free port), "
                 "[IPV6]:PORT or unix:PATH")
      ->delimiter(',')
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--devices", flags->devices,
                 "Logical devices, separated by commas: KIND[:INDEX][=LIMIT], where LIMIT is a "
                 "SIZE. Default: every GPU and one CPU device")
      ->type_name("DEVICES");
  Number(app.add_option("--cpu-threads", flags->cpu_threads,
                        "Threads, divided among the CPU devices; 0: one per processor"),
         0, 4096, "COUNT");
  app.add_option("--port-file", flags->port_file,
                 "File that gets the bound addresses, one per line, once the server is ready")
      ->type_name("FILE");
  app.add_flag(
      "--allow-insecure-remote", flags->server.allow_insecure_remote,
      "Allow addresses that other machines can reach without TLS or without authentication. Every "
      "client that reaches the port can then use the devices");
  app.add_option("--collectives", flags->server.collectives,
                 "Address or interface for the connections of collective operations, such as "
                 "10.0.0.5 or eth0. They are not encrypted. Only servers on the same network take "
                 "part; 10.0.0.5/BITS sets the network's prefix. \"off\": no collective "
                 "operations. Default: 127.0.0.1 if all of --listen is loopback, otherwise off")
      ->type_name("NETWORK");
  app.add_flag("--log-sessions", flags->server.log_sessions,
               "Log on standard error each session that is opened, is closed or expires, and each "
               "caller that is refused. At more than 20 lines a second, lines are dropped and "
               "counted");
  app.add_flag("--reflection", flags->server.reflection,
               "Offer gRPC server reflection: grpcurl then needs no proto files");
  app.add_flag("--until-eof", flags->until_eof,
               "Drain and exit, as after SIGTERM, when standard input reaches the end of file. A "
               "program that starts the daemon with a pipe as standard input then ends it by "
               "ending itself");
  app.add_option("--grace-seconds", flags->grace_seconds,
                 "How long accepted work may run after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86400.0).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option(
         "--exit-when-lost", flags->exit_when_lost,
         "When to drain and exit with status 75, so that a supervisor starts the daemon "
         "again. 'all': when all GPUs were lost and could not be restarted. 'any': when one "
         "GPU could not be restarted. 'never': the daemon continues. After some errors, a "
         "GPU works only in a new process")
      ->transform(ParseExitWhenLost, "")
      ->type_name("WHEN")
      ->default_str("all");
}

void AddIdentity(CLI::App& app, AuthenticationOptions* authentication) {
  const std::string group = "Authentication";
  app.add_option(
         "--token-file", authentication->token_file,
         "File of hashed bearer tokens, one per line: NAME sha256:HEX [expires=TIME] [weight=N] "
         "[LIMIT=VALUE] [admin]. A LIMIT, such as max-bytes, replaces the server's flag "
         "--LIMIT-per-principal for NAME. \"tensorctl token NAME\" makes a line. Reloaded when it "
         "changes")
      ->type_name("FILE")
      ->group(group);
  app.add_option(
         "--tls-cert", authentication->tls.cert_file,
         "Certificate (PEM) and its intermediate certificates. Every TCP listener then uses TLS; "
         "Unix sockets don't. Reloaded when it changes")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls-key", authentication->tls.key_file,
                 "Private key of --tls-cert (PEM, without a password)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls-client-ca", authentication->tls.client_ca_file,
                 "Certificate authorities (PEM) that authenticate clients by their certificates")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<std::string>(
         "--tls-client-auth",
         [authentication](const std::string& how) {
           authentication->tls.client_certificate_required = how == "require";
         },
         "With --tls-client-ca: \"require\": a client must present a certificate. \"optional\": it "
         "may present a token instead")
      ->check(CLI::IsMember({"require", "optional"}).description(""))
      ->type_name("HOW")
      ->default_str("require")
      ->group(group);
  app.add_flag("--allow-anonymous-local", authentication->allow_anonymous_local,
               "Admit callers from this machine (loopback, Unix sockets) without credentials, even "
               "if other callers need them")
      ->group(group);
}

void AddPeers(CLI::App& app, PeerOptions* peers) {
  const std::string group = "Other servers";
  app.add_option(
         "--peers", peers->peers,
         "Servers from which tensors may be fetched, separated by commas: HOST:PORT. Port "
         "*: any port. Host *.DOMAIN: any host in the domain. This server calls no other "
         "server. Large tensors from a server on this host go through shared memory, unless "
         "either server has TENSORD_SHARED_MEMORY=0 in its environment")
      ->delimiter(',')
      ->type_name("ADDRESSES")
      ->group(group);
  app.add_option("--advertise", peers->advertise,
                 "HOST:PORT at which other servers reach this one. Default: the first TCP address "
                 "of --listen; if it is 0.0.0.0, the machine's host name with its port")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option("--peer-principals", peers->principals,
                 "If callers are authenticated: the callers that are servers and may fetch from "
                 "this one, separated by commas: names of the token file, or \"dns:NAME\"")
      ->delimiter(',')
      ->type_name("NAMES")
      ->group(group);
  app.add_option("--peer-token-file", peers->token_file,
                 "File with the bearer token that this server presents to other servers. Reloaded "
                 "when it changes")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--peer-tls-ca", peers->ca_file,
                 "Certificate authorities (PEM) of other servers. This server calls them with TLS "
                 "if this is given, or if it uses TLS itself. Default: the system's authorities")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--peer-tls-cert", peers->cert_file,
                 "Certificate (PEM) that this server presents to other servers. Default: "
                 "--tls-cert")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--peer-tls-key", peers->key_file,
                 "Private key of --peer-tls-cert (PEM, without a password)")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<int64_t>(
         "--peer-timeout-seconds",
         [peers](int64_t seconds) { peers->timeout = std::chrono::seconds(seconds); },
         "How long another server may be unreachable before a pull from it fails. Also how long "
         "a server that fetches through shared memory may hold it without a message")
      ->check(CLI::Range(int64_t{1}, int64_t{86400}).description(""))
      ->default_str(absl::StrCat(peers->timeout / std::chrono::seconds(1)))
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--peer-connections", peers->connections,
                 "Maximum number of connections for one copy from another server. A copy uses more "
                 "than one only if one carries less than 1 GB/s")
      ->check(CLI::Range(1, 16).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

void AddMetrics(CLI::App& app, DaemonFlags* flags) {
  const std::string group = "Metrics";
  app.add_option("--metrics-listen", flags->metrics.listen,
                 "Address at which Prometheus reads metrics over HTTP: HOST:PORT (port 0: a free "
                 "port) or [IPV6]:PORT. Default: none")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option("--metrics-port-file", flags->metrics_port_file,
                 "File that gets the bound address of --metrics-listen, before --port-file is "
                 "written")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--metrics-allow-remote", flags->metrics.allow_remote,
               "Allow an address for metrics that other machines can reach. Every machine that "
               "reaches it can read the metrics, without encryption or authentication")
      ->group(group);
}

void AddTuning(CLI::App& app, DaemonFlags* flags) {
  Number(app.add_option(
             "--spin-us", flags->server.spin_microseconds,
             "How long a thread that serves session streams polls for the next message before it "
             "sleeps. Answers come sooner, but polling uses a core for each thread"),
         0, 1000000, "MICROSECONDS")
      ->group("Tuning");
  app.add_option("--fault-socket", flags->fault_socket,
                 "For tests: Unix socket that controls devices named faulty:cpu (see "
                 "server/device/fault/fault_control.h)")
      ->type_name("PATH")
      ->group("Tuning");
  app.add_flag_callback(
         "--no-fusion", [flags] { flags->server.fusion = false; },
         "Run consecutive elementwise ops, or a linear and its activation, as separate kernels and "
         "not as one. Elementwise ops then give the same bits; a linear with its activation may "
         "differ in the last place")
      ->group("Tuning");
  app.add_flag_callback(
         "--no-graphs", [flags] { flags->server.graphs = false; },
         "Run recorded programs on a GPU op by op, and not as CUDA graphs. The results have the "
         "same bits")
      ->group("Tuning");
}

// Adds the limits that are off by default, and those whose default main.cc computes from other
// limits.
void AddQuotas(CLI::App& app, Limits* limits) {
  const auto bytes = [&app](const char* flag, int64_t* limit, const char* what) {
    Bytes(app.add_option(flag, *limit, what), 0, kMaxBytes)->group("Limits");
  };
  const auto count = [&app](const char* flag, int64_t* limit, const char* what) {
    Number(app.add_option(flag, *limit, what), 0, kMaxObjects, "COUNT")->group("Limits");
  };
  // Adds a limit whose default main.cc computes (SetPrincipalDefaults()).
  const auto share = [&app](const char* flag, int64_t* limit, const char* what) {
    *limit = kUnsetLimit;
    Number(app.add_option(flag, *limit, what), 0, kMaxObjects, "COUNT")
        ->default_str("")
        ->group("Limits");
  };
  bytes("--max-bytes-per-session", &limits->max_bytes_per_session,
        "Memory that one session may hold on each device, such as 8GiB; 0: no limit");
  bytes("--max-bytes-per-principal", &limits->max_bytes_per_principal,
        "Memory on each device that all sessions of one caller may hold together; 0: no limit");
  share("--max-sessions-per-principal", &limits->max_sessions_per_principal,
        "Sessions of one caller at once; 0: no limit. Default: if callers are authenticated, half "
        "of --max-sessions; otherwise 0");
  count("--max-handles-per-principal", &limits->max_handles_per_principal,
        "Tensors that all sessions of one caller may hold together; 0: no limit");
  count("--max-connections-per-address", &limits->max_connections_per_address,
        "TCP connections from one address at once; 0: no limit");
  share(
      "--max-connections-per-principal", &limits->max_connections_per_principal,
      "TCP connections of one caller at once; 0: no limit. A client opens three, and more for "
      "large uploads. Default: if callers are authenticated, half of --max-connections, or of what "
      "file descriptors allow; otherwise 0");
  bytes("--max-upload-bytes-per-principal", &limits->max_upload_bytes_per_principal,
        "Bytes of one caller's unfinished uploads, active or interrupted; 0: no limit");
}

void AddLimits(CLI::App& app, Limits* limits) {
  const auto count = [&app](const char* flag, int64_t* limit, int64_t low, int64_t high,
                            const char* what, const char* word = "COUNT") {
    Number(app.add_option(flag, *limit, what), low, high, word)->group("Limits");
  };
  const auto bytes = [&app](const char* flag, int64_t* limit, int64_t low, int64_t high,
                            const char* what) {
    return Bytes(app.add_option(flag, *limit, what), low, high)->group("Limits");
  };
  bytes("--max-message-bytes", &limits->max_message_bytes, int64_t{1} << 12, kMaxMessageBytes,
        "Largest payload of one message; larger tensors are streamed");
  bytes("--max-host-bytes", &limits->max_host_bytes, kMiB, kMaxBytes,
        "Host memory that is charged to callers for handles, programs, sessions and so on, but not "
        "for the elements of tensors. Default: a twentieth of the memory, at least 64MiB and at "
        "most 8GiB. The default memory limit of CPU devices doesn't include this amount")
      ->default_str("");
  bytes("--max-host-bytes-per-principal", &limits->max_host_bytes_per_principal, int64_t{1} << 16,
        kMaxBytes,
        "The part of --max-host-bytes that may be charged to one caller. Default: half of "
        "--max-host-bytes")
      ->default_str("");
  count("--max-sessions", &limits->max_sessions, 1, kMaxObjects, "Sessions at once");
  count("--max-connections", &limits->max_connections, 0, kMaxObjects,
        "TCP connections at once; 0: as many as file descriptors allow");
  bytes(
      "--max-request-bytes", &limits->max_request_bytes, 32 * kMiB, kMaxBytes,
      "Memory for the requests of all callers that have arrived in part. Default: a thirty-second "
      "of the memory, at most 384MiB, and at least four times --max-message-bytes")
      ->default_str("");
  bytes("--max-request-bytes-per-principal", &limits->max_request_bytes_per_principal, 32 * kMiB,
        kMaxBytes,
        "The same for one caller; at least twice --max-message-bytes. Default: half of "
        "--max-request-bytes")
      ->default_str("");
  bytes("--max-response-bytes", &limits->max_response_bytes, kMiB, kMaxBytes,
        "Memory for responses that clients haven't received; further ones wait. Default: a "
        "thirty-second of the memory, at least 32MiB, at most 384MiB, and at least twice "
        "--max-message-bytes")
      ->default_str("");
  bytes("--max-response-bytes-per-principal", &limits->max_response_bytes_per_principal, kMiB,
        kMaxBytes, "The same for one caller. Default: half of --max-response-bytes")
      ->default_str("");
  count("--max-handles-per-session", &limits->max_handles_per_session, 1, kMaxObjects,
        "Tensors that one session may hold");
  AddQuotas(app, limits);
  count("--max-published-per-principal", &limits->max_published_per_principal, 0, int64_t{1} << 20,
        "Tensors that one caller may share with other callers under names; 0: none");
  count("--max-tickets-per-principal", &limits->max_tickets_per_principal, 1, int64_t{1} << 20,
        "Unused tickets of one caller, by which other servers fetch its tensors");
  count("--max-pulls-per-principal", &limits->max_pulls_per_principal, 1, int64_t{1} << 16,
        "Tensors that are fetched from other servers for one caller at once");
  count("--max-group-members-per-session", &limits->max_group_members_per_session, 0, 1024,
        "Members of groups for collective operations that one session may have; each has a "
        "thread; 0: none");
  count("--max-group-members-per-principal", &limits->max_group_members_per_principal, 0,
        int64_t{1} << 16, "Members of groups of all sessions of one caller together; 0: no limit");
  count("--max-idle-seconds", &limits->max_idle_seconds, 0, 31536000,
        "How long a session may be unused (no call, no stream message, no op that waits or runs) "
        "before the server closes it, even if its client is connected; 0: no limit",
        "SECONDS");
  count("--max-op-seconds", &limits->max_op_seconds, 0, 86400,
        "How long one op, or one recorded program, may run before the server stops it. On a GPU "
        "only the time of its launches counts; 0: no limit",
        "SECONDS");
  count("--lease-seconds", &limits->default_lease_seconds, 1, limits->max_lease_seconds,
        "How long a session outlives its last call or stream, if the client doesn't choose a lease",
        "SECONDS");
}

// Returns the flag that the first unknown argument resembles; empty if there is none.
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
  AddIdentity(app, &flags->server.authentication);
  AddPeers(app, &flags->server.peers);
  AddMetrics(app, flags);
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
  } catch (const CLI::ParseError& error) {  // also for --help and --version
    *exit_status = app.exit(error) == 0 ? 0 : kUsageError;
    return false;
  }
  return true;
}

}  // namespace tensord::server
