#include "tensord/tests/proxy/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace tensord::proxy {
namespace {

// The number of steps of one connection before the other connections are served.
constexpr int kStepsPerPump = 16;

}  // namespace

void TrafficCounter::FromClient(int64_t bytes, bool message) {
  bytes_to_server_ += bytes;
  if (!message) return;
  ++client_bursts_;
  client_has_spoken_ = true;
}

void TrafficCounter::ToClient(int64_t bytes, bool message) {
  bytes_to_client_ += bytes;
  if (message && client_has_spoken_) {
    ++round_trips_;
    client_has_spoken_ = false;
  }
}

void TrafficCounter::Report(ProxyStats* stats) const {
  stats->bytes_to_server = bytes_to_server_;
  stats->bytes_to_client = bytes_to_client_;
  stats->round_trips = round_trips_;
  stats->client_bursts = client_bursts_;
}

Connection::Connection(int client_fd, int server_fd, const DirectionSettings* to_server,
                       const DirectionSettings* to_client, int64_t max_buffered_bytes,
                       TrafficCounter* counter)
    : client_fd_(client_fd),
      server_fd_(server_fd),
      counter_(counter),
      to_server_(client_fd, server_fd, to_server, max_buffered_bytes),
      to_client_(server_fd, client_fd, to_client, max_buffered_bytes) {}

Connection::~Connection() {
  close(client_fd_);
  close(server_fd_);
}

void Connection::Notice(int fd, bool readable, bool writable) {
  Pipe& from_here = fd == client_fd_ ? to_server_ : to_client_;
  Pipe& to_here = fd == client_fd_ ? to_client_ : to_server_;
  if (readable) from_here.SetReadable();
  if (writable) to_here.SetWritable();
}

Connection::Outcome Connection::PumpOnce(Clock::time_point now) {
  absl::string_view bytes;
  const auto size = [&] { return static_cast<int64_t>(bytes.size()); };
  const Pipe::Step from_client = to_server_.Read(now, &bytes);
  if (!bytes.empty()) {
    Watch(Direction::kToServer, bytes);
    counter_->FromClient(size(), from_client_.Scan(bytes));
    if (from_client_.is_http2() || from_client_.is_raw()) {
      from_server_.SetIsHttp2(from_client_.is_http2());
    }
  }
  const Pipe::Step to_server = to_server_.Write(now, &bytes);
  const Pipe::Step from_server = to_client_.Read(now, &bytes);
  if (!bytes.empty()) Watch(Direction::kToClient, bytes);
  const Pipe::Step to_client = to_client_.Write(now, &bytes);
  if (!bytes.empty()) counter_->ToClient(size(), from_server_.Scan(bytes));

  const auto steps = {from_client, to_server, from_server, to_client};
  const auto any = [&](Pipe::Step step) {
    return std::find(steps.begin(), steps.end(), step) != steps.end();
  };
  if (any(Pipe::Step::kBroken)) return Outcome::kBroken;
  return any(Pipe::Step::kDone) ? Outcome::kProgress : Outcome::kIdle;
}

void Connection::Watch(Direction direction, absl::string_view bytes) {
  const std::optional<size_t> kept = watch_.Pass(direction, bytes);
  if (!kept) return;
  fault_injected_ = true;
  Pipe& here = direction == Direction::kToServer ? to_server_ : to_client_;
  Pipe& other = direction == Direction::kToServer ? to_client_ : to_server_;
  here.DiscardRest(bytes.size() - *kept, fault_resets_);
  other.DiscardRest(0, /*reset=*/false);
}

void Connection::SetCallFault(const std::optional<CallFault>& call_fault) {
  fault_resets_ = call_fault && call_fault->cut;
  fault_injected_ = false;
  watch_.LookFor(call_fault ? std::optional(call_fault->position) : std::nullopt);
}

void Connection::DiscardRest() {
  to_server_.DiscardRest(0, /*reset=*/false);
  to_client_.DiscardRest(0, /*reset=*/false);
}

bool Connection::Pump(Clock::time_point now) {
  has_more_ = false;
  for (int i = 0; i < kStepsPerPump; ++i) {
    switch (PumpOnce(now)) {
      case Outcome::kIdle:
        return !(to_server_.finished() && to_client_.finished());
      case Outcome::kBroken:
        Abort();
        return false;
      case Outcome::kProgress:
        break;
    }
  }
  has_more_ = true;
  return true;
}

std::optional<Clock::time_point> Connection::NextDue() const {
  const auto a = to_server_.NextDue();
  const auto b = to_client_.NextDue();
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

int64_t Connection::pending_bytes(Direction direction) const {
  return (direction == Direction::kToServer ? to_server_ : to_client_).buffered_bytes();
}

void Connection::Abort() {
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(client_fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  setsockopt(server_fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

}  // namespace tensord::proxy
