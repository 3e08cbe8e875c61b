// tensord: the daemon. Flags, devices, server, signals.
#include <malloc.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/rpc/server.h"

ABSL_FLAG(std::vector<std::string>, listen, {"127.0.0.1:50051"},
          "addresses to serve, by comma: HOST:PORT (port 0 takes a free one), [IPV6]:PORT, unix:PATH");
ABSL_FLAG(std::string, devices, "",
          "logical devices, by comma, each KIND[:INDEX][=LIMIT]: \"cuda:0,cuda:1,cpu\", "
          "\"cpu,cpu=2GiB\"; empty for every GPU and one CPU device");
ABSL_FLAG(int, cpu_threads, 0, "threads that the CPU devices share out; 0 for one a processor");
ABSL_FLAG(std::string, port_file, "",
          "file to write the bound addresses to, one a line, once the server is ready");
ABSL_FLAG(bool, allow_insecure_remote, false,
          "serve addresses that other machines can reach, though nothing is encrypted or "
          "authenticated");
ABSL_FLAG(bool, reflection, false, "offer gRPC server reflection, for grpcurl without proto files");
ABSL_FLAG(int64_t, lease_seconds, tensord::server::Limits{}.default_lease_seconds,
          "how long a session outlives its last call, where the client doesn't say");
ABSL_FLAG(int64_t, max_message_bytes, tensord::server::Limits{}.max_message_bytes,
          "largest payload of one message; larger tensors are streamed");
ABSL_FLAG(int64_t, max_sessions, tensord::server::Limits{}.max_sessions, "sessions at once");
ABSL_FLAG(int64_t, max_handles_per_session, tensord::server::Limits{}.max_handles_per_session,
          "tensors that one session may hold");
ABSL_FLAG(double, grace_seconds, 10,
          "after SIGTERM or SIGINT: how long accepted work may take to finish");

namespace tensord::server {
namespace {

// Chunks of a transfer are allocated and freed all the time: have malloc keep them instead of mapping
// each anew, which costs a third of the bandwidth.
void TuneMalloc() {
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 4 << 20);
}

std::string Usage() {
  return "Serves this machine's GPUs, or its processors, as tensor devices over gRPC.\n\n"
         "  tensord                                  every GPU, and cpu:0, on 127.0.0.1:50051\n"
         "  tensord --devices=cpu,cpu                two logical devices on the processors\n"
         "  tensord --devices=cuda:0=20GiB,cuda:1    two GPUs, the first for 20 GiB at most\n"
         "  tensord --listen=unix:/run/tensord.sock  for this machine alone\n\n"
         "SIGTERM and SIGINT drain: new work is refused, accepted work is finished, exit status 0.";
}

absl::Status CheckFlags() {
  const auto positive = [](absl::string_view name, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "=", value, " is out of range; it may be 1 to ", most));
  };
  constexpr int64_t kMany = int64_t{1} << 40;
  absl::Status status;
  status.Update(positive("max_message_bytes", absl::GetFlag(FLAGS_max_message_bytes), 1 << 30));
  status.Update(positive("max_sessions", absl::GetFlag(FLAGS_max_sessions), kMany));
  status.Update(
      positive("max_handles_per_session", absl::GetFlag(FLAGS_max_handles_per_session), kMany));
  status.Update(positive("lease_seconds", absl::GetFlag(FLAGS_lease_seconds),
                         Limits{}.max_lease_seconds));
  const double grace = absl::GetFlag(FLAGS_grace_seconds);
  if (!(grace >= 0 && grace <= 86400)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("--grace_seconds=", grace, " is out of range; it may be 0 to 86400")));
  }
  if (absl::GetFlag(FLAGS_cpu_threads) < 0) {
    status.Update(absl::InvalidArgumentError("--cpu_threads may not be negative"));
  }
  return status;
}

// Whole or not at all: whoever waits for the file never reads half of it.
absl::Status WritePortFile(const std::string& path, const std::vector<std::string>& addresses) {
  const std::string temporary = path + ".tmp";
  {
    std::ofstream out(temporary);
    for (const std::string& address : addresses) out << address << "\n";
    if (!out.flush()) return absl::UnavailableError(absl::StrCat("can't write ", temporary));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("can't write ", path));
  }
  return absl::OkStatus();
}

ServerOptions OptionsFromFlags() {
  ServerOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.allow_insecure_remote = absl::GetFlag(FLAGS_allow_insecure_remote);
  options.reflection = absl::GetFlag(FLAGS_reflection);
  options.limits.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes);
  options.limits.max_sessions = absl::GetFlag(FLAGS_max_sessions);
  options.limits.max_handles_per_session = absl::GetFlag(FLAGS_max_handles_per_session);
  options.limits.default_lease_seconds = absl::GetFlag(FLAGS_lease_seconds);
  return options;
}

absl::StatusOr<std::unique_ptr<Server>> StartServer() {
  absl::Status flags = CheckFlags();
  if (!flags.ok()) return flags;
  auto requests = ParseDevices(absl::GetFlag(FLAGS_devices));
  if (!requests.ok()) return requests.status();
  auto devices = MakeDevices(*requests, absl::GetFlag(FLAGS_cpu_threads));
  if (!devices.ok()) return devices.status();
  auto server = Server::Start(OptionsFromFlags(), *std::move(devices));
  if (!server.ok()) return server.status();
  const std::string port_file = absl::GetFlag(FLAGS_port_file);
  if (!port_file.empty()) {
    absl::Status written = WritePortFile(port_file, (*server)->addresses());
    if (!written.ok()) return written;
  }
  return server;
}

void Announce(Server& server) {
  const std::string no_cuda = CudaUnavailableReason();
  if (!no_cuda.empty()) std::cerr << "tensord: no GPU is served: " << no_cuda << "\n";
  for (const DeviceSlot* slot : server.engine().slots()) {
    const DeviceInfo& info = slot->device->info();
    std::cerr << "tensord: device " << info.name.ToString() << " is " << info.model << ", limit "
              << (slot->device->memory().limit_bytes >> 20) << " MiB\n";
  }
  for (const std::string& address : server.addresses()) {
    if (!IsLocalAddress(address)) {
      std::cerr << "tensord: WARNING: " << address
                << " is open to the network, unencrypted and unauthenticated\n";
    }
  }
  std::cout << "tensord: listening on " << absl::StrJoin(server.addresses(), ", ") << std::endl;
}

int Main() {
  TuneMalloc();
  // Blocked before any thread is made, so that every thread inherits it and sigwait gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto server = StartServer();
  if (!server.ok()) {
    std::cerr << "tensord: " << server.status().message() << "\n";
    return 1;
  }
  Announce(**server);
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  std::cerr << "tensord: draining\n";
  (*server)->Shutdown(std::chrono::milliseconds(
      static_cast<int64_t>(absl::GetFlag(FLAGS_grace_seconds) * 1000)));
  server->reset();
  std::cerr << "tensord: stopped\n";
  return 0;
}

}  // namespace
}  // namespace tensord::server

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(tensord::server::Usage());
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "server/main.cc");
  };
  config.version_string = [] { return std::string("tensord " TENSORD_VERSION "\n"); };
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::cerr << "tensord: unexpected argument \"" << rest[1] << "\"; see tensord --help\n";
    return 2;
  }
  return tensord::server::Main();
}
