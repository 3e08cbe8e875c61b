// tensord_bench measures tensord against its goals. See README.md.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

void WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream out(path);
  out << text;
  if (!out.flush()) Check(absl::UnavailableError("can't write " + path));
}

int Main(int argc, char** argv) {
  bool quick = false;
  std::string json, plot, filter;
  CLI::App app("Compares tensord with the machine's limits and with other libraries",
               "tests/bench/run");
  app.add_flag("--quick", quick, "Fewer repetitions: under two minutes");
  app.add_option("--json", json, "File for the rows, as JSON");
  app.add_option("--plot", plot, "File for curves over size and batch, SVG");
  app.add_option("--filter", filter, "Only rows whose measure matches this regular expression");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);  // a write to a peer that has exited then returns an error

  Bench bench(quick, !plot.empty(), filter);
  OpCases(bench);
  LatencyCases(bench);
  TransferCases(bench);
  SessionCases(bench);
  FairnessCases(bench);
  ClusterCases(bench);
  ComputeCases(bench);
  ArrayCases(bench);
  NetworkCases(bench);
  ModelCases(bench);
  MemoryCases(bench);
#ifdef TENSORD_BENCH_CUDA
  CudaCases(bench);
#else
  bench.Skip("GPU rows", "built without CUDA");
#endif
  PeerCases(bench);
  std::printf("%s", Table(bench).c_str());
  WriteFile(json, Json(bench));
  if (!plot.empty()) WriteFile(plot, Svg(bench.series()));
  return 0;
}

}  // namespace
}  // namespace tensord::bench

int main(int argc, char** argv) { return tensord::bench::Main(argc, argv); }
