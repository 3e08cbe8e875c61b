// Classifies an image by ResNet-18.
//   example_resnet18 [SERVER] [MODEL]
#include <iostream>
#include <string>
#include <vector>

#include "tensord/client/examples/models.h"
#include "tensord/client/examples/resnet18.h"

namespace tensord::examples {
namespace {

absl::Status Run(const std::string& server, const std::string& model_path) {
  TENSORD_ASSIGN_OR_RETURN(Client client, Client::Connect(server));
  const Device device = client.TryDevice();
  ResNet18 model;
  TENSORD_ASSIGN_OR_RETURN(
      const SafetensorsFile file,
      OpenOrCreate(model_path, "resnet18.safetensors", [&]() -> absl::StatusOr<nn::StateDict> {
        TENSORD_RETURN_IF_ERROR(model.To(device));
        return model.GetStateDict();
      }));
  TENSORD_ASSIGN_OR_RETURN(const nn::StateDict state, file.LoadAll(device));
  TENSORD_RETURN_IF_ERROR(model.LoadStateDict(state));
  model.Eval();
  std::cout << model.NumParameters() << " parameters on " << device.name() << "\n";

  const Tensor image = Uniform(device, {1, 3, 224, 224}, /*seed=*/1);
  const auto [values, classes] = TopK(Softmax(model.Forward(image)), 5);
  std::cout << "the five most probable classes: " << classes << "\n";

  // A program keeps the ops on the server: a run sends one message.
  TENSORD_ASSIGN_OR_RETURN(
      const Program program,
      Program::Record(device, {image.spec()}, [&](absl::Span<const Tensor> in) {
        return std::vector<Tensor>{model.Forward(in[0])};
      }));
  std::cout << "as a program of " << program.num_ops() << " ops: ";
  return CheckClose(program.Run({image})[0], model.Forward(image), 1e-3);
}

}  // namespace
}  // namespace tensord::examples

int main(int argc, char** argv) {
  return tensord::examples::ModelMain(
      argc, argv,
      "Classifies a random image by ResNet-18. MODEL is a safetensors file with torchvision's "
      "names; by default,\na file with random weights is made.",
      tensord::examples::Run);
}
