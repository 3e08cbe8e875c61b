// gpu_bench compares the device layer with cuBLASLt and cudaMemcpy, or with PyTorch. See README.md.
#include <cublasLt.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/tests/bench/peer.h"
#include "tensord/tests/gpu/engines.h"
#include "tensord/tests/gpu/report.h"
#include "tensord/tests/gpu/rows.h"

namespace tensord::gpu {
namespace {

using bench::Peer;

constexpr int kNoGpu = 3;  // exit status
constexpr int64_t kDeviceBytes = int64_t{2} << 30;

struct Options {
  bool describe = false, libraries = false, quick = false;
  std::string torch, filter, only;
  ReportFiles files;
  double seconds = 540;
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

std::vector<Row> SelectRows(const Options& options, const Setup& setup) {
  std::vector<Row> all, selected;
  AppendLaunchRows(setup, &all);
  AppendTransferRows(setup, &all);
  AppendProductRows(setup, &all);
  AppendConvRows(setup, &all);
  AppendMemoryRows(setup, &all);
  std::set<std::string> wanted;
  std::ifstream only(options.only);
  for (std::string line; std::getline(only, line);) wanted.insert(line);
  const std::regex filter(options.filter, std::regex::icase);
  for (Row& row : all) {
    if (!std::regex_search(row.name, filter)) continue;
    if (!options.torch.empty() && row.torch.empty()) continue;
    if (!options.only.empty() && !wanted.contains(row.name)) continue;
    selected.push_back(std::move(row));
  }
  return selected;
}

bool IsConvolution(const Row& row) { return absl::StartsWith(row.torch, "conv"); }

// Runs a row and adds it to the report. Of convolutions, the report has the engines that were
// tried, and the flags of PyTorch.
absl::Status ReportRow(const Row& row, Peer* torch, const MeasureOptions& measure,
                       EngineLog& engines, Report& report) {
  engines.Take();
  const absl::StatusOr<Figures> figures = RunRow(row, torch, measure);
  nlohmann::json details = nlohmann::json::object();
  std::vector<std::string> notes;
  if (IsConvolution(row)) {
    details["engines"] = engines.Take();
    notes = EngineLines(details["engines"]);
    if (torch != nullptr && figures.ok()) {
      const std::string flags = torch->AskText("flags").value_or("unknown");
      details["reference_flags"] = flags;
      notes.push_back("PyTorch: " + flags);
    }
  }
  report.Add(row, figures, details, notes);
  return figures.status();
}

// Adds to each convolution the names of PyTorch's kernels. A profiler finds them, which may slow
// later work, so this comes after all measurements.
void ReportKernels(const std::vector<Row>& rows, Peer& torch, Report& report) {
  for (const Row& row : rows) {
    if (!IsConvolution(row)) continue;
    if (!torch.Ask("load " + row.torch).ok()) continue;
    const absl::StatusOr<std::string> kernels = torch.AskText("kernels");
    if (!kernels.ok()) continue;
    report.AddDetail(row.name, "reference_kernels", *kernels);
    report.AddLine(absl::StrCat("kernels of PyTorch, ", row.name, ": ", *kernels));
  }
}

int RunRows(const Options& options, const std::vector<Row>& rows, Peer* torch, Report& report) {
  MeasureOptions measure;
  if (options.quick) measure = {.rounds = 2, .sample_seconds = 1e-3};
  EngineLog engines;
  const auto start = std::chrono::steady_clock::now();
  const auto is_over = [&] {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return taken.count() > options.seconds;
  };
  int failed = 0;
  for (const Row& row : rows) {
    Announce("RUN     ", row.name);
    if (is_over()) {
      std::printf("gpu_bench: Skipped\nthe time limit for rows (--seconds) is over\n\n");
      Announce(" SKIPPED", row.name);
      continue;
    }
    const absl::Status status = ReportRow(row, torch, measure, engines, report);
    if (status.ok()) {
      Announce("      OK", row.name);
    } else {
      ++failed;
      std::printf("%s\n", status.ToString().c_str());
      Announce(" FAILED ", row.name);
    }
  }
  if (torch != nullptr && !is_over()) ReportKernels(rows, *torch, report);
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
  app.add_option("--json", options.files.json, "Write the measurements to this JSON file");
  app.add_option("--table", options.files.table, "Write the table to this text file");
  app.add_option("--repeat", options.files.repeat,
                 "Write the names of the rows to repeat to this text file: rows that failed, that "
                 "didn't start, or that were slower than PyTorch");
  app.add_option("--only", options.only, "Run only the rows that this text file names");
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
    std::printf(", cuDNN %s\n", info->cudnn.c_str());
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
  const std::vector<Row> rows = SelectRows(options, {gpu->get(), *info, options.quick});
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.name);
  Report report(options.files, *info, torch_name, std::move(names));
  return RunRows(options, rows, torch.get(), report);
}

}  // namespace
}  // namespace tensord::gpu

int main(int argc, char** argv) {
  try {
    return tensord::gpu::Main(argc, argv);
  } catch (const std::exception& error) {  // of the JSON library
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
