#include "tensord/server/metrics/exposer.h"

#include <netdb.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include <cstdint>
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

// Of the text format.
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

// Returns "HOST:PORT" in numbers. Of a host name's addresses, takes the first.
absl::StatusOr<std::string> Resolve(const std::string& listen) {
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
  int error = getaddrinfo(std::string(host).c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, FreeAddresses> list(error == 0 ? found : nullptr);
  char number[NI_MAXHOST] = {};
  if (error == 0) {
    error = getnameinfo(found->ai_addr, found->ai_addrlen, number, sizeof(number), nullptr, 0,
                        NI_NUMERICHOST);
  }
  if (error != 0) return CannotServe(listen, gai_strerror(error));
  const bool v6 = found->ai_family == AF_INET6;
  return absl::StrCat(v6 ? "[" : "", number, v6 ? "]" : "", ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Start(const ExposerOptions& options,
                                                        std::function<void(Snapshot*)> collect) {
  TENSORD_ASSIGN_OR_RETURN(const std::string address, Resolve(options.listen));
  const bool remote = !IsLocalAddress(address);
  if (remote && !options.allow_remote) {
    return absl::FailedPreconditionError(absl::StrCat(
        "other machines can reach ", options.listen,
        ", but metrics have neither encryption nor authentication. They show the names of callers "
        "and how much they use. Listen on 127.0.0.1, or give --metrics-allow-remote"));
  }
  auto server = HttpServer::Start(
      address,
      {.path = "/metrics", .content_type = kContentType, .make = [collect = std::move(collect)] {
         Snapshot snapshot;
         collect(&snapshot);
         return ToText(snapshot);
       }});
  if (!server.ok()) return CannotServe(options.listen, server.status().message());
  return std::unique_ptr<Exposer>(new Exposer(*std::move(server), remote));
}

}  // namespace tensord::server::metrics
