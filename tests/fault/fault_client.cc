// A client that fault_test.cc kills. It does random work until an error ends it.
//   usage: fault_client ADDRESS
// Prints "ready" when it is connected.
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
  while (RunRandomWork(device, random).ok()) {
  }
  return 1;
}

}  // namespace
}  // namespace tensord::fault

int main(int argc, char** argv) { return tensord::fault::Main(argc, argv); }
