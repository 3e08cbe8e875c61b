// Direct calls of Gloo: all_reduce between four processes over loopback. As a peer (peer.h), it
// answers the question "all_reduce BYTES", of float32, with the GiB/s of one round.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int kMembers = 4;

// Returns the seconds from the time when all members have arrived until all have finished.
double AllReduce(const std::shared_ptr<gloo::Context>& context, std::vector<float>* input,
                 std::vector<float>* output) {
  gloo::BarrierOptions together(context);
  gloo::barrier(together);
  const auto start = std::chrono::steady_clock::now();
  gloo::AllreduceOptions options(context);
  options.setInput(input->data(), input->size());
  options.setOutput(output->data(), output->size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
  gloo::BarrierOptions done(context);
  gloo::barrier(done);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs a round for each size read from the pipe `questions`. Rank 0 writes the seconds to the pipe
// `answers`.
void RunMember(const std::string& folder, int rank, int questions, int answers) {
  gloo::transport::tcp::attr attr("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(folder);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, kMembers);
  context->connectFullMesh(store, device);
  std::vector<float> input, output;
  int64_t bytes = 0;
  while (read(questions, &bytes, sizeof(bytes)) == sizeof(bytes)) {
    input.assign(bytes / sizeof(float), static_cast<float>(rank + 1));
    output.resize(input.size());
    const double seconds = AllReduce(context, &input, &output);
    if (output.front() != 10 || output.back() != 10) std::_Exit(1);
    if (rank == 0 && write(answers, &seconds, sizeof(seconds)) != sizeof(seconds)) std::_Exit(1);
  }
  std::_Exit(0);
}

}  // namespace

int main() {
  char folder[] = "/tmp/bench_gloo_XXXXXX";
  int answers[2];
  if (mkdtemp(folder) == nullptr || pipe(answers) != 0) return 1;
  std::vector<int> questions;
  for (int rank = 0; rank < kMembers; ++rank) {
    int question[2];
    if (pipe(question) != 0) return 1;
    if (fork() == 0) {
      for (int other : questions) close(other);
      close(question[1]);
      RunMember(folder, rank, question[0], answers[1]);
    }
    close(question[0]);
    questions.push_back(question[1]);
  }
  close(answers[1]);
  std::cout << "ready" << std::endl;
  std::string word;
  int64_t bytes = 0;
  while (std::cin >> word >> bytes) {
    for (int question : questions) {
      if (write(question, &bytes, sizeof(bytes)) != sizeof(bytes)) return 1;
    }
    double seconds = 0;
    if (read(answers[0], &seconds, sizeof(seconds)) != sizeof(seconds)) {
      std::cout << "error a member has ended" << std::endl;
      break;
    }
    std::cout << "ok " << static_cast<double>(bytes) / (1 << 30) / seconds << std::endl;
  }
  for (int question : questions) close(question);
  while (wait(nullptr) > 0) {
  }
  std::filesystem::remove_all(folder);
  return 0;
}
