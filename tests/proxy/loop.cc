#include "tensord/tests/proxy/loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::proxy {
namespace {

constexpr int kBacklog = 128;
constexpr uint32_t kBothEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

absl::StatusOr<sockaddr_in> ParseAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > 65535 || inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.sin_addr) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" isn't an IPv4 address with a port"));
  }
  parsed.sin_port = htons(port);
  return parsed;
}

void DisableNagle(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Starts to connect. Returns the socket, or -1.
int ConnectTo(const std::string& target) {
  const absl::StatusOr<sockaddr_in> address = ParseAddress(target);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || !address.ok()) return -1;
  DisableNagle(fd);
  const int status = connect(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address));
  if (status == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DelayProxy::Loop>> DelayProxy::Loop::Start(
    const DelayProxyOptions& options) {
  std::unique_ptr<Loop> loop(new Loop);
  TENSORD_RETURN_IF_ERROR(loop->Open(options));
  loop->thread_ = std::thread([raw = loop.get()] { raw->Main(); });
  return loop;
}

absl::Status DelayProxy::Loop::Open(const DelayProxyOptions& options) {
  TENSORD_RETURN_IF_ERROR(ParseAddress(options.target).status());
  TENSORD_ASSIGN_OR_RETURN(sockaddr_in address, ParseAddress(options.listen));
  target_ = options.target;
  max_buffered_bytes_ = options.max_buffered_bytes;
  for (DirectionSettings& settings : settings_) {
    settings.delay = options.one_way_delay;
    settings.bytes_per_second = options.bytes_per_second;
  }
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (epoll_ < 0 || wake_ < 0 || timer_ < 0 || listener_ < 0) {
    return absl::ErrnoToStatus(errno, "the proxy can't create its descriptors");
  }
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_, generic, size) != 0 || listen(listener_, kBacklog) != 0 ||
      getsockname(listener_, generic, &size) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("the proxy can't listen on ", options.listen));
  }
  std::array<char, INET_ADDRSTRLEN> host = {};
  inet_ntop(AF_INET, &address.sin_addr, host.data(), host.size());
  address_ = absl::StrCat(host.data(), ":", ntohs(address.sin_port));
  Watch(listener_, EPOLLIN);
  Watch(wake_, EPOLLIN);
  Watch(timer_, EPOLLIN);
  return absl::OkStatus();
}

DelayProxy::Loop::~Loop() {
  if (thread_.joinable()) {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    eventfd_write(wake_, 1);
    thread_.join();
  }
  connections_.clear();
  for (const int fd : {listener_, wake_, timer_, epoll_}) {
    if (fd >= 0) close(fd);
  }
}

void DelayProxy::Loop::Run(std::function<void(Loop&)> task) {
  MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  const uint64_t mine = ++tasks_given_;
  eventfd_write(wake_, 1);
  while (tasks_done_ < mine) changed_.Wait(&mu_);
}

ProxyStats DelayProxy::Loop::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

bool DelayProxy::Loop::Await(const std::function<bool(const ProxyStats&)>& condition,
                             std::chrono::milliseconds timeout) const {
  const auto deadline = Clock::now() + timeout;
  MutexLock lock(&mu_);
  while (!condition(stats_)) {
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

void DelayProxy::Loop::Watch(int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void DelayProxy::Loop::SetAccepting(bool accepting) {
  epoll_event event = {};
  event.events = accepting ? uint32_t{EPOLLIN} : 0;
  event.data.fd = listener_;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
}

void DelayProxy::Loop::SetCallFault(const std::optional<CallFault>& call_fault) {
  call_fault_ = call_fault;
  for (const auto& connection : connections_) connection->SetCallFault(call_fault);
}

void DelayProxy::Loop::FinishCallFault() {
  ++faults_injected_;
  const CallFault call_fault = *std::exchange(call_fault_, std::nullopt);
  const auto over = [&](const std::unique_ptr<Connection>& connection) {
    const bool had_fault = connection->fault_injected();
    connection->SetCallFault(std::nullopt);
    if (had_fault || !call_fault.all) return false;
    connection->DiscardRest();
    if (!call_fault.cut) return false;
    connection->Abort();
    by_fd_.erase(connection->client_fd());
    by_fd_.erase(connection->server_fd());
    return true;
  };
  std::erase_if(connections_, over);
}

void DelayProxy::Loop::CutAll() {
  for (const auto& connection : connections_) connection->Abort();
  by_fd_.clear();
  connections_.clear();
}

void DelayProxy::Loop::Main() {
  std::array<epoll_event, 64> events;
  while (true) {
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
    }
    const bool more = std::any_of(connections_.begin(), connections_.end(),
                                  [](const auto& connection) { return connection->has_more(); });
    const int n = epoll_wait(epoll_, events.data(), events.size(), more ? 0 : -1);
    uint64_t ignored = 0;
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener_) {
        Accept();
      } else if (fd == wake_ || fd == timer_) {
        [[maybe_unused]] const ssize_t drained = read(fd, &ignored, sizeof(ignored));
      } else if (const auto it = by_fd_.find(fd); it != by_fd_.end()) {
        const uint32_t what = events[i].events;
        it->second->Notice(fd, (what & ~EPOLLOUT) != 0, (what & ~EPOLLIN) != 0);
      }
    }
    const size_t tasks_done = RunTasks();
    PumpAll();
    SetTimer();
    Publish(tasks_done);
  }
}

size_t DelayProxy::Loop::RunTasks() {
  std::vector<std::function<void(Loop&)>> tasks;
  {
    MutexLock lock(&mu_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task(*this);
  return tasks.size();
}

void DelayProxy::Loop::Accept() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) return;
  if (resets_ > 0) {
    --resets_;
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(client);
    return;
  }
  DisableNagle(client);
  const int server = ConnectTo(target_);
  if (server < 0) {
    close(client);
    return;
  }
  ++accepted_;
  connections_.push_back(std::make_unique<Connection>(client, server, &settings_[0], &settings_[1],
                                                      max_buffered_bytes_, &counter_));
  connections_.back()->SetCallFault(call_fault_);
  by_fd_[client] = connections_.back().get();
  by_fd_[server] = connections_.back().get();
  Watch(client, kBothEdges);
  Watch(server, kBothEdges);
}

void DelayProxy::Loop::PumpAll() {
  const auto now = Clock::now();
  bool injected = false;
  const auto over = [&](const std::unique_ptr<Connection>& connection) {
    const bool lives = connection->Pump(now);
    injected = injected || connection->fault_injected();
    if (lives) return false;
    by_fd_.erase(connection->client_fd());
    by_fd_.erase(connection->server_fd());
    return true;
  };
  std::erase_if(connections_, over);
  if (injected) FinishCallFault();
}

void DelayProxy::Loop::SetTimer() {
  std::optional<Clock::time_point> next;
  for (const auto& connection : connections_) {
    const auto due = connection->NextDue();
    if (due && (!next || *due < *next)) next = due;
  }
  itimerspec when = {};  // zero: never
  if (next) {
    const auto since_epoch =
        std::max(next->time_since_epoch(), Clock::duration(std::chrono::nanoseconds(1)));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
    when.it_value.tv_sec = seconds.count();
    when.it_value.tv_nsec = std::chrono::nanoseconds(since_epoch - seconds).count();
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

void DelayProxy::Loop::Publish(size_t tasks_done) {
  ProxyStats stats;
  stats.accepted = accepted_;
  stats.faults_injected = faults_injected_;
  stats.connections = static_cast<int64_t>(connections_.size());
  counter_.Report(&stats);
  for (const auto& connection : connections_) {
    stats.pending_to_server_bytes += connection->pending_bytes(Direction::kToServer);
    stats.pending_to_client_bytes += connection->pending_bytes(Direction::kToClient);
  }
  MutexLock lock(&mu_);
  stats_ = stats;
  tasks_done_ += tasks_done;
  changed_.SignalAll();
}

}  // namespace tensord::proxy
