// A small HTTP server for one document. Requests within kMinInterval share one version of it.
//
// civetweb, the server of prometheus-cpp, can't be used: distributions build it with 100 KiB of
// stack for each thread, and OpenBLAS's thread-local storage takes most of that.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace tensord::server::metrics {

// One thread serves all connections without blocking. A connection has one request. The number,
// lifetime and request size of connections are limited. If there are too many, closes the oldest.
class HttpServer {
 public:
  // How many connections are open at once.
  static constexpr size_t kMaxConnections = 16;
  // The size of a request line with its headers. A request has no body.
  static constexpr size_t kMaxRequestBytes = 8 << 10;
  // How long a connection may be open.
  static constexpr std::chrono::seconds kMaxConnectionTime{10};
  // The minimum time between two documents. Requests that come earlier wait, and get the same one.
  static constexpr std::chrono::milliseconds kMinInterval{20};

  struct Document {
    std::string path;          // "/metrics"
    std::string content_type;  // "text/plain"
    // Makes the text. Called on the server's thread. Must not block for long.
    std::function<std::string()> make;
  };

  // Binds `address`, "HOST:PORT" or "[IPV6]:PORT" in numbers (port 0: a free one), and starts the
  // thread. If the address can't be bound, returns UNAVAILABLE with the system's reason.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           Document document);
  // Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address as bound, with the port that was chosen.
  const std::string& address() const { return address_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    enum class State {
      kReading,  // the request
      kWaiting,  // for the document
      kSending,  // the response
      kEnding,   // sent; waits until the client closes its end, or else it could lose the response
    };
    int fd = -1;
    Clock::time_point deadline;
    State state = State::kReading;
    std::string request;
    std::string response;
    size_t sent_bytes = 0;
  };

  HttpServer(int listener, int stop_fd, std::string address, Document document);

  void Run();
  // Waits for events, and handles those of the listener. Returns false if the thread must end.
  bool Wait();
  void Accept();
  // Continues a connection as far as possible without blocking. Returns false if it has ended.
  bool Continue(Connection& connection);
  bool Read(Connection& connection);
  bool Send(Connection& connection);
  // Decides on the response to a complete request.
  void Answer(Connection& connection);
  // If kMinInterval has passed, generates the document and assigns it to the waiting connections.
  void MakeDocument();

  const int listener_;
  const int stop_fd_;
  const std::string address_;
  const Document document_;

  // Only the thread uses these.
  std::list<Connection> connections_;  // the oldest first
  Clock::time_point next_document_;    // earliest time of the next document
  Clock::time_point next_accept_;

  std::thread thread_;
};

}  // namespace tensord::server::metrics
