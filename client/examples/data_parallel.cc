// Runs the digits network on every server, each with a part of the digits.
//   example_data_parallel [SERVERS [FOLDER]]
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tensord/client/examples/check.h"

namespace tensord::examples {
namespace {

constexpr int64_t kFirstTestDigit = 1200;

std::unique_ptr<nn::Sequential> MakeNetwork() {
  return std::make_unique<nn::Sequential>(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 64),
                                          nn::ReLU(), nn::Linear(64, 10));
}

absl::Status Run(const std::string& servers, const std::string& data) {
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Connect(servers));
  const std::vector<Device> devices = cluster.TryAllDevices();
  TENSORD_ASSIGN_OR_RETURN(const auto weights,
                           SafetensorsFile::Open(data + "/digits_mlp.safetensors"));
  TENSORD_ASSIGN_OR_RETURN(const auto digits, SafetensorsFile::Open(data + "/digits.safetensors"));

  // Uploads the weights once. The servers copy them to each other.
  TENSORD_ASSIGN_OR_RETURN(const nn::StateDict state, weights.LoadAll(devices[0]));
  std::vector<nn::StateDict> states(devices.size());
  for (const auto& [name, tensor] : state) {
    const std::vector<Tensor> copies = Replicate(tensor, devices);
    for (size_t i = 0; i < devices.size(); ++i) states[i][name] = copies[i];
  }
  std::vector<std::unique_ptr<nn::Sequential>> models;
  for (const nn::StateDict& of_device : states) {
    models.push_back(MakeNetwork());
    TENSORD_RETURN_IF_ERROR(models.back()->LoadStateDict(of_device));
  }

  TENSORD_ASSIGN_OR_RETURN(const Tensor images, digits.Load(devices[0], "images"));
  TENSORD_ASSIGN_OR_RETURN(const Tensor labels, digits.Load(devices[0], "labels"));
  const Tensor x = Slice(images.To(DType::kFloat32) / 16.0, {kFirstTestDigit}, {kToEnd});
  const Tensor wanted = Slice(labels, {kFirstTestDigit}, {kToEnd});

  std::vector<Tensor> parts = Shard(x, 0, devices);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = models[i]->Forward(parts[i]);
  const Tensor logits = Gather(parts, 0, devices[0]);

  const Tensor guess = Argmax(logits, {.axes = {1}});
  TENSORD_ASSIGN_OR_RETURN(const int64_t right, Sum(Eq(guess, wanted)).Item<int64_t>());
  std::cout << right << " of " << wanted.shape().dim(0) << " digits are right, computed on "
            << devices.size() << " devices\n";
  return CheckClose(logits, models[0]->Forward(x), 1e-4);
}

}  // namespace
}  // namespace tensord::examples

int main(int argc, char** argv) {
  return tensord::examples::Main(
      argc, argv, "[SERVERS [FOLDER]]",
      "Runs the digits network on every server, each with a part of the digits.\n"
      "FOLDER: the folder with digits.safetensors and digits_mlp.safetensors; tests/data by "
      "default.",
      tensord::examples::Run);
}
