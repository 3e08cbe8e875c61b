#include "tensord/server/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/http_get.h"

namespace tensord::server::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kText[] = "the document";

std::unique_ptr<HttpServer> Serve(std::function<std::string()> make = [] { return kText; }) {
  auto server = HttpServer::Start(
      "127.0.0.1:0", {.path = "/metrics", .content_type = "text/plain", .make = std::move(make)});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServerTest, ServesOneDocument) {
  const auto server = Serve();
  for (const char* request : {"GET /metrics", "GET /metrics?name=x"}) {
    const HttpResponse response = HttpRequest(server->address(), request);
    EXPECT_THAT(response.head, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(response.head, HasSubstr("\r\nContent-Type: text/plain\r\n"));
    EXPECT_THAT(response.head, HasSubstr("\r\nContent-Length: 12\r\n"));
    EXPECT_EQ(response.body, kText);
  }
}

TEST(HttpServerTest, ServesNothingElse) {
  const auto server = Serve();
  for (const auto& [request, status] : std::vector<std::pair<std::string, std::string>>{
           {"GET /", "404"},
           {"GET /metrics/", "404"},
           {"GET /../etc/passwd", "404"},
           {"POST /metrics", "405"},
           {"OPTIONS *", "405"},
           {"GET", "400"},
           {"", "400"},
           {std::string("GET \0 /metrics", 14), "400"}}) {
    const HttpResponse response = HttpRequest(server->address(), request);
    EXPECT_THAT(response.head, StartsWith(absl::StrCat("HTTP/1.1 ", status))) << request;
    EXPECT_THAT(response.body, Not(HasSubstr(kText))) << request;
  }
}

TEST(HttpServerTest, RefusesLongRequests) {
  const auto server = Serve();
  for (const std::string& request : {"GET /metrics?" + std::string(100'000, 'x'),
                                     std::string(100'000, '\n'), std::string(100'000, '\xff')}) {
    EXPECT_THAT(HttpRequest(server->address(), request).head, StartsWith("HTTP/1.1 431"));
  }
}

TEST(HttpServerTest, SendsLargeDocumentsWhole) {
  const std::string large(8 << 20, 'x');
  const auto server = Serve([&] { return large; });
  EXPECT_EQ(HttpRequest(server->address(), "GET /metrics").body, large);
}

// The first client sends no request, and the second doesn't read the response.
TEST(HttpServerTest, SlowClientsDelayNoOthers) {
  const auto server = Serve([] { return std::string(8 << 20, 'x'); });
  PlainConnection silent(server->address()), unread(server->address());
  silent.Send("GET /metrics HTTP/1.1\r\nX-Slow: ");
  unread.Send("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_EQ(HttpRequest(server->address(), "GET /metrics").body.size(), 8u << 20);
}

TEST(HttpServerTest, ClosesTheOldestOfTooManyConnections) {
  const auto server = Serve();
  std::vector<std::unique_ptr<PlainConnection>> silent;
  for (size_t i = 0; i < HttpServer::kMaxConnections; ++i) {
    silent.push_back(std::make_unique<PlainConnection>(server->address()));
    ASSERT_TRUE(silent.back()->connected());
  }
  EXPECT_EQ(HttpRequest(server->address(), "GET /metrics").body, kText);
  EXPECT_EQ(silent.front()->ReadAll(), "");
  // The others are still served.
  silent.back()->Send("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(silent.back()->ReadAll(), HasSubstr(kText));
}

TEST(HttpServerTest, FloodGetsOneDocumentPerInterval) {
  std::atomic<int> made = 0;
  const auto server = Serve([&] { return ++made, kText; });
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        EXPECT_EQ(HttpRequest(server->address(), "GET /metrics").body, kText);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_LE(made, took / HttpServer::kMinInterval + 1);
}

TEST(HttpServerTest, EndsWithOpenConnections) {
  auto server = Serve([] { return std::string(8 << 20, 'x'); });
  PlainConnection silent(server->address()), unread(server->address());
  unread.Send("GET /metrics HTTP/1.1\r\n\r\n");
  server.reset();
  EXPECT_EQ(silent.ReadAll(), "");
}

}  // namespace
}  // namespace tensord::server::metrics
