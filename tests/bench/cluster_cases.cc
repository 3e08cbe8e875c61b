// Several servers: copies between them, work on all of them, and the cost of the client's distance.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/bench/bench.h"
#include "tensord/tests/bench/wire.h"
#include "tensord/tests/control_plane/control_plane.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::bench {
namespace {

using integration::DaemonProcess;

struct ServersOptions {
  bool proxies = false;
  bool shared_memory = true;
};

// Daemons that fetch from each other. With `proxies`, the client reaches each through a proxy.
class Servers {
 public:
  explicit Servers(int count, ServersOptions wanted = {}) {
    std::vector<std::string> addresses;
    std::vector<std::string> environment;
    if (!wanted.shared_memory) environment.emplace_back(integration::kNoSharedMemory);
    for (int i = 0; i < count; ++i) {
      daemons_.push_back(Check(DaemonProcess::Start(
          {"--devices=cpu", "--cpu-threads=1", "--peers=127.0.0.1:*"}, environment)));
      addresses.push_back(daemons_.back()->address());
      if (!wanted.proxies) continue;
      proxies_.push_back(Check(proxy::DelayProxy::Start({.target = addresses.back()})));
      addresses.back() = proxies_.back()->address();
    }
    ClusterOptions options;
    options.connect.shared_memory = false;
    cluster_ = Check(Cluster::Connect(addresses, options));
  }

  Device On(int server) const { return *cluster_.device(server); }
  std::vector<Device> devices() const { return cluster_.devices(); }
  void SetDelay(std::chrono::microseconds one_way) {
    for (const auto& proxy : proxies_) proxy->SetDelay(one_way);
  }
  int64_t ClientBytes() const {
    int64_t bytes = 0;
    for (const auto& proxy : proxies_) {
      bytes += proxy->stats().bytes_to_server + proxy->stats().bytes_to_client;
    }
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  std::vector<std::unique_ptr<proxy::DelayProxy>> proxies_;
  Cluster cluster_;
};

Tensor Resident(const Device& device, const Shape& shape) {
  Tensor tensor = Uniform(device, shape, /*seed=*/1);
  Check(tensor.Wait());
  return tensor;
}

// Copies the tensor to the second server and returns GiB/s.
double CopyRate(const Servers& servers, const Tensor& there) {
  return static_cast<double>(there.size_bytes()) / kGiB /
         SecondsOf([&] { Check(there.To(servers.On(1)).copy_report().status()); });
}

void Copies(Bench& bench) {
  const std::string measure = "server-to-server copy, 256 MiB, network";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kBytes = 256 * kMiB;
  Servers servers(2, {.shared_memory = false});
  const Tensor there = Resident(servers.On(0), {kBytes / 4});
  RawConnection tcp(RawTcpAddress(bench.echo()));
  std::vector<float> here(kBytes / 4, 1);
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return CopyRate(servers, there); });
  comparison.AddSingle("raw TCP", [&] {
    return tcp.Upload({reinterpret_cast<const uint8_t*>(here.data()), kBytes});
  });
  comparison.AddSingle("through the client", [&] {
    return kBytes / kGiB / SecondsOf([&] {
             Check(there.ReadInto(absl::MakeSpan(here)));
             Check(FromSpan<float>(servers.On(1), there.shape(), here).Wait());
           });
  });
  comparison.Run(11);
  comparison.AddRow({measure, "GiB/s", "raw TCP", Better::kHigher, 0.5, 0.85});
  comparison.AddRow({measure, "GiB/s", "through the client", Better::kHigher, 0.5, 1.8});
}

void SharedCopies(Bench& bench, int64_t mib) {
  const std::string measure = absl::StrCat("server-to-server copy, ", mib, " MiB, shared memory");
  if (!bench.Wants(measure)) return;
  const int64_t bytes = mib * kMiB;
  Servers sharing(2);
  Servers networked(2, {.shared_memory = false});
  const Tensor there = Resident(sharing.On(0), {bytes / 4});
  const Tensor there_too = Resident(networked.On(0), {bytes / 4});
  const std::vector<uint8_t> from(bytes, 1);
  std::vector<uint8_t> to(bytes, 2);
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return CopyRate(sharing, there); });
  comparison.AddSingle("memcpy", [&] {
    return static_cast<double>(bytes) / kGiB /
           SecondsOf([&] { std::memcpy(to.data(), from.data(), bytes); });
  });
  comparison.AddSingle("network", [&] { return CopyRate(networked, there_too); });
  comparison.Run(11);
  comparison.AddRow({measure, "GiB/s", "memcpy", Better::kHigher, 0.5, 0.4});
  comparison.AddRow({measure, "GiB/s", "network", Better::kHigher, 0.5, 1.5});
}

// Returns a free port of 127.0.0.1. In theory another program could take it before the caller does.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* const generic = reinterpret_cast<sockaddr*>(&at);
  const bool found = bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0;
  close(fd);
  if (!found) Check(absl::UnavailableError("no port is free"));
  return ntohs(at.sin_port);
}

// Two servers. Each connection to the first carries at most `bytes_per_second`, as between machines
// of a cloud.
class ThrottledServers {
 public:
  ThrottledServers(int64_t bytes_per_second, int connections) {
    const std::string target = absl::StrCat("127.0.0.1:", FreePort());
    proxy_ =
        Check(proxy::DelayProxy::Start({.target = target, .bytes_per_second = bytes_per_second}));
    const std::vector<std::string> common = {"--devices=cpu", "--cpu-threads=1",
                                             "--peers=127.0.0.1:*",
                                             absl::StrCat("--peer-connections=", connections)};
    std::vector<std::string> addresses;
    for (const std::vector<std::string>& own :
         {std::vector<std::string>{"--listen=" + target, "--advertise=" + proxy_->address()},
          std::vector<std::string>{}}) {
      std::vector<std::string> flags = common;
      flags.insert(flags.end(), own.begin(), own.end());
      daemons_.push_back(
          Check(DaemonProcess::Start(flags, {std::string(integration::kNoSharedMemory)})));
      addresses.push_back(daemons_.back()->address());
    }
    cluster_ = Check(Cluster::Connect(addresses, {}));
  }

  Device On(int server) const { return *cluster_.device(server); }

 private:
  std::unique_ptr<proxy::DelayProxy> proxy_;
  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  Cluster cluster_;
};

void SpreadCopies(Bench& bench) {
  const std::string measure = "server-to-server copy, 256 MiB, 100 MiB/s a connection";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kBytes = 256 * kMiB;
  ThrottledServers spread(100 * kMiB, 4);
  ThrottledServers single(100 * kMiB, 1);
  const Tensor of_spread = Resident(spread.On(0), {kBytes / 4});
  const Tensor of_single = Resident(single.On(0), {kBytes / 4});
  const auto rate = [](const Tensor& there, const Device& device) {
    return static_cast<double>(there.size_bytes()) / kGiB /
           SecondsOf([&] { Check(there.To(device).copy_report().status()); });
  };
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return rate(of_spread, spread.On(1)); });
  comparison.AddSingle("one connection", [&] { return rate(of_single, single.On(1)); });
  comparison.Run(3);
  comparison.AddRow({measure, "GiB/s", "one connection", Better::kHigher, 0.5, 2.5});
}

void ClientBytes(Bench& bench) {
  const std::string measure = "the client's bytes for a server-to-server copy of 256 MiB";
  if (!bench.Wants(measure)) return;
  constexpr double kLimit = 64;
  Servers servers(2, {.proxies = true});
  const Tensor there = Resident(servers.On(0), {64 * kMiB});
  const int64_t before = servers.ClientBytes();
  Check(there.To(servers.On(1)).copy_report().status());
  const double kib = static_cast<double>(servers.ClientBytes() - before) / 1024;
  bench.Add({measure, "KiB", kib, "limit", kLimit, kLimit / std::max(kib, 0.1), 1.0});
}

// Multiplies each operand by itself `each` times and returns products/s.
double Products(const std::vector<Tensor>& operands, int each) {
  std::vector<Tensor> results;
  const double seconds = SecondsOf([&] {
    for (int i = 0; i < each; ++i) {
      for (const Tensor& x : operands) results.push_back(Matmul(x, x));
    }
    for (const Tensor& result : results) Check(result.Wait());
  });
  return static_cast<double>(results.size()) / seconds;
}

void TwoAtOnce(Bench& bench) {
  const std::string measure = "matmul 1024^3 on two servers of one thread each";
  if (!bench.Wants(measure)) return;
  Servers servers(2);
  std::vector<Tensor> both;
  for (const Device& device : servers.devices()) both.push_back(Resident(device, {1024, 1024}));
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return Products(both, 8); });
  comparison.AddSingle("one of them", [&] { return Products({both[0]}, 8); });
  comparison.Run(11);
  comparison.AddRow({measure, "matmul/s", "one of them", Better::kHigher, 0.5, 1.9});
}

void AllReduce(Bench& bench) {
  const std::string measure = "all_reduce, 64 MiB over 4 servers";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kBytes = 64 * kMiB;
  Peer* const gloo = bench.FindPeer("Gloo");
  Servers servers(4);
  const Group group = Check(Group::Create(servers.devices()));
  std::vector<Tensor> x;
  for (const Device& device : servers.devices()) x.push_back(Resident(device, {kBytes / 4}));
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return kBytes / kGiB / SecondsOf([&] {
             for (const Tensor& y : group.AllReduce(x)) Check(y.Wait());
           });
  });
  comparison.AddPeer("Gloo", gloo, absl::StrCat("all_reduce ", kBytes));
  comparison.Run(11);
  comparison.AddRow({measure, "GiB/s", "Gloo", Better::kHigher, 0.5, 0.9});
}

void FarPipeline(Bench& bench) {
  const std::string measure = "pipeline of 3 servers, 16 micro-batches, 10 ms away";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kWidth = 2048;
  constexpr int64_t kRows = 256;
  constexpr int kMicroBatches = 16;
  Servers servers(3, {.proxies = true});
  std::vector<std::shared_ptr<nn::Module>> stages;
  for (int i = 0; i < 3; ++i) {
    stages.push_back(std::make_shared<nn::Sequential>(
        nn::Linear(kWidth, kWidth, {.seed = i, .activation = Activation::kRelu})));
  }
  const nn::Pipeline pipeline = Check(nn::Pipeline::Create(stages, servers.devices()));
  const Tensor x = Resident(servers.On(0), {kRows * kMicroBatches, kWidth});
  const auto run = [&](std::chrono::microseconds round_trip) {
    servers.SetDelay(round_trip / 2);
    return 1e3 * SecondsOf([&] { Check(pipeline.Forward(x, kMicroBatches).Wait()); });
  };
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return run(std::chrono::milliseconds(10)); });
  comparison.AddSingle("beside it", [&] { return run(std::chrono::milliseconds(0)); });
  comparison.Run(11);
  comparison.AddRow({measure, "ms", "beside it", Better::kLower, 0.5, 1 / 1.15});
}

// Returns the CPU time of the calling thread.
double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns the CPU time of the calling thread for one op on the cluster's first server.
double OpNanoseconds(const Cluster& cluster) {
  constexpr int kOps = 20000;
  const Client client = cluster.servers()[0].client;
  Tensor x = Ones(*cluster.device(0), {kSmall});
  Check(client.Synchronize());
  const double start = ThreadSeconds();
  for (int i = 0; i < kOps; ++i) x = Add(x, x);
  const double taken = ThreadSeconds() - start;
  Check(client.Synchronize());
  return 1e9 * taken / kOps;
}

void ManyServers(Bench& bench) {
  const std::string measure = "an op's cost to a client of 1,000 servers";
  if (!bench.Wants(measure)) return;
  const control_plane::ControlPlane plane;
  const Cluster one = Check(Cluster::Connect(control_plane::ControlPlane::Addresses(1)));
  const Cluster thousand = Check(Cluster::Connect(control_plane::ControlPlane::Addresses(1000)));
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] { return OpNanoseconds(thousand); });
  comparison.AddSingle("of one", [&] { return OpNanoseconds(one); });
  comparison.Run(11);
  comparison.AddRow({measure, "ns", "of one", Better::kLower, 0.5, 0.9});
}

}  // namespace

void ClusterCases(Bench& bench) {
  Copies(bench);
  SharedCopies(bench, 256);
  SpreadCopies(bench);
  ClientBytes(bench);
  TwoAtOnce(bench);
  AllReduce(bench);
  FarPipeline(bench);
  ManyServers(bench);
}

}  // namespace tensord::bench
