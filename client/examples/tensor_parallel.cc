// Runs two linear layers that are sharded over all servers: the first by its outputs, the second by
// its inputs.
//   example_tensor_parallel [SERVERS]
#include <iostream>
#include <string>
#include <vector>

#include "tensord/client/examples/check.h"

namespace tensord::examples {
namespace {

constexpr int64_t kBatch = 32;
constexpr int64_t kWidth = 256;
constexpr int64_t kHidden = 1024;

absl::Status Run(const std::string& servers, const std::string& /*data*/) {
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Connect(servers));
  const std::vector<Device> devices = cluster.TryAllDevices();
  const Device& first = devices[0];
  const Tensor w1 = Normal(first, {kHidden, kWidth}, /*seed=*/1, {.stddev = 0.05});
  const Tensor b1 = Normal(first, {kHidden}, /*seed=*/2);
  const Tensor w2 = Normal(first, {kWidth, kHidden}, /*seed=*/3, {.stddev = 0.05});
  const Tensor b2 = Normal(first, {kWidth}, /*seed=*/4);
  const Tensor x = Normal(first, {kBatch, kWidth}, /*seed=*/5);

  TENSORD_ASSIGN_OR_RETURN(const Group group, Group::Create(devices));
  const nn::ColumnParallelLinear up(w1, b1, devices, Activation::kGelu);
  const nn::RowParallelLinear down(w2, b2, group);
  const std::vector<Tensor> y = down.Forward(up.Forward(Replicate(x, devices)));

  std::cout << "a layer of " << kHidden << " over " << devices.size() << " devices: ";
  const Tensor wanted = Linear(Linear(x, w1, b1, {.activation = Activation::kGelu}), w2, b2);
  TENSORD_RETURN_IF_ERROR(CheckClose(y.back(), wanted, 1e-3));
  TENSORD_ASSIGN_OR_RETURN(const CopyReport report, Replicate(x, devices).back().copy_report());
  std::cout << "copies used the path " << CopyPathName(report.path) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace tensord::examples

int main(int argc, char** argv) {
  return tensord::examples::Main(
      argc, argv, "[SERVERS]",
      "Runs two linear layers, sharded over all servers, with one all_reduce.",
      tensord::examples::Run);
}
