#include "tensord/client/internal/connection.h"

#include <sched.h>

#include <algorithm>
#include <climits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/create_channel.h"

namespace tensord::internal {
namespace {

constexpr int kFirstReconnectPauseMs = 50;
constexpr int kMaxReconnectPauseMs = 1000;
constexpr int kConnectAttemptMs = 5000;
constexpr absl::Duration kMinKeepaliveInterval = absl::Seconds(1);
// The further connections of large uploads close after this idle time.
constexpr absl::Duration kUploadIdleTimeout = absl::Seconds(30);

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, INT_MAX));
}

// The largest message of a server: the largest value of --max-message-bytes (server/FLAGS.md).
constexpr int kMaxResponseBytes = 1 << 30;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ConnectOptions& options,
                                           const Credentials& credentials,
                                           absl::Duration idle_timeout) {
  grpc::ChannelArguments args;
  if (idle_timeout < absl::InfiniteDuration()) {
    args.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, Milliseconds(idle_timeout));
  }
  // Otherwise channels to one address share one connection.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxResponseBytes);
  // No server compresses. A small compressed message may become a huge one.
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  args.SetMaxSendMessageSize(-1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
              Milliseconds(std::max(options.keepalive_interval, kMinKeepaliveInterval)));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The session retries calls itself: gRPC needn't keep their messages.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Reconnects soon after the network works again.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectPauseMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectAttemptMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectPauseMs);
  credentials.AddTo(&args);
  return CreateChannel(address, credentials.channel(), args);
}

int MaxUploadConnections(const ConnectOptions& options, bool uses_tls) {
  constexpr int kMaxByDefault = 4;
  constexpr int kMaxConnections = 8;
  if (options.max_upload_connections > 0) {
    return std::min(options.max_upload_connections, kMaxConnections);
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (!uses_tls || sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::clamp(CPU_COUNT(&cores) / 2, 1, kMaxByDefault);
}

}  // namespace

absl::Status CheckAddress(absl::string_view address) {
  constexpr absl::string_view kUnix = "unix:";
  if (absl::StartsWith(address, kUnix) && address.size() > kUnix.size()) return absl::OkStatus();
  const std::string quoted = absl::StrCat("address \"", absl::CHexEscape(address), "\"");
  if (const size_t scheme = address.find("://"); scheme != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        quoted, " begins with a scheme: leave out \"", absl::CHexEscape(address.substr(0, scheme)),
        "://\"", address.substr(0, scheme) == "https" ? "; for TLS, set TENSORD_TLS=1" : ""));
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0 || absl::StrContains(address, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat(quoted, " is neither \"host:port\" nor \"unix:/path\""));
  }
  const absl::string_view digits = address.substr(colon + 1);
  uint32_t port = 0;
  if (absl::SimpleAtoi(digits, &port) && port > 0 && port < 65536) return absl::OkStatus();
  const bool is_number =
      !digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit);
  return absl::InvalidArgumentError(
      is_number ? absl::StrCat(quoted, ": the port is out of range: it must be from 1 to 65535")
                : absl::StrCat(quoted, " is neither \"host:port\" nor \"unix:/path\""));
}

Session::Connection::Connection(const std::string& address, const ConnectOptions& options,
                                const Credentials& credentials)
    : make_channel(
          [=] { return MakeChannel(address, options, credentials, absl::InfiniteDuration()); }),
      command_channel(make_channel()),
      bulk_channel(make_channel()),
      stub(v1::TensorService::NewStub(make_channel())),
      command_stub(command_channel),
      bulk_stub(bulk_channel),
      queue(std::max<int64_t>(options.max_pending_commands, 1),
            std::max<int64_t>(options.max_pending_bytes, 1), &counters),
      calls(credentials),
      shared_memory(bulk_channel, &calls),
      upload_connections(
          [=] { return MakeChannel(address, options, credentials, kUploadIdleTimeout); },
          MaxUploadConnections(options, credentials.uses_tls()), &calls) {}

void Session::Connection::RenewUnaryChannel() { stub = v1::TensorService::NewStub(make_channel()); }

}  // namespace tensord::internal
