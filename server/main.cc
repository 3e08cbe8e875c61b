// tensord, the daemon: makes the devices, starts the server, handles signals.
#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/buffer_pages.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/device/fault/fault_control.h"
#include "tensord/server/flags.h"
#include "tensord/server/log.h"
#include "tensord/server/memory_plan.h"
#include "tensord/server/metrics/exposer.h"
#include "tensord/server/rpc/auth/descriptor_limit.h"
#include "tensord/server/rpc/server.h"
#include "tensord/server/rpc/worker_pool.h"

namespace tensord::server {
namespace {

// Transfers allocate and free chunks at a high rate. Makes malloc keep freed chunks: to map each
// chunk again costs a third of the bandwidth.
void TuneMalloc() {
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_TOP_PAD, 4 << 20);
  // One thread allocates a chunk and another thread frees it. If there were several arenas, each
  // would keep its own chunks.
  mallopt(M_ARENA_MAX, 1);
}

// Switches off abseil's deadlock detection, which Debian's build of abseil has. gRPC locks about a
// dozen mutexes for each message, and the detection would search for cycles among them each time.
void DisableDeadlockDetection() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

// A file that gets addresses. It appears as a whole: a process that waits for the file never reads
// a part of it. An empty path means no file.
class PortFile {
 public:
  explicit PortFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {}
  // Removes what Publish() hasn't published.
  ~PortFile() {
    if (written_) std::remove(temporary_.c_str());
  }
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

  // Writes the addresses to a temporary file.
  absl::Status Write(const std::vector<std::string>& addresses) {
    if (path_.empty()) return absl::OkStatus();
    std::error_code unused;
    if (std::filesystem::is_directory(path_, unused)) return Failure("it is a directory");
    std::ofstream out(temporary_);
    for (const std::string& address : addresses) out << address << "\n";
    out.close();
    written_ = true;
    return out.good() ? absl::OkStatus() : Failure(std::strerror(errno));
  }
  // Gives the temporary file its name.
  absl::Status Publish() {
    if (path_.empty()) return absl::OkStatus();
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failure(std::strerror(errno));
    written_ = false;
    return absl::OkStatus();
  }

 private:
  absl::Status Failure(const char* why) const {
    return absl::UnavailableError(absl::StrCat("can't write ", path_, ": ", why));
  }

  const std::string path_;
  const std::string temporary_;
  bool written_ = false;
};

// How long the process waits until its log is written.
constexpr std::chrono::milliseconds kLogTime{200};

// The thread that waits for signals.
pthread_t signal_thread;

void ForwardSignal(int number) { pthread_kill(signal_thread, number); }

// Makes this thread receive `signals` by sigwait(). This thread and the threads that are created
// later block them. Threads that libraries created before main() forward them to this thread.
void DirectToThisThread(const sigset_t& signals) {
  signal_thread = pthread_self();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  struct sigaction forward = {};
  forward.sa_handler = ForwardSignal;
  forward.sa_flags = SA_RESTART;
  for (int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (sigismember(&signals, number) == 1) sigaction(number, &forward, nullptr);
  }
}

// Prints what is served. `exposer` may be null.
void Announce(Server& server, const AuthenticationOptions& authentication,
              const metrics::Exposer* exposer) {
  for (const UnavailableKind& unavailable : UnavailableKinds(BuiltInBackends())) {
    LogLine(
        absl::StrCat("no ", unavailable.kind.name(), " device is served: ", unavailable.reason));
  }
  for (const DeviceSlot* slot : server.engine().slots()) {
    const DeviceInfo& info = slot->device->info();
    LogLine(absl::StrCat("device ", info.name.ToString(), " is ", info.model, ", limit ",
                         slot->device->memory().limit_bytes >> 20, " MiB"));
  }
  for (const std::string& address : server.addresses()) {
    if (IsLocalAddress(address)) continue;
    if (!authentication.tls.enabled()) {
      LogLine(absl::StrCat("WARNING: ", address, " is open to the network, unencrypted"));
    }
    if (!authentication.authenticates()) {
      LogLine(absl::StrCat("WARNING: ", address, " is open to the network, unauthenticated"));
    }
  }
  if (exposer != nullptr && exposer->remote()) {
    LogLine(absl::StrCat("WARNING: the metrics at ", exposer->address(),
                         " are open to the network, unencrypted and unauthenticated"));
  }
  FlushLog(kLogTime);
  std::cout << "tensord: listening on " << absl::StrJoin(server.addresses(), ", ") << std::endl;
  if (exposer == nullptr) return;
  std::cout << "tensord: metrics at http://" << exposer->address() << "/metrics" << std::endl;
}

// The part of the process's threads that members of groups may use.
constexpr int64_t kThreadShare = 4;

// Sets the limits of sessions and connections per principal that no flag has set. If callers are
// authenticated, the limit is half of what the server can have, so that one caller can't use up
// all. Otherwise there is no limit.
void SetPrincipalDefaults(Limits* limits, bool authenticates) {
  const auto set = [authenticates](int64_t* limit, int64_t total) {
    if (*limit == kUnsetLimit) *limit = authenticates ? std::max<int64_t>(total / 2, 1) : 0;
  };
  rlimit descriptors = {};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  constexpr rlim_t kMaxDescriptors = 1 << 20;  // used if the system has no limit
  const int64_t most = static_cast<int64_t>(std::min(descriptors.rlim_max, kMaxDescriptors)) /
                       kDescriptorsPerConnection;
  set(&limits->max_sessions_per_principal, limits->max_sessions);
  set(&limits->max_connections_per_principal,
      limits->max_connections != 0 ? std::min(limits->max_connections, most) : most);
}

// The server, and its metrics.
struct Daemon {
  std::unique_ptr<Server> server;
  std::unique_ptr<metrics::Exposer> exposer;  // reads `server`; null: no metrics are served
};

absl::StatusOr<std::unique_ptr<metrics::Exposer>> ServeMetrics(const DaemonFlags& flags,
                                                               Server* server) {
  if (flags.metrics.listen.empty()) return nullptr;
  return metrics::Exposer::Start(
      flags.metrics, [server](metrics::Snapshot* snapshot) { server->CollectMetrics(snapshot); });
}

absl::StatusOr<Daemon> StartDaemon(const DaemonFlags& flags, FaultPlans* faults) {
  ServerOptions options = flags.server;
  std::vector<Backend> backends = BuiltInBackends();
  TENSORD_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(CpuTotalMemory(), &options.limits));
  backends.front().reserved_memory = [plan](int64_t /*total*/) { return plan.reserved(); };
  BufferPages().SetLimit(plan.devices + plan.fragmentation);
  SetPrincipalDefaults(&options.limits, options.authentication.authenticates());
  options.limits.max_group_members =
      std::min(options.limits.max_group_members, CpuMaxThreads() / kThreadShare);
  options.grpc_quota_bytes = std::max(CpuTotalMemory() / 2, 2 * options.limits.max_request_bytes);
  options.unavailable_kinds = UnavailableKinds(backends);
  for (const Backend& backend : backends) {
    options.communicator_makers[backend.kind] = backend.make_communicator;
  }
  TENSORD_ASSIGN_OR_RETURN(const std::vector<DeviceRequest> requests, ParseDevices(flags.devices));
  TENSORD_ASSIGN_OR_RETURN(auto devices,
                           MakeDevices(backends, requests, flags.cpu_threads,
                                       flags.fault_socket.empty() ? nullptr : faults));
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                           Server::Start(options, std::move(devices)));
  TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<metrics::Exposer> exposer,
                           ServeMetrics(flags, server.get()));
  PortFile port_file(flags.port_file);
  TENSORD_RETURN_IF_ERROR(port_file.Write(server->addresses()));
  PortFile metrics_port_file(exposer == nullptr ? "" : flags.metrics_port_file);
  if (exposer != nullptr) {
    TENSORD_RETURN_IF_ERROR(metrics_port_file.Write({exposer->address()}));
  }
  // All that may fail has succeeded. The files appear last: a program that waits for one then finds
  // a complete log.
  Announce(*server, options.authentication, exposer.get());
  TENSORD_RETURN_IF_ERROR(metrics_port_file.Publish());
  TENSORD_RETURN_IF_ERROR(port_file.Publish());
  return Daemon{std::move(server), std::move(exposer)};
}

// The exit status when a supervisor should start the daemon again (EX_TEMPFAIL of sysexits.h).
constexpr int kRestartStatus = 75;
std::atomic<int> status_at_end = 0;

// How long the process may take to end once the grace period is over.
constexpr std::chrono::seconds kExitTime{1};

// Makes `timer` end the process at `deadline` if it still runs, because a kernel on a GPU can't be
// stopped.
void ExitAt(std::chrono::steady_clock::time_point deadline, WorkerPool* timer) {
  timer->Post(nullptr, [deadline] {
    std::this_thread::sleep_until(deadline);
    LogLine("stopped with work still running: the grace period is over");
    FlushLog(kLogTime);
    _exit(status_at_end);
  });
}

// Opens /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise the next file or
// socket would get the number, and the log would be written to it.
void OpenStandardStreams() {
  // The kernel assigns the lowest free number. Sanitizers can't intercept a call this early.
  int64_t fd = 0;
  do {
    fd = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) syscall(SYS_close, fd);
}
// Runs before the initializers of shared libraries, because some of them open descriptors.
__attribute__((section(".preinit_array"),
               used)) void (*const open_standard_streams)() = &OpenStandardStreams;

// Sends SIGTERM to the thread that waits for signals when standard input reaches the end of file,
// or can't be read.
void TerminateAtEndOfInput() {
  std::thread([] {
    char discarded[256];
    ssize_t count = 0;
    do {
      count = read(STDIN_FILENO, discarded, sizeof(discarded));
    } while (count > 0 || (count < 0 && errno == EINTR));
    ForwardSignal(SIGTERM);
  }).detach();
}

int ReportFailure(const absl::Status& status) {
  LogLine(status.message());
  FlushLog(kLogTime);
  return 1;
}

// A thread of OpenMP that waits for another one spins before it sleeps, by default for some
// milliseconds. If the machine has other work, such as the client, this takes the processors from
// the threads that compute: ops then take two to four times as long. The library reads the number
// of spins before main(), so the process replaces itself once. If that fails, it continues with the
// default.
void LimitOpenMpSpinning(char** argv) {
  constexpr char kSpins[] = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv(kSpins, "1000", /*overwrite=*/1) != 0) return;
  execv(program.c_str(), argv);
}

// Returns the function that ends the daemon when restarts of a device have failed, or null if the
// daemon must not end.
std::function<void(bool)> EndWhenNotRestarted(ExitWhenLost when) {
  if (when == ExitWhenLost::kNever) return nullptr;
  return [when](bool all) {
    if (!all && when != ExitWhenLost::kAny) return;
    if (status_at_end.exchange(kRestartStatus) == kRestartStatus) return;
    LogLine("exiting, because a new process may be able to use the device (--exit-when-lost)");
    ForwardSignal(SIGTERM);
  };
}

int Main(DaemonFlags flags) {
  TuneMalloc();
  DisableDeadlockDetection();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);  // without files to reload, it has no effect
  DirectToThisThread(signals);
  signal(SIGPIPE, SIG_IGN);
  StartLogThread();
  // The thread starts now, because the system may refuse to start one later. The pool is never
  // destroyed, because its job may outlast this function.
  WorkerPool* const exit_timer = new WorkerPool(1);
  const absl::Status enough = RaiseDescriptorLimit();
  if (!enough.ok()) return ReportFailure(enough);
  // gRPC returns errors as statuses. Clients could fill the log with the messages of protobuf.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  google::protobuf::SetLogHandler(nullptr);
  // No grpc_shutdown() follows: the last one may wait ten seconds for a poller that nothing wakes.
  grpc_init();

  flags.server.on_not_restarted = EndWhenNotRestarted(flags.exit_when_lost);
  FaultPlans faults;  // outlives the devices
  absl::StatusOr<std::unique_ptr<FaultControl>> fault_control = nullptr;
  if (!flags.fault_socket.empty())
    fault_control = FaultControl::Listen(flags.fault_socket, &faults);
  absl::StatusOr<Daemon> daemon =
      fault_control.ok() ? StartDaemon(flags, &faults) : fault_control.status();
  if (!daemon.ok()) return ReportFailure(daemon.status());
  Server& server = *daemon->server;
  if (flags.until_eof) TerminateAtEndOfInput();
  int signal_number = 0;
  while (sigwait(&signals, &signal_number) == 0 && signal_number == SIGHUP) server.Reload();
  LogLine("draining");
  const std::chrono::milliseconds grace(static_cast<int64_t>(flags.grace_seconds * 1000));
  ExitAt(std::chrono::steady_clock::now() + grace + kExitTime, exit_timer);
  server.Shutdown(grace);
  daemon->exposer.reset();
  daemon->server.reset();
  LogLine("stopped");
  FlushLog(kLogTime);
  return status_at_end;
}

}  // namespace
}  // namespace tensord::server

int main(int argc, char** argv) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A crash prints its stack to the log. Sanitizers print their own reports.
  absl::InitializeSymbolizer(argv[0]);
  absl::InstallFailureSignalHandler(absl::FailureSignalHandlerOptions());
#endif
  tensord::server::DaemonFlags flags;
  int exit_status = 0;
  if (!tensord::server::ParseFlags(argc, argv, &flags, &exit_status)) return exit_status;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  tensord::server::LimitOpenMpSpinning(argv);
#endif
  return tensord::server::Main(flags);
}
