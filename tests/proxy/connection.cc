#include "tensord/tests/proxy/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace tensord::proxy {
namespace {

// The number of steps of one connection before the other connections are served.
constexpr int kStepsPerPump = 16;

}  // namespace

void Tally::FromClient(int64_t bytes, bool message) {
  bytes_to_server_ += bytes;
  if (!message) return;
  ++client_bursts_;
  client_has_spoken_ = true;
}

void Tally::ToClient(int64_t bytes, bool message) {
  bytes_to_client_ += bytes;
  if (message && client_has_spoken_) {
    ++turns_;
    client_has_spoken_ = false;
  }
}

void Tally::Report(ProxyStats* stats) const {
  stats->bytes_to_server = bytes_to_server_;
  stats->bytes_to_client = bytes_to_client_;
  stats->turns = turns_;
  stats->client_bursts = client_bursts_;
}

Connection::Connection(int client_fd, int server_fd, const Treatment* to_server,
                       const Treatment* to_client, int64_t max_buffered_bytes, Tally* tally)
    : client_fd_(client_fd),
      server_fd_(server_fd),
      tally_(tally),
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
    tally_->FromClient(size(), from_client_.Scan(bytes));
    if (from_client_.is_http2() || from_client_.is_raw()) {
      from_server_.SetIsHttp2(from_client_.is_http2());
    }
  }
  const Pipe::Step to_server = to_server_.Write(now, &bytes);
  const Pipe::Step from_server = to_client_.Read(now, &bytes);
  if (!bytes.empty()) Watch(Direction::kToClient, bytes);
  const Pipe::Step to_client = to_client_.Write(now, &bytes);
  if (!bytes.empty()) tally_->ToClient(size(), from_server_.Scan(bytes));

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
  trap_sprung_ = true;
  Pipe& here = direction == Direction::kToServer ? to_server_ : to_client_;
  Pipe& other = direction == Direction::kToServer ? to_client_ : to_server_;
  here.Sever(bytes.size() - *kept, trap_cuts_);
  other.Sever(0, /*reset=*/false);
}

void Connection::SetTrap(const std::optional<Trap>& trap) {
  trap_cuts_ = trap && trap->cut;
  trap_sprung_ = false;
  watch_.LookFor(trap ? std::optional(trap->spot) : std::nullopt);
}

void Connection::Sever() {
  to_server_.Sever(0, /*reset=*/false);
  to_client_.Sever(0, /*reset=*/false);
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
