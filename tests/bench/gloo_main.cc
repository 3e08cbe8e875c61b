// Gloo called directly: all_reduce between processes over loopback, for comparison.
//   usage: bench_gloo MEMBERS MIB ROUNDS
// Prints the seconds of the fastest round, and bytes of the tensor by those seconds in GB/s.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace {

void RunMember(const std::string& folder, int rank, int members, size_t elements, int rounds) {
  gloo::transport::tcp::attr attr("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(folder);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, members);
  context->connectFullMesh(store, device);

  std::vector<float> input(elements, static_cast<float>(rank + 1));
  std::vector<float> output(elements);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    gloo::BarrierOptions together(context);
    gloo::barrier(together);
    const auto start = std::chrono::steady_clock::now();
    gloo::AllreduceOptions options(context);
    options.setInput(input.data(), elements);
    options.setOutput(output.data(), elements);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
    gloo::BarrierOptions done(context);
    gloo::barrier(done);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  const float expected = static_cast<float>(members) * static_cast<float>(members + 1) / 2;
  if (output.front() != expected || output.back() != expected) std::exit(1);
  if (rank == 0) {
    std::printf("%.6f s %.3f GB/s\n", best, static_cast<double>(elements) * 4 / best / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_gloo MEMBERS MIB ROUNDS\n");
    return 2;
  }
  const int members = std::atoi(argv[1]);
  const size_t elements = static_cast<size_t>(std::atoi(argv[2])) << 18;
  const int rounds = std::atoi(argv[3]);
  char folder[] = "/tmp/bench_gloo_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  for (int rank = 0; rank < members; ++rank) {
    if (fork() != 0) continue;
    RunMember(folder, rank, members, elements, rounds);
    std::fflush(stdout);
    _exit(0);
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed |= status;
  std::filesystem::remove_all(folder);
  return failed == 0 ? 0 : 1;
}
