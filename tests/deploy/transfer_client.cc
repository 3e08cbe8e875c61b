// A client that uploads a tensor, reads it, and checks that the values are the same. It prints the
// speeds.
//   usage: transfer_client ADDRESS MIB
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

absl::Status Transfer(const char* address, int64_t mib) {
  TENSORD_ASSIGN_OR_RETURN(const Client client, Client::Connect(address));
  std::vector<float> values(static_cast<size_t>(mib) << 18);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 9973);

  const Stopwatch upload;
  const Tensor tensor = FromVector<float>(client.TryDevice(), values);
  TENSORD_RETURN_IF_ERROR(client.Synchronize());
  std::printf("upload: %.0f MiB/s\n", static_cast<double>(mib) / upload.Seconds());

  const Stopwatch download;
  TENSORD_ASSIGN_OR_RETURN(const std::vector<float> read, tensor.Read<float>());
  std::printf("download: %.0f MiB/s\n", static_cast<double>(mib) / download.Seconds());
  return read == values ? absl::OkStatus()
                        : absl::DataLossError("the values read differ from the uploaded ones");
}

int Main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = Transfer(argv[1], std::atoi(argv[2]));
  if (status.ok()) return 0;
  std::fprintf(stderr, "transfer_client: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace tensord

int main(int argc, char** argv) { return tensord::Main(argc, argv); }
