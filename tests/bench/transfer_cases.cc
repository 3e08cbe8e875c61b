// Rates of uploads and downloads, and the server's memory use during them.
#include <algorithm>
#include <cstring>

#include "tensord/tests/bench/bench.h"
#include "tensord/tests/bench/wire.h"

namespace tensord::bench {
namespace {

// Published figures of other machines, in GiB/s; the benchmark doesn't run ggml.
constexpr double kGgmlRpcUpload = 0.36;
constexpr double kGgmlRpcDownload = 1.03;

void Direction(Bench& bench, bool up, bool shared) {
  const std::string measure =
      std::string(up ? "upload" : "download") + ", 256 MiB, " + (shared ? "shared memory" : "TCP");
  if (!bench.Wants(measure)) return;
  constexpr int64_t kBytes = 256 * kMiB;
  Transfer transfer(bench.Connect({.shared_memory = shared}), kBytes);
  RawConnection tcp(RawTcpAddress(bench.echo()));
  RawConnection local(RawUnixAddress(bench.echo()));
  std::vector<uint8_t> copy(kBytes, 1);
  const auto ours = [&] { return up ? transfer.Upload() : transfer.Download(); };
  const auto raw = [&](RawConnection& connection) {
    return up ? connection.Upload(transfer.local()) : connection.Download(transfer.local());
  };

  Comparison comparison(bench);
  comparison.AddSingle(kOurs, ours);
  comparison.AddSingle("raw TCP", [&] { return raw(tcp); });
  comparison.AddSingle("raw Unix socket", [&] { return raw(local); });
  comparison.AddSingle("memcpy", [&] {
    return kBytes / kGiB /
           SecondsOf([&] { std::memcpy(copy.data(), transfer.local().data(), kBytes); });
  });
  comparison.Run(11);
  if (shared) {
    comparison.AddRow({measure, "GiB/s", "memcpy", Better::kHigher, 0.5, 0.85});
    comparison.AddRow({measure, "GiB/s", "raw TCP"});
    return;
  }
  comparison.AddRow({measure, "GiB/s", "raw TCP", Better::kHigher, 0.5, 0.9});
  comparison.AddRow({measure, "GiB/s", "raw Unix socket"});
  comparison.AddRow({measure, "GiB/s", "memcpy"});
  const double rate = comparison.Value(kOurs);
  const double published = up ? kGgmlRpcUpload : kGgmlRpcDownload;
  bench.Add({measure, "GiB/s", rate, "ggml-rpc (published)", published, rate / published, 1.0});
}

// Measures the server's maximum memory use during an upload and a download. Subtracts the memory
// that it used before, and the size of the tensor.
void ServerMemory(Bench& bench) {
  const std::string measure = "server memory above a 1 GiB tensor, both ways";
  if (!bench.Wants(measure)) return;
  constexpr int64_t kBytes = 1024 * kMiB;
  const auto daemon = Check(integration::DaemonProcess::Start({"--devices=cpu"}));
  const Client client = Check(Client::Connect(daemon->address(), {.shared_memory = false}));
  std::vector<uint8_t> data(kBytes, 1);
  const int64_t before = daemon->MemoryBytes("VmRSS");
  const Tensor tensor =
      FromSpan<uint8_t>(Check(client.device("cpu:0")), {kBytes}, absl::MakeConstSpan(data));
  Check(tensor.ReadInto(absl::MakeSpan(data)));
  const double above = static_cast<double>(daemon->MemoryBytes("VmHWM") - before - kBytes) / kMiB;
  constexpr double kLimit = 64;
  bench.Add({measure, "MiB", above, "limit", kLimit, kLimit / std::max(above, 1.0), 1.0});
}

void BandwidthOverSize(Bench& bench) {
  if (!bench.plot()) return;
  const std::string title = "bandwidth over size";
  std::vector<Series> series;
  for (const char* name : {"upload", "download", "raw TCP upload", "raw TCP download"}) {
    series.push_back({title, "bytes", "GiB/s", name, {}});
  }
  RawConnection tcp(RawTcpAddress(bench.echo()));
  for (int64_t size = 4096; size <= 256 * kMiB; size *= 4) {
    Transfer transfer(bench.Connect({.shared_memory = false}), size);
    const int repeats = static_cast<int>(std::clamp<int64_t>(16 * kMiB / size, 3, 100));
    std::vector<std::vector<double>> rates(series.size());
    for (int i = 0; i < repeats; ++i) {
      rates[0].push_back(transfer.Upload());
      rates[1].push_back(transfer.Download());
      rates[2].push_back(tcp.Upload(transfer.local()));
      rates[3].push_back(tcp.Download(transfer.local()));
    }
    for (size_t i = 0; i < series.size(); ++i) {
      series[i].points.emplace_back(size, Quantile(rates[i], 0.5));
    }
  }
  for (Series& one : series) bench.Add(std::move(one));
}

}  // namespace

void TransferCases(Bench& bench) {
  for (bool shared : {false, true}) {
    Direction(bench, /*up=*/true, shared);
    Direction(bench, /*up=*/false, shared);
  }
  ServerMemory(bench);
  BandwidthOverSize(bench);
}

}  // namespace tensord::bench
