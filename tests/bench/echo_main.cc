// The server for wire.h: an echo server on a TCP socket, on a Unix socket, and on bare gRPC without
// and with TLS. It is a separate process, as the daemon is. Exits at the end of its standard input.
#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensord/tests/bench/wire.h"
#include "tensord/tests/integration/test_certificates.h"

namespace tensord::bench {
namespace {

bool SendAll(int fd, const char* data, int64_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= n;
  }
  return true;
}

bool ReceiveAll(int fd, char* data, int64_t size) {
  while (size > 0) {
    const ssize_t n = recv(fd, data, size, 0);
    if (n <= 0) return false;
    data += n;
    size -= n;
  }
  return true;
}

// Serves one connection until it ends. A payload is received into memory of its size, as a tensor
// is.
void Serve(int fd) {
  std::vector<char> payload;
  char message[kRawMessageBytes];
  while (ReceiveAll(fd, message, sizeof(message))) {
    RawHeader header;
    std::memcpy(&header, message, sizeof(header));
    if (static_cast<int64_t>(payload.size()) < header.bytes) payload.resize(header.bytes, 'x');
    const bool alive = header.kind == 'd' ? SendAll(fd, payload.data(), header.bytes)
                                          : ReceiveAll(fd, payload.data(),
                                                       header.kind == 'u' ? header.bytes : 0) &&
                                                SendAll(fd, message, sizeof(message));
    if (!alive) break;
  }
  close(fd);
}

void AcceptLoop(int listener, bool tcp) {
  while (true) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) return;
    const int on = 1;
    if (tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::thread(Serve, fd).detach();
  }
}

void Require(bool ok, const char* what) {
  if (ok) return;
  std::printf("skip no echo server: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::string ListenTcp() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* generic = reinterpret_cast<sockaddr*>(&at);
  Require(bind(fd, generic, size) == 0 && listen(fd, 16) == 0, "listen");
  Require(getsockname(fd, generic, &size) == 0, "getsockname");
  std::thread(AcceptLoop, fd, true).detach();
  return "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
}

std::string ListenUnix(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  Require(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0 && listen(fd, 16) == 0,
          "listen on a Unix socket");
  std::thread(AcceptLoop, fd, false).detach();
  return "unix:" + path;
}

// A call whose messages are sent back. For a unary call the message and the status are sent
// together. The messages of an upload aren't sent back: they are copied into one block of memory,
// as the daemon copies those of a tensor. One thread polls one completion queue, which is gRPC's
// fastest API.
class EchoCall {
 public:
  static void Await(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue) {
    auto* call = new EchoCall(service, queue);
    service->RequestCall(&call->context_, &call->wire_, queue, queue, call);
  }

  void Proceed(bool ok) {
    if (state_ == State::kEnding || (state_ == State::kAwaited && !ok)) {
      delete this;
      return;
    }
    if (state_ == State::kAwaited) Await(service_, queue_);
    const bool received = state_ == State::kReading;
    if (received && ok && context_.method() == "/bench.Echo/Upload") {
      Store();
      wire_.Read(&message_, this);
    } else if (!ok) {
      state_ = State::kEnding;
      wire_.Finish(grpc::Status::OK, this);
    } else if (received && context_.method() == "/bench.Echo/Unary") {
      state_ = State::kEnding;
      wire_.WriteAndFinish(message_, grpc::WriteOptions(), grpc::Status::OK, this);
    } else if (received) {
      state_ = State::kWriting;
      wire_.Write(message_, this);
    } else {
      state_ = State::kReading;
      wire_.Read(&message_, this);
    }
  }

 private:
  enum class State { kAwaited, kReading, kWriting, kEnding };

  EchoCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue)
      : service_(service), queue_(queue), wire_(&context_) {}

  // Appends the message to payload_.
  void Store() {
    std::vector<grpc::Slice> slices;
    message_.Dump(&slices);
    for (const grpc::Slice& slice : slices) {
      if (payload_.size() < stored_ + slice.size()) payload_.resize(stored_ + slice.size());
      std::memcpy(payload_.data() + stored_, slice.begin(), slice.size());
      stored_ += slice.size();
    }
  }

  // The bytes of the last upload, whose memory the next one reuses. One upload runs at a time.
  static inline std::vector<uint8_t> payload_;
  size_t stored_ = 0;
  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter wire_;
  grpc::ByteBuffer message_;
  State state_ = State::kAwaited;
};

void ServeGrpc(grpc::ServerCompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) static_cast<EchoCall*>(tag)->Proceed(ok);
}

int Main() {
  auto folder = std::make_unique<const integration::TestFolder>();
  const std::string tcp = ListenTcp();
  const std::string local = ListenUnix(folder->File("socket"));
  const integration::Authority authority;
  const integration::CertificatePair pair = authority.Issue(integration::ServerRequest());
  const std::string ca_file = folder->Write("ca.pem", authority.pem());
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  int tls_port = 0;
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({pair.key, pair.cert});
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(tls), &tls_port);
  builder.RegisterAsyncGenericService(&service);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Require(server != nullptr && port > 0 && tls_port > 0, "gRPC");
  EchoCall::Await(&service, queue.get());
  std::thread(ServeGrpc, queue.get()).detach();
  std::printf("ready %s %s 127.0.0.1:%d 127.0.0.1:%d %s\n", tcp.c_str(), local.c_str(), port,
              tls_port, ca_file.c_str());
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  folder.reset();
  std::_Exit(0);  // other threads still wait in accept()
}

}  // namespace
}  // namespace tensord::bench

int main() { return tensord::bench::Main(); }
