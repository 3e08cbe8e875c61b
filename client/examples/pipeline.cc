// Runs a network in stages, one on each server. Micro-batches pass through them one after another.
//   example_pipeline [SERVERS]
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tensord/client/examples/check.h"

namespace tensord::examples {
namespace {

constexpr int64_t kBatch = 256;
constexpr int64_t kWidth = 512;
constexpr int kMicroBatches = 16;

std::shared_ptr<nn::Module> MakeStage(int64_t seed) {
  return std::make_shared<nn::Sequential>(nn::Linear(kWidth, kWidth, {.seed = seed}), nn::GELU(),
                                          nn::Linear(kWidth, kWidth, {.seed = seed + 1}));
}

absl::Status Run(const std::string& servers, const std::string& /*data*/) {
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Connect(servers));
  const std::vector<Device> devices = cluster.TryAllDevices();
  std::vector<std::shared_ptr<nn::Module>> stages;
  for (size_t i = 0; i < devices.size(); ++i) stages.push_back(MakeStage(10 * i));
  TENSORD_ASSIGN_OR_RETURN(const nn::Pipeline pipeline, nn::Pipeline::Create(stages, devices));

  const Tensor x = Normal(devices[0], {kBatch, kWidth}, /*seed=*/1);
  const Tensor y = pipeline.Forward(x, kMicroBatches);

  Tensor wanted = x;
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::shared_ptr<nn::Module> stage = MakeStage(10 * i);
    TENSORD_RETURN_IF_ERROR(stage->To(devices[0]));
    wanted = stage->Forward(wanted);
  }
  std::cout << kMicroBatches << " micro-batches through " << devices.size() << " stages: ";
  return CheckClose(y, wanted, 1e-3);
}

}  // namespace
}  // namespace tensord::examples

int main(int argc, char** argv) {
  return tensord::examples::Main(
      argc, argv, "[SERVERS]",
      "Runs a network in stages, one on each server. Micro-batches pass through them.",
      tensord::examples::Run);
}
