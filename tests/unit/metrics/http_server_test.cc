// How the HTTP server of the metrics treats its clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/metrics/exposer.h"
#include "tensord/tests/http_get.h"

namespace tensord::server::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kRequest[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr char kSample[] = "\ntensord_sessions 2\n";
// More than the buffers of a connection hold.
constexpr size_t kLargeBytes = 16 << 20;

void CollectSmall(Snapshot* snapshot) { snapshot->Add(kSessions, {}, 2.0); }

void CollectLarge(Snapshot* snapshot) {
  snapshot->Add(kPrincipalSessions, {std::string(kLargeBytes, 'x')}, 1.0);
}

std::unique_ptr<Exposer> Serve(std::function<void(Snapshot*)> collect = CollectSmall,
                               ExposerOptions options = {}) {
  options.listen = "127.0.0.1:0";
  auto exposer = Exposer::Start(options, std::move(collect));
  EXPECT_TRUE(exposer.ok()) << exposer.status();
  return *std::move(exposer);
}

// Returns connections that have sent no request.
std::vector<std::unique_ptr<PlainConnection>> Connect(const Exposer& exposer, size_t count) {
  std::vector<std::unique_ptr<PlainConnection>> silent;
  for (size_t i = 0; i < count; ++i) {
    silent.push_back(std::make_unique<PlainConnection>(exposer.address()));
    EXPECT_TRUE(silent.back()->connected());
  }
  return silent;
}

TEST(HttpServerTest, ServesGetAndHead) {
  const auto exposer = Serve();
  const std::string body = HttpRequest(exposer->address(), "GET /metrics").body;
  EXPECT_THAT(body, HasSubstr(kSample));
  for (const auto& [request, expected] : std::vector<std::pair<std::string, std::string>>{
           {"GET /metrics", body}, {"GET /metrics?name=x", body}, {"HEAD /metrics", ""}}) {
    const HttpResponse response = HttpRequest(exposer->address(), request);
    EXPECT_THAT(response.head, StartsWith("HTTP/1.1 200 OK\r\n")) << request;
    EXPECT_THAT(response.head, HasSubstr("\r\nContent-Type: text/plain; version=0.0.4;"));
    EXPECT_THAT(response.head, HasSubstr(absl::StrCat("\r\nContent-Length: ", body.size())));
    EXPECT_EQ(response.body, expected) << request;
  }
}

TEST(HttpServerTest, ExplainsOtherPathsAndMethods) {
  const auto exposer = Serve();
  for (const char* request : {"GET /", "GET /metrics/", "GET /../etc/passwd"}) {
    const HttpResponse response = HttpRequest(exposer->address(), request);
    EXPECT_THAT(response.head, StartsWith("HTTP/1.1 404 ")) << request;
    EXPECT_THAT(response.head, HasSubstr("\r\nContent-Type: text/plain"));
    EXPECT_EQ(response.body, "The metrics are at /metrics.\n");
  }
  for (const char* request : {"POST /metrics", "DELETE /metrics", "OPTIONS *"}) {
    const HttpResponse response = HttpRequest(exposer->address(), request);
    EXPECT_THAT(response.head, StartsWith("HTTP/1.1 405 ")) << request;
    EXPECT_THAT(response.head, HasSubstr("\r\nAllow: GET, HEAD"));
    EXPECT_EQ(response.body, "Use GET or HEAD.\n");
  }
}

TEST(HttpServerTest, RefusesMalformedRequests) {
  const auto exposer = Serve();
  for (const std::string& request :
       {std::string("GET"), std::string("GET \0 /metrics", 14), std::string("metrics"),
        std::string(": /metrics"), std::string(100'000, '\xff'), std::string(100'000, '\n')}) {
    const HttpResponse response = HttpRequest(exposer->address(), request);
    EXPECT_THAT(response.head, Not(HasSubstr(" 200 "))) << request;
    EXPECT_THAT(response.body, Not(HasSubstr(kSample))) << request;
  }
  EXPECT_THAT(HttpRequest(exposer->address(), "GET /metrics").body, HasSubstr(kSample));
}

TEST(HttpServerTest, RefusesLongRequests) {
  const auto exposer = Serve();
  for (const std::string& request :
       {"GET /metrics?" + std::string(100'000, 'x'),
        "GET /metrics HTTP/1.1\r\nX-Long: " + std::string(100'000, 'x')}) {
    EXPECT_THAT(HttpRequest(exposer->address(), request).head, StartsWith("HTTP/1.1 4"));
  }
}

TEST(HttpServerTest, SendsLargeDocumentsWhole) {
  const auto exposer = Serve(CollectLarge);
  const HttpResponse response = HttpRequest(exposer->address(), "GET /metrics");
  EXPECT_GT(response.body.size(), kLargeBytes);
  EXPECT_THAT(response.head, HasSubstr(absl::StrCat("Content-Length: ", response.body.size())));
}

// The first client sends no complete request, and the second doesn't read the response.
TEST(HttpServerTest, SlowClientsDelayNoOthers) {
  const auto exposer = Serve(CollectLarge);
  PlainConnection silent(exposer->address()), unread(exposer->address());
  silent.Send("GET /metrics HTTP/1.1\r\nX-Slow: ");
  unread.Send(kRequest);
  EXPECT_GT(HttpRequest(exposer->address(), "GET /metrics").body.size(), kLargeBytes);
}

TEST(HttpServerTest, SurvivesClientsThatCloseEarly) {
  const auto exposer = Serve(CollectLarge);
  for (int i = 0; i < 10; ++i) PlainConnection(exposer->address()).Send(kRequest);
  EXPECT_GT(HttpRequest(exposer->address(), "GET /metrics").body.size(), kLargeBytes);
}

TEST(HttpServerTest, ConnectionsAboveTheLimitWait) {
  const auto exposer = Serve();
  auto silent = Connect(*exposer, Exposer::kMaxConnections);
  PlainConnection waiting(exposer->address());
  waiting.Send(kRequest);
  silent.pop_back();
  EXPECT_THAT(waiting.ReadAll(), HasSubstr(kSample));
  silent.front()->Send(kRequest);
  EXPECT_THAT(silent.front()->ReadAll(), HasSubstr(kSample));
}

TEST(HttpServerTest, SlowConnectionsMakeRoomForAScrape) {
  const auto exposer = Serve(CollectSmall, {.max_connection_time = std::chrono::milliseconds(300)});
  const auto slow = Connect(*exposer, Exposer::kMaxConnections);
  std::atomic<bool> scraped = false;
  std::thread sender([&] {
    while (!scraped) {
      for (const auto& connection : slow) connection->Send("G");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  PlainConnection waiting(exposer->address());
  waiting.Send(kRequest);
  EXPECT_THAT(waiting.ReadAll(), HasSubstr(kSample));
  scraped = true;
  sender.join();
}

TEST(HttpServerTest, NewConnectionsDoNotCutOffAScrape) {
  const auto exposer = Serve(CollectLarge);
  PlainConnection unread(exposer->address());
  unread.Send(kRequest);
  const auto silent = Connect(*exposer, 2 * Exposer::kMaxConnections);
  EXPECT_GT(unread.ReadAll().size(), kLargeBytes);
}

TEST(HttpServerTest, RequestsThatWaitShareADocument) {
  std::atomic<size_t> collected = 0;
  std::promise<void> began, all_sent;
  const auto exposer = Serve([&](Snapshot* snapshot) {
    CollectSmall(snapshot);
    if (++collected > 1) return;
    began.set_value();
    all_sent.get_future().wait();
  });
  PlainConnection first(exposer->address());
  first.Send(kRequest);
  began.get_future().wait();
  const auto others = Connect(*exposer, Exposer::kMaxConnections - 1);
  for (const auto& connection : others) connection->Send(kRequest);
  all_sent.set_value();
  EXPECT_THAT(first.ReadAll(), HasSubstr(kSample));
  for (const auto& connection : others) EXPECT_THAT(connection->ReadAll(), HasSubstr(kSample));
  EXPECT_GT(collected, 1u);  // the first document is older than the other requests
  EXPECT_LT(collected, Exposer::kMaxConnections);
}

TEST(HttpServerTest, EndsWithOpenConnections) {
  auto exposer = Serve(CollectLarge);
  PlainConnection silent(exposer->address());
  const auto unread = Connect(*exposer, 4);
  for (const auto& connection : unread) connection->Send(kRequest);
  exposer.reset();
  EXPECT_EQ(silent.ReadAll(), "");
}

}  // namespace
}  // namespace tensord::server::metrics
