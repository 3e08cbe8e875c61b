#include "tensord/tests/bench/wire.h"

#include <arpa/inet.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/client_unary_call.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

double Microseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void CheckCall(bool ok, const char* what) {
  if (!ok) Check(absl::ErrnoToStatus(errno, what));
}

int ConnectUnix(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CheckCall(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "connect");
  return fd;
}

int ConnectTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CheckCall(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0, "connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

grpc::ByteBuffer SmallMessage() {
  const grpc::Slice slice(std::string(kRawMessageBytes, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

RawConnection::RawConnection(const std::string& address)
    : fd_(absl::StartsWith(address, "unix:") ? ConnectUnix(address.substr(5))
                                             : ConnectTcp(address)) {}

RawConnection::~RawConnection() { close(fd_); }

void RawConnection::Send(const void* data, int64_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(fd_, at, size, MSG_NOSIGNAL);
    CheckCall(n > 0, "send");
    at += n;
    size -= n;
  }
}

void RawConnection::Receive(void* data, int64_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = recv(fd_, at, size, 0);
    CheckCall(n > 0, "recv");
    at += n;
    size -= n;
  }
}

void RawConnection::Ask(char kind, int64_t bytes) {
  char message[kRawMessageBytes] = {};
  const RawHeader header = {kind, bytes};
  std::memcpy(message, &header, sizeof(header));
  Send(message, sizeof(message));
}

void RawConnection::AwaitAnswer() {
  char message[kRawMessageBytes];
  Receive(message, sizeof(message));
}

std::vector<double> RawConnection::PingPong(int n) {
  std::vector<double> microseconds;
  for (int i = 0; i < n; ++i) {
    const auto start = Clock::now();
    Ask('p', 0);
    AwaitAnswer();
    microseconds.push_back(Microseconds(start));
  }
  return microseconds;
}

double RawConnection::Upload(absl::Span<const uint8_t> data) {
  const double seconds = SecondsOf([&] {
    Ask('u', static_cast<int64_t>(data.size()));
    Send(data.data(), static_cast<int64_t>(data.size()));
    AwaitAnswer();
  });
  return static_cast<double>(data.size()) / kGiB / seconds;
}

double RawConnection::Download(absl::Span<uint8_t> data) {
  const double seconds = SecondsOf([&] {
    Ask('d', static_cast<int64_t>(data.size()));
    Receive(data.data(), static_cast<int64_t>(data.size()));
  });
  return static_cast<double>(data.size()) / kGiB / seconds;
}

namespace {

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const std::string& ca_file) {
  if (ca_file.empty()) return grpc::InsecureChannelCredentials();
  std::ifstream file(ca_file);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::string(std::istreambuf_iterator<char>(file), {});
  return grpc::SslCredentials(options);
}

}  // namespace

struct GrpcEcho::State {
  State(const std::string& address, const std::string& ca_file)
      : channel(grpc::CreateChannel(address, MakeCredentials(ca_file))),
        unary("/bench.Echo/Unary", grpc::internal::RpcMethod::NORMAL_RPC, channel),
        stub(channel) {}

  void Await() {
    void* tag = nullptr;
    bool ok = false;
    CheckCall(queue.Next(&tag, &ok) && ok, "the echo stream");
  }

  std::shared_ptr<grpc::Channel> channel;
  grpc::internal::RpcMethod unary;
  grpc::GenericStub stub;
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
};

GrpcEcho::GrpcEcho(const std::string& address, const std::string& ca_file)
    : state_(std::make_unique<State>(address, ca_file)) {}

GrpcEcho::~GrpcEcho() {
  State& s = *state_;
  if (s.stream != nullptr) {
    s.context.TryCancel();
    grpc::Status status;
    s.stream->Finish(&status, &s);
  }
  s.queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (s.queue.Next(&tag, &ok)) {
  }
}

std::vector<double> GrpcEcho::Unary(int n) {
  State& s = *state_;
  const grpc::ByteBuffer message = SmallMessage();
  std::vector<double> microseconds;
  for (int i = 0; i < n; ++i) {
    const auto start = Clock::now();
    grpc::ClientContext context;
    grpc::ByteBuffer answer;
    // Generated stubs call the same function.
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall(s.channel.get(), s.unary, &context, message, &answer);
    CheckCall(status.ok(), "the echo call");
    microseconds.push_back(Microseconds(start));
  }
  return microseconds;
}

std::vector<double> GrpcEcho::Stream(int n) {
  State& s = *state_;
  if (s.stream == nullptr) {
    s.stream = s.stub.PrepareCall(&s.context, "/bench.Echo/Stream", &s.queue);
    s.stream->StartCall(&s);
    s.Await();
  }
  std::vector<double> microseconds;
  for (int i = 0; i < n; ++i) {
    const auto start = Clock::now();
    grpc::ByteBuffer answer;
    s.stream->Write(SmallMessage(), &s);
    s.stream->Read(&answer, &s);
    s.Await();
    s.Await();
    microseconds.push_back(Microseconds(start));
  }
  return microseconds;
}

double GrpcEcho::Upload(absl::Span<const uint8_t> data) {
  State& s = *state_;
  const double seconds = SecondsOf([&] {
    grpc::ClientContext context;
    const auto call = s.stub.PrepareCall(&context, "/bench.Echo/Upload", &s.queue);
    call->StartCall(&s);
    s.Await();
    for (size_t at = 0; at < data.size(); at += kMiB) {
      const absl::Span<const uint8_t> part = data.subspan(at, kMiB);
      const grpc::Slice slice(part.data(), part.size(), grpc::Slice::STATIC_SLICE);
      call->Write(grpc::ByteBuffer(&slice, 1), &s);
      s.Await();
    }
    call->WritesDone(&s);
    s.Await();
    grpc::Status status;
    call->Finish(&status, &s);
    s.Await();
    CheckCall(status.ok(), "the upload");
  });
  return static_cast<double>(data.size()) / kGiB / seconds;
}

}  // namespace tensord::bench
