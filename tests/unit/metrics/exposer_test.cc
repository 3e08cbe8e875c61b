#include "tensord/server/metrics/exposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "tensord/tests/expect_error.h"
#include "tensord/tests/http_get.h"

namespace tensord::server::metrics {
namespace {

using Code = absl::StatusCode;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::unique_ptr<Exposer> ServeSamples(std::function<void(Snapshot*)> collect) {
  auto exposer = Exposer::Start({.listen = "127.0.0.1:0"}, std::move(collect));
  EXPECT_TRUE(exposer.ok()) << exposer.status();
  return *std::move(exposer);
}

std::string Scrape(const Exposer& exposer) {
  return HttpRequest(exposer.address(), "GET /metrics").body;
}

TEST(ExposerTest, ServesSamplesAsText) {
  double sessions = 2;
  const auto exposer = ServeSamples([&](Snapshot* snapshot) {
    snapshot->Add(kSessions, {}, sessions);
    snapshot->Add(kPrincipalMemory, {"alice", "cpu:0"}, 17179869184.0);
    snapshot->Add(kPrincipalMemory, {"bob", "cpu:0"}, 0.0);
  });
  const HttpResponse response = HttpRequest(exposer->address(), "GET /metrics");
  EXPECT_THAT(response.head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(response.body, HasSubstr("# HELP tensord_sessions Open sessions.\n"
                                       "# TYPE tensord_sessions gauge\n"
                                       "tensord_sessions 2\n"));
  EXPECT_THAT(response.body,
              HasSubstr("\ntensord_principal_memory_bytes{principal=\"alice\",device=\"cpu:0\"} "
                        "17179869184\n"
                        "tensord_principal_memory_bytes{principal=\"bob\",device=\"cpu:0\"} 0\n"));
  sessions = 3;
  EXPECT_THAT(Scrape(*exposer), HasSubstr("\ntensord_sessions 3\n"));
}

TEST(ExposerTest, HistogramBucketsAreCumulative) {
  Histogram histogram;
  histogram.Add(std::chrono::microseconds(100));  // at the bound of the first bucket
  histogram.Add(std::chrono::microseconds(101));
  histogram.Add(std::chrono::seconds(1000));
  const auto exposer = ServeSamples(
      [&](Snapshot* snapshot) { snapshot->Add(kCallDuration, {"a/B"}, histogram.Read()); });
  const std::string text = Scrape(*exposer);
  EXPECT_THAT(text, HasSubstr("# TYPE tensord_call_duration_seconds histogram\n"));
  const std::string bucket = "\ntensord_call_duration_seconds_bucket{method=\"a/B\",le=";
  EXPECT_THAT(text, HasSubstr(bucket + "\"0.0001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"0.0003\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"100\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("\ntensord_call_duration_seconds_count{method=\"a/B\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("\ntensord_call_duration_seconds_sum{method=\"a/B\"} 1000.0002"));
}

TEST(ExposerTest, EscapesLabels) {
  const auto exposer = ServeSamples(
      [](Snapshot* snapshot) { snapshot->Add(kPrincipalSessions, {"cn:\"a\\b\"\nx 1"}, 1.0); });
  EXPECT_THAT(Scrape(*exposer),
              HasSubstr("\ntensord_principal_sessions{principal=\"cn:\\\"a\\\\b\\\"\\nx 1\"} 1\n"));
}

TEST(ExposerTest, RefusesAddressesThatOtherMachinesCanReach) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:9464"}) {
    ExpectError(Exposer::Start({.listen = address}, [](Snapshot*) {}), Code::kFailedPrecondition,
                {address, "--metrics-allow-remote"});
  }
  const auto allowed =
      Exposer::Start({.listen = "0.0.0.0:0", .allow_remote = true},
                     [](Snapshot* snapshot) { snapshot->Add(kSessions, {}, 1.0); });
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_TRUE((*allowed)->remote());
  EXPECT_THAT(Scrape(**allowed), HasSubstr("tensord_sessions 1"));
}

TEST(ExposerTest, AcceptsHostNamesAndIpv6) {
  for (const char* address : {"localhost:0", "[::1]:0"}) {
    const auto exposer = Exposer::Start({.listen = address}, [](Snapshot*) {});
    if (absl::IsUnavailable(exposer.status()) && address[0] == '[') {
      GTEST_SKIP() << "this machine has no IPv6: " << exposer.status();
    }
    ASSERT_TRUE(exposer.ok()) << exposer.status();
    EXPECT_FALSE((*exposer)->remote());
    EXPECT_THAT((*exposer)->address(), Not(testing::EndsWith(":0")));
  }
}

TEST(ExposerTest, RefusesAddressesThatCantBeUsed) {
  const auto start = [](const std::string& address) {
    return Exposer::Start({.listen = address}, [](Snapshot*) {}).status();
  };
  for (const char* malformed :
       {"", "9464", ":9464", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:9464s", "127.0.0.1:-1"}) {
    ExpectError(start(malformed), Code::kInvalidArgument, {"HOST:PORT"});
  }
  ExpectError(start("no-such-host.invalid:0"), Code::kUnavailable, {"no-such-host.invalid:0"});
  const auto first = ServeSamples([](Snapshot*) {});
  ExpectError(start(first->address()), Code::kUnavailable, {first->address(), "in use"});
}

}  // namespace
}  // namespace tensord::server::metrics
