// A client to be killed: it does a little of everything, over and over, and never ends by itself.
//   usage: fault_client ADDRESS
// Says "ready" once it is connected.
#include <cstdio>
#include <random>
#include <vector>

#include "tensord/client/tensord.h"

namespace tensord::fault {
namespace {

void Upload(const Device& device, std::minstd_rand& random) {
  const std::vector<float> data(1 << (14 + random() % 8), 1.0f);
  const Tensor x = FromSpan<float>(device, {static_cast<int64_t>(data.size())}, data);
  if (random() % 2 == 0) (void)x.Read<float>();
}

void Compute(const Device& device, std::minstd_rand& random) {
  Tensor x = Full(device, {64, 64}, 0.5);
  for (int i = static_cast<int>(random() % 200); i > 0; --i) x = Matmul(x, x) + 1;
  if (random() % 2 == 0) (void)x.Read<float>();
}

void Run(const Device& device, std::minstd_rand& random) {
  const auto program = Program::Record(device, {{DType::kFloat32, {1000}}}, [](auto in) {
    return std::vector<Tensor>{Relu(in[0] * 2 - 1)};
  });
  if (!program.ok()) return;
  Tensor x = Ones(device, {1000});
  for (int i = static_cast<int>(random() % 50); i > 0; --i) x = program->Run({x})[0];
  (void)x.Read<float>();
}

int Main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto client = Client::Connect(argv[1], {.lease = absl::Seconds(1)});
  if (!client.ok()) return 1;
  const Device device = client->TryDevice();
  std::printf("ready\n");
  std::fflush(stdout);
  std::minstd_rand random(std::random_device{}());
  while (client->status().ok()) {
    const auto what = random() % 3;
    what == 0 ? Upload(device, random) : what == 1 ? Compute(device, random) : Run(device, random);
  }
  return 1;
}

}  // namespace
}  // namespace tensord::fault

int main(int argc, char** argv) { return tensord::fault::Main(argc, argv); }
