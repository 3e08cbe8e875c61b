#include "tensord/server/metrics/exposer.h"

#include <microhttpd.h>
#include <netdb.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server::metrics {
namespace {

// The content type of Prometheus's text format.
constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

prometheus::MetricType ToPrometheus(Type type) {
  switch (type) {
    case Type::kCounter:
      return prometheus::MetricType::Counter;
    case Type::kGauge:
      return prometheus::MetricType::Gauge;
    case Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram ToPrometheus(const Histogram::Snapshot& histogram) {
  prometheus::ClientMetric::Histogram result;
  result.sample_sum = histogram.sum_seconds;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    result.sample_count += static_cast<uint64_t>(histogram.counts[i]);
    const bool bounded = i < Histogram::kBounds.size();
    result.bucket.push_back(
        {.cumulative_count = result.sample_count,
         .upper_bound = bounded ? Histogram::kBounds[i] : std::numeric_limits<double>::infinity()});
  }
  return result;
}

prometheus::ClientMetric ToPrometheus(const Family& family, const Snapshot::Sample& sample) {
  prometheus::ClientMetric metric;
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    // prometheus-cpp escapes the value.
    metric.label.push_back({std::string(family.labels[i]), sample.labels[i]});
  }
  if (const auto* histogram = std::get_if<Histogram::Snapshot>(&sample.value)) {
    metric.histogram = ToPrometheus(*histogram);
  } else {
    metric.counter.value = metric.gauge.value = std::get<double>(sample.value);
  }
  return metric;
}

std::string ToText(const Snapshot& snapshot) {
  std::vector<prometheus::MetricFamily> families;
  for (const Family* family : kFamilies) {
    prometheus::MetricFamily& out = families.emplace_back();
    out.name = std::string(family->name);
    out.help = std::string(family->help);
    out.type = ToPrometheus(family->type);
    for (const Snapshot::Sample& sample : snapshot.Of(*family)) {
      out.metric.push_back(ToPrometheus(*family, sample));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

absl::Status CannotServe(const std::string& listen, absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat("can't serve metrics at ", listen, ": ", reason));
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Returns the addresses of "HOST:PORT", at least one.
absl::StatusOr<Addresses> Resolve(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", listen, "\" is not an address for metrics; write HOST:PORT or [IPV6]:PORT"));
  }
  absl::string_view host(listen.data(), colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(std::string(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return CannotServe(listen, gai_strerror(error));
  return Addresses(found);
}

// Returns the host in numbers: "127.0.0.1", "[::1]".
std::string NumericHost(const addrinfo& address) {
  char host[NI_MAXHOST] = {};
  getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return address.ai_family == AF_INET6 ? absl::StrCat("[", host, "]") : host;
}

// Returns a listening socket. libmicrohttpd could make it, but doesn't report why it failed.
absl::StatusOr<int> Listen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const absl::Status failed = absl::UnavailableError(std::strerror(errno));
  if (fd >= 0) close(fd);
  return failed;
}

// Returns a response that ends its connection. The number of connections is limited, so a client
// that kept its connection would keep out another client.
std::shared_ptr<MHD_Response> MakeResponse(absl::string_view text, const char* content_type) {
  std::shared_ptr<MHD_Response> response(
      MHD_create_response_from_buffer(text.size(), const_cast<char*>(text.data()),
                                      MHD_RESPMEM_MUST_COPY),
      MHD_destroy_response);
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONNECTION, "close");
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Start(const ExposerOptions& options,
                                                        std::function<void(Snapshot*)> collect) {
  TENSORD_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(options.listen));
  const std::string host = NumericHost(*addresses);
  const bool remote = !IsLocalAddress(absl::StrCat(host, ":0"));
  if (remote && !options.allow_remote) {
    return absl::FailedPreconditionError(absl::StrCat(
        "other machines can reach ", options.listen,
        ", but metrics have neither encryption nor authentication. They show the names of callers "
        "and how much they use. Listen on 127.0.0.1, or give --metrics-allow-remote"));
  }
  const absl::StatusOr<int> listener = Listen(*addresses);
  if (!listener.ok()) return CannotServe(options.listen, listener.status().message());
  std::unique_ptr<Exposer> exposer(new Exposer(options, std::move(collect), remote));
  const auto answer = [](void* self, MHD_Connection* connection, const char* path,
                         const char* method, const char*, const char*, size_t*, void** state) {
    return static_cast<Exposer*>(self)->Answer(connection, method, path, state) ? MHD_YES : MHD_NO;
  };
  const MHD_NotifyConnectionCallback notify = [](void* self, MHD_Connection* connection, void**,
                                                 MHD_ConnectionNotificationCode code) {
    const int fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      static_cast<Exposer*>(self)->AddConnection(fd);
    } else {
      static_cast<Exposer*>(self)->RemoveConnection(fd);
    }
  };
  // libmicrohttpd takes ownership of the listener. Its thread has the system's default stack size.
  // Without MHD_USE_ERROR_LOG it prints nothing.
  const MHD_OptionItem settings[] = {
      {MHD_OPTION_LISTEN_SOCKET, *listener, nullptr},
      {MHD_OPTION_CONNECTION_LIMIT, kMaxConnections, nullptr},
      {MHD_OPTION_NOTIFY_CONNECTION, reinterpret_cast<intptr_t>(notify), exposer.get()},
      {MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMaxConnectionBytes, nullptr},
      {MHD_OPTION_END, 0, nullptr},
  };
  exposer->daemon_ =
      MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, nullptr,
                       nullptr, answer, exposer.get(), MHD_OPTION_ARRAY, settings, MHD_OPTION_END);
  if (exposer->daemon_ == nullptr)
    return CannotServe(options.listen, "the HTTP server can't be started");
  const uint16_t port = MHD_get_daemon_info(exposer->daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  exposer->address_ = absl::StrCat(host, ":", port);
  return exposer;
}

Exposer::Exposer(const ExposerOptions& options, std::function<void(Snapshot*)> collect, bool remote)
    : max_connection_time_(options.max_connection_time),
      collect_(std::move(collect)),
      remote_(remote),
      thread_([this] { Run(); }) {}

Exposer::~Exposer() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.join();
  MHD_stop_daemon(daemon_);
}

bool Exposer::Answer(MHD_Connection* connection, absl::string_view method, absl::string_view path,
                     void** state) {
  const auto queue = [&](unsigned status, const std::shared_ptr<MHD_Response>& response) {
    return MHD_queue_response(connection, status, response.get()) == MHD_YES;
  };
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    const auto response = MakeResponse("Use GET or HEAD.\n", "text/plain");
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return queue(MHD_HTTP_METHOD_NOT_ALLOWED, response);
  }
  if (path != "/metrics") {
    return queue(MHD_HTTP_NOT_FOUND, MakeResponse("The metrics are at /metrics.\n", "text/plain"));
  }
  MutexLock lock(&mu_);
  if (stopping_) return false;
  if (*state != nullptr) return queue(MHD_HTTP_OK, document_);
  *state = this;
  MHD_suspend_connection(connection);
  suspended_.push_back(connection);
  wake_.Signal();
  return true;
}

void Exposer::AddConnection(int fd) {
  MutexLock lock(&mu_);
  connections_.push_back({fd, Clock::now() + max_connection_time_});
  if (connections_.size() == 1) wake_.Signal();
}

// libmicrohttpd closes the descriptor after this call.
void Exposer::RemoveConnection(int fd) {
  MutexLock lock(&mu_);
  std::erase_if(connections_, [fd](const Connection& open) { return open.fd == fd; });
}

void Exposer::EndOldConnections(Clock::time_point now) {
  while (!connections_.empty() && connections_.front().end <= now) {
    shutdown(connections_.front().fd, SHUT_RDWR);  // libmicrohttpd then closes the connection
    connections_.pop_front();
  }
}

void Exposer::MakeDocument() {
  Snapshot snapshot;
  collect_(&snapshot);
  document_ = MakeResponse(ToText(snapshot), kContentType);
  ResumeRequests();
  next_document_ = Clock::now() + kMinInterval;
}

void Exposer::Run() {
  MutexLock lock(&mu_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    EndOldConnections(now);
    Clock::time_point wake_at =
        connections_.empty() ? now + max_connection_time_ : connections_.front().end;
    if (!suspended_.empty()) {
      if (now >= next_document_) {
        MakeDocument();
        continue;
      }
      wake_at = std::min(wake_at, next_document_);
    }
    wake_.WaitFor(&mu_, wake_at - now);
  }
  // libmicrohttpd can't stop while requests are suspended.
  ResumeRequests();
}

void Exposer::ResumeRequests() {
  for (MHD_Connection* connection : suspended_) MHD_resume_connection(connection);
  suspended_.clear();
}

}  // namespace tensord::server::metrics
