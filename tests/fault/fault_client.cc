// A client to be killed: it does a little of everything, over and over, and never ends by itself.
//   usage: fault_client ADDRESS
// Says "ready" once it is connected.
#include <cstdio>
#include <random>

#include "tensord/client/tensord.h"
#include "tensord/tests/fault/random_work.h"

namespace tensord::fault {
namespace {

int Main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto client = Client::Connect(argv[1], {.lease = absl::Seconds(1)});
  if (!client.ok()) return 1;
  const Device device = client->TryDevice();
  std::printf("ready\n");
  std::fflush(stdout);
  std::minstd_rand random(std::random_device{}());
  while (WorkAtRandom(device, random).ok()) {
  }
  return 1;
}

}  // namespace
}  // namespace tensord::fault

int main(int argc, char** argv) { return tensord::fault::Main(argc, argv); }
