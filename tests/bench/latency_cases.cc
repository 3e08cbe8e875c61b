// Latencies of an op and its result: on an idle server, during an upload, and far away.
#include <atomic>
#include <thread>

#include <grpcpp/create_channel.h>

#include "tensord/tests/bench/bench.h"
#include "tensord/tests/bench/wire.h"
#include "tensord/tests/proxy/delay_proxy.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::bench {
namespace {

Device Cpu(const Client& client) { return Check(client.device("cpu:0")); }

void OneOp(Bench& bench) {
  const std::string median = "one op and its result, p50";
  const std::string tail = "one op and its result, p99";
  if (!bench.WantsAny({median, tail})) return;
  constexpr int kEach = 250;
  const Client client = bench.Connect();
  const Tensor x = Ones(Cpu(client), {kSmall});
  RawConnection tcp(RawTcpAddress(bench.echo()));
  RawConnection local(RawUnixAddress(bench.echo()));
  GrpcEcho grpc(GrpcAddress(bench.echo()));
  const SeparateCores apart({bench.daemon().pid(), bench.echo().pid()});

  Comparison comparison(bench);
  comparison.Add(kOurs, [&] { return OpAndRead(x, kEach); });
  comparison.Add("TCP ping-pong", [&] { return tcp.PingPong(kEach); });
  comparison.Add("Unix-socket ping-pong", [&] { return local.PingPong(kEach); });
  comparison.Add("bare gRPC stream echo", [&] { return grpc.Stream(kEach); });
  comparison.Run(24);
  const auto add = [&](const std::string& reference, std::optional<double> p50,
                       std::optional<double> p99) {
    RowSpec spec = {median, "us", reference, Better::kLower, 0.5, p50};
    comparison.AddRow(spec);
    spec.measure = tail;
    spec.quantile = 0.99;
    spec.goal = p99;
    comparison.AddRow(spec);
  };
  add("TCP ping-pong", 1 / 1.2, 1 / 2.0);
  add("Unix-socket ping-pong", {}, {});
  add("bare gRPC stream echo", {}, {});
}

// Runs OneOp, but both ends spin for a while before they sleep.
void OneOpSpinning(Bench& bench) {
  const std::string median = "one op and its result, spinning, p50";
  if (!bench.Wants(median)) return;
  constexpr int kEach = 250;
  const auto daemon =
      Check(integration::DaemonProcess::Start({"--devices=cpu=64MiB", "--spin-us=1000"}));
  const Client client = Check(Client::Connect(daemon->address(), {.spin = absl::Milliseconds(1)}));
  const Tensor x = Ones(Cpu(client), {kSmall});
  RawConnection tcp(RawTcpAddress(bench.echo()));
  const SeparateCores apart({daemon->pid(), bench.echo().pid()});
  Comparison comparison(bench);
  comparison.Add(kOurs, [&] { return OpAndRead(x, kEach); });
  comparison.Add("TCP ping-pong", [&] { return tcp.PingPong(kEach); });
  comparison.Run(16);
  comparison.AddRow({median, "us", "TCP ping-pong", Better::kLower, 0.5, 1 / 0.6});
}

// Returns the samples of OpAndRead() while `work` runs on another thread.
std::vector<double> OpAndReadWhile(const Tensor& x, const std::function<void()>& work) {
  std::atomic<bool> done{false};
  std::thread thread([&] {
    work();
    done = true;
  });
  std::vector<double> all;
  while (!done) {
    for (const double one : OpAndRead(x, 4)) all.push_back(one);
  }
  thread.join();
  return all;
}

// Runs OneOp while another thread of the same client uploads 1 GiB.
void OneOpBesideAnUpload(Bench& bench) {
  const std::string median = "one op and its result beside a 1 GiB upload, p50";
  const std::string tail = "one op and its result beside a 1 GiB upload, p99";
  if (!bench.WantsAny({median, tail})) return;
  const Client client = bench.Connect({.shared_memory = false});
  const Device device = Cpu(client);
  const Tensor x = Ones(device, {kSmall});
  const std::vector<float> big(256 * kMiB, 1.0f);

  Comparison comparison(bench);
  comparison.Add("idle", [&] { return OpAndRead(x, 250); });
  comparison.Add(kOurs, [&] {
    return OpAndReadWhile(x, [&] { Check(FromSpan<float>(device, {256 * kMiB}, big).status()); });
  });
  comparison.Run(5);
  comparison.AddRow({median, "us", "idle", Better::kLower, 0.5, 1 / 4.0});
  const double p99 = comparison.Value(kOurs, 0.99);
  bench.Add({tail, "us", p99, "limit of 10 ms", 10000, 10000 / p99, 1.0});
}

// Runs OneOp while another client's op runs for seconds.
void OneOpBesideALongOp(Bench& bench) {
  struct Case {
    std::string name;
    std::function<Tensor(const Device&)> op;
  };
  const Case cases[] = {
      {"a product",
       [](const Device& device) {
         const Tensor x = Full(device, {5000, 5000}, 1e-3);
         return Matmul(x, x);
       }},
      {"a sort", [](const Device& device) { return Sort(Normal(device, {1 << 24})).values; }}};
  for (const Case& each : cases) {
    const std::string measure =
        absl::StrCat("one op beside ", each.name, " of another client, p99");
    if (!bench.Wants(measure)) continue;
    const Client client = bench.Connect({.shared_memory = false});
    const Client other = bench.Connect({.shared_memory = false});
    const Tensor x = Ones(Cpu(client), {kSmall});
    Comparison comparison(bench);
    comparison.Add(kOurs,
                   [&] { return OpAndReadWhile(x, [&] { Check(each.op(Cpu(other)).Wait()); }); });
    comparison.Run(5);
    const double p99 = comparison.Value(kOurs, 0.99);
    bench.Add({measure, "us", p99, "limit of 100 ms", 100'000, 100'000 / p99, 1.0});
  }
}

// A session that uses unary calls of the generated stub.
class UnarySession {
 public:
  explicit UnarySession(const std::string& address)
      : stub_(v1::TensorService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    grpc::ClientContext context;
    v1::Session session;
    Require(stub_->OpenSession(&context, v1::OpenSessionRequest(), &session));
    id_ = session.session();
    grpc::ClientContext create_context;
    v1::CreateTensorRequest create;
    create.set_session(id_);
    create.set_handle(1);
    create.set_device("cpu:0");
    create.mutable_spec()->set_dtype(v1::DTYPE_FLOAT32);
    create.mutable_spec()->add_shape(kSmall);
    create.set_pattern(v1::PATTERN_ONES);
    v1::Tensor tensor;
    Require(stub_->CreateTensor(&create_context, create, &tensor));
  }
  ~UnarySession() {
    grpc::ClientContext context;
    v1::CloseSessionRequest request;
    request.set_session(id_);
    v1::CloseSessionResponse response;
    stub_->CloseSession(&context, request, &response);
  }

  // Returns the microseconds of each of `n` additions. Then deletes the sums in one call, which
  // isn't measured.
  std::vector<double> Add(int n) {
    v1::AddRequest request;
    request.set_session(id_);
    request.set_a(1);
    request.set_b(1);
    v1::DeleteTensorsRequest drop;
    drop.set_session(id_);
    std::vector<double> microseconds;
    for (int i = 0; i < n; ++i) {
      request.set_output(2 + i);
      drop.add_handles(2 + i);
      const auto start = Clock::now();
      grpc::ClientContext context;
      v1::Tensor sum;
      Require(stub_->Add(&context, request, &sum));
      microseconds.push_back(MicrosecondsSince(start));
    }
    grpc::ClientContext context;
    v1::DeleteTensorsResponse dropped;
    Require(stub_->DeleteTensors(&context, drop, &dropped));
    return microseconds;
  }

 private:
  static void Require(const grpc::Status& status) {
    if (!status.ok()) Check(absl::UnknownError(status.error_message()));
  }

  const std::unique_ptr<v1::TensorService::Stub> stub_;
  std::string id_;
};

void UnaryAdd(Bench& bench) {
  const std::string measure = "unary Add RPC, p50";
  if (!bench.Wants(measure)) return;
  constexpr int kEach = 250;
  UnarySession session(bench.daemon().address());
  GrpcEcho grpc(GrpcAddress(bench.echo()));
  const SeparateCores apart({bench.daemon().pid(), bench.echo().pid()});
  Comparison comparison(bench);
  comparison.Add(kOurs, [&] { return session.Add(kEach); });
  comparison.Add("bare gRPC unary echo", [&] { return grpc.Unary(kEach); });
  comparison.Run(20);
  comparison.AddRow({measure, "us", "bare gRPC unary echo", Better::kLower, 0.5, 1 / 1.15});
}

// Runs 100 ops and one read. Returns milliseconds.
double HundredOps(const Tensor& x, const Tensor& y) {
  std::vector<float> result(kSmall);
  return 1e3 * SecondsOf([&] {
           Tensor z = x;
           for (int i = 0; i < 100; ++i) z = Add(z, y);
           Check(z.ReadInto(absl::MakeSpan(result)));
         });
}

// Runs HundredOps through a proxy that adds 5 ms in each direction. The reference is the sum of two
// times: a raw round trip through such a proxy, and the program's time without a proxy less a raw
// round trip without a proxy.
void FarAway(Bench& bench) {
  const std::string measure = "100 ops and a read, 10 ms away";
  if (!bench.Wants(measure)) return;
  using std::chrono::microseconds;
  const auto far = [](const std::string& target) {
    return Check(proxy::DelayProxy::Start({.target = target, .one_way_delay = microseconds(5000)}));
  };
  const auto to_daemon = far(bench.daemon().address());
  const auto to_echo = far(RawTcpAddress(bench.echo()));
  const Client near_client = bench.Connect();
  const Client far_client = Check(Client::Connect(to_daemon->address()));
  const Tensor near = Ones(Cpu(near_client), {kSmall});
  const Tensor there = Ones(Cpu(far_client), {kSmall});
  RawConnection near_echo(RawTcpAddress(bench.echo()));
  RawConnection far_echo(to_echo->address());

  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return HundredOps(there, there); });
  comparison.AddSingle("RTT + compute", [&] {
    const double round_trip = 1e-3 * Quantile(far_echo.PingPong(3), 0.5);
    const double compute = HundredOps(near, near) - 1e-3 * Quantile(near_echo.PingPong(10), 0.5);
    return round_trip + std::max(compute, 0.0);
  });
  comparison.Run(21);
  comparison.AddRow({measure, "ms", "RTT + compute", Better::kLower, 0.5, 1 / 1.1});
}

}  // namespace

void LatencyCases(Bench& bench) {
  OneOp(bench);
  OneOpSpinning(bench);
  OneOpBesideAnUpload(bench);
  OneOpBesideALongOp(bench);
  UnaryAdd(bench);
  FarAway(bench);
}

}  // namespace tensord::bench
