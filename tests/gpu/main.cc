// gpu_bench compares the device layer with cuBLASLt and cudaMemcpy, or with PyTorch. See README.md.
#include <cublasLt.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/tests/bench/peer.h"
#include "tensord/tests/gpu/rows.h"

namespace tensord::gpu {
namespace {

using bench::Peer;

constexpr int kNoGpu = 3;  // exit status
constexpr int64_t kDeviceBytes = int64_t{2} << 30;

struct Options {
  bool describe = false, libraries = false, quick = false;
  std::string torch, json, table, filter;
  double seconds = 540;
};

// Writes the measurements to files. Writes each row at once, so that a run that is killed leaves
// the rows that it has finished.
class Report {
 public:
  Report(const Options& options, const GpuInfo& info, const std::string& torch)
      : table_(options.table), json_path_(options.json) {
    json_ = {{"gpu", info.model},
             {"compute_capability", info.compute_capability},
             {"driver_version", info.driver_version},
             {"peak_bytes_per_second", info.bytes_per_second},
             {"peak_clock_hz", info.clock_hz},
             {"pytorch", torch},
             {"rows", nlohmann::json::array()}};
    AddLine(absl::StrFormat("%-50s %9s  %-7s %9s  %5s  %5s  %s", "row", "ours", "unit", "reference",
                            "ratio", "peak", "what the reference is"));
  }

  void Add(const Row& row, const Figures& figures) {
    const double ours = FigureOf(row, figures.ours_seconds);
    const bool has_reference = !figures.reference.empty();
    const double reference = has_reference ? FigureOf(row, figures.reference_seconds) : 0;
    const double of_peak = row.peak > 0 ? row.work / figures.ours_seconds / row.peak : 0;
    AddLine(absl::StrFormat("%-50s %9s  %-7s %9s  %5s  %5s  %s", row.name, Text(ours),
                            UnitName(row.unit), has_reference ? Text(reference) : "-",
                            has_reference ? absl::StrFormat("%.2f", figures.ratio) : "-",
                            of_peak > 0 ? absl::StrFormat("%.0f %%", 100 * of_peak) : "-",
                            figures.reference));
    nlohmann::json one = {
        {"name", row.name},        {"unit", UnitName(row.unit)}, {"ours", ours},
        {"reference", nullptr},    {"reference_value", nullptr}, {"ratio", nullptr},
        {"share_of_peak", nullptr}};
    if (has_reference) {
      one["reference"] = figures.reference;
      one["reference_value"] = reference;
      one["ratio"] = figures.ratio;
    }
    if (of_peak > 0) one["share_of_peak"] = of_peak;
    json_["rows"].push_back(std::move(one));
    if (!json_path_.empty()) std::ofstream(json_path_) << json_.dump(1) << "\n";
  }

 private:
  static std::string Text(double figure) {
    return absl::StrFormat(figure >= 1000 ? "%.0f" : figure >= 10 ? "%.1f" : "%.3f", figure);
  }
  void AddLine(const std::string& line) { table_ << line << "\n" << std::flush; }

  std::ofstream table_;
  const std::string json_path_;
  nlohmann::json json_;
};

absl::StatusOr<Contender> AskTorch(Peer* torch, const std::string& question) {
  TENSORD_RETURN_IF_ERROR(torch->Ask("load " + question).status());
  const auto run = [torch](int n) -> absl::StatusOr<double> {
    TENSORD_ASSIGN_OR_RETURN(const std::vector<double> answer, torch->Ask(absl::StrCat("run ", n)));
    return answer[0];
  };
  const auto checksum = [torch]() -> absl::StatusOr<Checksum> {
    TENSORD_ASSIGN_OR_RETURN(const std::vector<double> answer, torch->Ask("checksum"));
    if (answer.size() != 2) return absl::InternalError("PyTorch's checksum needs two values");
    return Checksum{answer[0], answer[1]};
  };
  Contender contender{"PyTorch", run, checksum};
  if (question.find(':') == std::string::npos) contender.checksum = nullptr;  // not a tensor op
  return contender;
}

absl::StatusOr<Figures> RunRow(const Row& row, Peer* torch, const MeasureOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(Contender ours, row.ours());
  Contender reference;
  if (torch != nullptr) {
    TENSORD_ASSIGN_OR_RETURN(reference, AskTorch(torch, row.torch));
  } else if (row.direct != nullptr) {
    TENSORD_ASSIGN_OR_RETURN(reference, row.direct());
  }
  return Measure(row, ours, reference.run != nullptr ? &reference : nullptr, options);
}

// Prints a line in GoogleTest's format, so that results.awk reads it, too.
void Announce(const char* what, const std::string& name) {
  std::printf("[ %s ] %s\n", what, name.c_str());
  std::fflush(stdout);
}

int RunRows(const Options& options, const Setup& setup, Peer* torch, Report* report) {
  std::vector<Row> rows;
  AppendLaunchRows(setup, &rows);
  AppendTransferRows(setup, &rows);
  AppendProductRows(setup, &rows);
  AppendConvRows(setup, &rows);
  AppendMemoryRows(setup, &rows);
  MeasureOptions measure;
  if (options.quick) measure = {.rounds = 2, .sample_seconds = 1e-3};
  const std::regex filter(options.filter, std::regex::icase);
  const auto start = std::chrono::steady_clock::now();
  int failed = 0;
  for (const Row& row : rows) {
    if (!std::regex_search(row.name, filter) || (torch != nullptr && row.torch.empty())) continue;
    Announce("RUN     ", row.name);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (taken.count() > options.seconds) {
      std::printf("gpu_bench: Skipped\nthe time limit for rows (--seconds) is over\n\n");
      Announce(" SKIPPED", row.name);
      continue;
    }
    const absl::StatusOr<Figures> figures = RunRow(row, torch, measure);
    if (figures.ok()) {
      report->Add(row, *figures);
      Announce("      OK", row.name);
    } else {
      ++failed;
      std::printf("%s\n", figures.status().ToString().c_str());
      Announce(" FAILED ", row.name);
    }
  }
  return failed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the device layer on GPU 0", "gpu_bench");
  app.add_flag("--describe", options.describe, "Print a description of the GPU, and exit");
  app.add_flag("--libraries", options.libraries,
               "Print the names of the CUDA libraries that are loaded at run time, and exit");
  app.add_flag("--quick", options.quick,
               "Use small sizes and few rounds; the measured values are meaningless");
  app.add_option("--torch", options.torch,
                 "Compare with PyTorch. The value is the command that runs torch_peer.py");
  app.add_option("--json", options.json, "Write the measurements to this JSON file");
  app.add_option("--table", options.table, "Write the table to this text file");
  app.add_option("--filter", options.filter,
                 "Run only rows whose name matches this regular expression");
  app.add_option("--seconds", options.seconds,
                 "Skip the rows that have not started after this many seconds");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);  // if PyTorch has ended, a write to it fails the row

  if (options.libraries) {
    std::printf("libcublasLt.so.%d\nlibcudnn.so.9\nlibnvrtc.so.%d\n", CUBLAS_VER_MAJOR,
                CUDART_VERSION / 1000);
    return 0;
  }
  const absl::StatusOr<GpuInfo> info = DescribeGpu();
  if (!info.ok()) {
    std::printf("%s\n", std::string(info.status().message()).c_str());
    return kNoGpu;
  }
  if (options.describe) {
    std::printf("%s, compute capability %s, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d",
                info->model.c_str(), info->compute_capability.c_str(), info->multiprocessors,
                static_cast<double>(info->memory_bytes) / (1 << 30), info->driver_version / 1000,
                info->driver_version % 1000 / 10);
    if (info->bytes_per_second > 0) std::printf(", %.0f GB/s", info->bytes_per_second * 1e-9);
    if (info->clock_hz > 0) std::printf(", %.0f MHz", info->clock_hz * 1e-6);
    std::printf("\n");
    return 0;
  }

  std::unique_ptr<Peer> torch;
  std::string torch_name;
  if (!options.torch.empty()) {
    auto peer = Peer::Start(absl::StrSplit(options.torch, ' '), /*spins=*/false);
    if (!peer.ok()) {
      std::printf("no PyTorch: %s\n", std::string(peer.status().message()).c_str());
      return 1;
    }
    torch = *std::move(peer);
    torch_name = absl::StrJoin(torch->greeting(), " ");
    std::printf("PyTorch: %s\n", torch_name.c_str());
  }
  auto gpu = Gpu::Make(kDeviceBytes);
  if (!gpu.ok()) {
    std::printf("%s\n", gpu.status().ToString().c_str());
    return 1;
  }
  Report report(options, *info, torch_name);
  return RunRows(options, {gpu->get(), *info, options.quick}, torch.get(), &report);
}

}  // namespace
}  // namespace tensord::gpu

int main(int argc, char** argv) { return tensord::gpu::Main(argc, argv); }
