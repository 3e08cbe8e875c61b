// The cost of TLS and tokens, and the time until the work of an ended session has stopped and its
// memory is free.
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tensord/common/util/token_file.h"
#include "tensord/tests/bench/bench.h"
#include "tensord/tests/bench/wire.h"
#include "tensord/tests/integration/test_certificates.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::bench {
namespace {

constexpr char kPlain[] = "without";
constexpr char kBareGrpc[] = "bare gRPC with TLS";
constexpr char kToken[] = "the-token-of-the-benchmark";

// A daemon with TLS and token authentication.
class SecureDaemon {
 public:
  SecureDaemon() {
    const auto pair = authority_.Issue(integration::ServerRequest());
    ca_ = folder_.Write("ca.pem", authority_.pem());
    const std::string tokens = folder_.Write(
        "tokens", *TokenLine("bench", HashToken(kToken), absl::InfiniteFuture()) + "\n");
    daemon_ = Check(
        integration::DaemonProcess::Start({"--devices=cpu=1GiB", "--token-file=" + tokens,
                                           "--tls-cert=" + folder_.Write("cert.pem", pair.cert),
                                           "--tls-key=" + folder_.Write("key.pem", pair.key)}));
  }
  Client Connect() {
    ConnectOptions options;
    options.tls.ca_file = ca_;
    options.token = kToken;
    options.shared_memory = false;
    return Check(Client::Connect(daemon_->address(), options));
  }

 private:
  const integration::Authority authority_;
  const integration::TestFolder folder_;
  std::string ca_;
  std::unique_ptr<integration::DaemonProcess> daemon_;
};

void Ops(Bench& bench, SecureDaemon& secure) {
  const std::string chain = "dependent adds, call by call, TLS and a token";
  const std::string one = "one op and its result, TLS and a token, p50";
  if (!bench.WantsAny({chain, one})) return;
  constexpr int kOps = 100000;
  const Client plain = bench.Connect({.shared_memory = false});
  const Client safe = secure.Connect();
  const Tensor plain_x = Ones(Check(plain.device("cpu:0")), {kSmall});
  const Tensor safe_x = Ones(Check(safe.device("cpu:0")), {kSmall});
  Comparison chains(bench);
  chains.AddSingle(kOurs, [&] { return Chain(safe, safe_x, kOps); });
  chains.AddSingle(kPlain, [&] { return Chain(plain, plain_x, kOps); });
  chains.Run(11);
  chains.AddRow({chain, "op/s", kPlain});
  Comparison ones(bench);
  ones.Add(kOurs, [&] { return OpAndRead(safe_x, 250); });
  ones.Add(kPlain, [&] { return OpAndRead(plain_x, 250); });
  ones.Run(11);
  ones.AddRow({one, "us", kPlain, Better::kLower});
}

void Transfers(Bench& bench, SecureDaemon& secure) {
  const std::string up = "upload, 256 MiB, TLS and a token";
  const std::string down = "download, 256 MiB, TLS and a token";
  if (!bench.WantsAny({up, down})) return;
  Transfer safe(secure.Connect(), 256 * kMiB);
  Transfer plain(bench.Connect({.shared_memory = false}), 256 * kMiB);
  GrpcEcho bare(GrpcTlsAddress(bench.echo()), GrpcTlsAuthority(bench.echo()));
  Comparison uploads(bench);
  uploads.AddSingle(kOurs, [&] { return safe.Upload(); });
  uploads.AddSingle(kPlain, [&] { return plain.Upload(); });
  uploads.AddSingle(kBareGrpc, [&] { return bare.Upload(safe.local()); });
  uploads.Run(5);
  uploads.AddRow({up, "GiB/s", kPlain});
  uploads.AddRow({up, "GiB/s", kBareGrpc, Better::kHigher, 0.5, 0.9});
  Comparison downloads(bench);
  downloads.AddSingle(kOurs, [&] { return safe.Download(); });
  downloads.AddSingle(kPlain, [&] { return plain.Download(); });
  downloads.Run(5);
  downloads.AddRow({down, "GiB/s", kPlain});
}

// Calls `leave`, which ends a client's session. Returns the milliseconds from then until the device
// has no memory in use.
double MillisecondsUntilFree(const Client& observer, const std::function<void()>& leave) {
  const Device device = Check(observer.device("cpu:0"));
  return 1e3 * SecondsOf([&] {
           leave();
           while (Check(observer.memory(device)).used_bytes > 0) {
             std::this_thread::sleep_for(std::chrono::milliseconds(1));
           }
         });
}

// Creates ten thousand tensors, 640 MiB in all.
void Fill(const Client& client, std::vector<Tensor>* tensors) {
  const Device device = Check(client.device("cpu:0"));
  for (int i = 0; i < 10000; ++i) tensors->push_back(Ones(device, {16384}));
  Check(client.Synchronize());
}

void Reclaim(Bench& bench) {
  const std::string closed = "memory of a closed session free again";
  const std::string lost = "memory of a lost client free again, beyond its lease";
  constexpr double kLimit = 1000;
  if (!bench.WantsAny({closed, lost})) return;
  const auto daemon = Check(integration::DaemonProcess::Start({"--devices=cpu=1GiB"}));
  const auto proxy = Check(proxy::DelayProxy::Start({.target = daemon->address()}));
  const Client observer = Check(Client::Connect(daemon->address()));
  const auto add = [&](const std::string& measure, double milliseconds) {
    bench.Add({measure, "ms", milliseconds, "limit", kLimit, kLimit / std::max(milliseconds, 0.001),
               1.0});
  };
  {
    std::vector<Tensor> tensors;
    Client client = Check(Client::Connect(daemon->address()));
    Fill(client, &tensors);
    add(closed, MillisecondsUntilFree(observer, [&] { client.Close(); }));
  }
  std::vector<Tensor> tensors;
  const Client client = Check(Client::Connect(
      proxy->address(), {.lease = absl::Seconds(1), .reconnect_timeout = absl::Milliseconds(1)}));
  Fill(client, &tensors);
  const double all = MillisecondsUntilFree(observer, [&] {
    proxy->SetAccepting(false);
    proxy->CutAll();
  });
  add(lost, all - 1000);
}

// An op that takes a second or more, and the memory of its inputs and its result.
struct LongOp {
  std::string measure;
  int64_t bytes;
  std::function<Tensor(const Device&, std::vector<Tensor>*)> start;
};

// Closes the session of a running op. Returns the milliseconds until the device has finished an op
// of another session.
double MillisecondsUntilStopped(integration::DaemonProcess& daemon, const LongOp& op) {
  const Client observer = Check(Client::Connect(daemon.address()));
  const Device device = Check(observer.device("cpu:0"));
  const Tensor x = Ones(device, {kSmall});
  Check(observer.Synchronize());
  Client client = Check(Client::Connect(daemon.address()));
  std::vector<Tensor> inputs;
  const Tensor result = op.start(Check(client.device("cpu:0")), &inputs);
  // The memory of a result is allocated when its op begins.
  while (Check(observer.memory(device)).used_bytes < op.bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return 1e3 * SecondsOf([&] {
           client.Close();
           const Tensor sum = Add(x, x);
           Check(observer.Synchronize());
         });
}

void Stop(Bench& bench) {
  constexpr int64_t kSide = 8192, kElements = 64 * kMiB;
  constexpr double kLimit = 100;
  const LongOp ops[] = {
      {"a closed session's matmul 8192^3 float64 stops", 3 * kSide * kSide * 8,
       [](const Device& device, std::vector<Tensor>* inputs) {
         for (const int64_t seed : {1, 2}) {
           inputs->push_back(Uniform(device, {kSide, kSide}, seed, {.dtype = DType::kFloat64}));
         }
         return Matmul((*inputs)[0], (*inputs)[1]);
       }},
      {"a closed session's 30 fused ops on 64 Mi float32 stop", 2 * kElements * 4,
       [](const Device& device, std::vector<Tensor>* inputs) {
         inputs->push_back(Uniform(device, {kElements}, /*seed=*/1));
         Tensor y = inputs->back();
         for (int i = 0; i < 30; ++i) y = Tanh(y);
         return y;
       }}};
  for (const LongOp& op : ops) {
    if (!bench.Wants(op.measure)) continue;
    const auto daemon = Check(integration::DaemonProcess::Start({"--devices=cpu=2GiB"}));
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(MillisecondsUntilStopped(*daemon, op));
    const double median = Quantile(times, 0.5);
    bench.Add({op.measure, "ms", median, "limit", kLimit, kLimit / median, 1.0});
  }
}

}  // namespace

void SessionCases(Bench& bench) {
  if (bench.WantsAny({"dependent adds, call by call, TLS and a token",
                      "one op and its result, TLS and a token, p50",
                      "upload, 256 MiB, TLS and a token", "download, 256 MiB, TLS and a token"})) {
    SecureDaemon secure;
    Ops(bench, secure);
    Transfers(bench, secure);
  }
  Reclaim(bench);
  Stop(bench);
}

}  // namespace tensord::bench
