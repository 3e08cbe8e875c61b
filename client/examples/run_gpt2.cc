// Generates tokens by a model of GPT-2's architecture.
//   example_gpt2 [SERVER] [MODEL]
#include <iostream>
#include <string>
#include <vector>

#include "tensord/client/examples/gpt2.h"
#include "tensord/client/examples/models.h"

namespace tensord::examples {
namespace {

constexpr int kNewTokens = 16;
// A small model, if no file is given.
constexpr Gpt2Config kSmall = {
    .vocabulary = 1000, .positions = 128, .width = 256, .layers = 4, .heads = 4};

absl::Status Run(const std::string& server, const std::string& model_path) {
  TENSORD_ASSIGN_OR_RETURN(Client client, Client::Connect(server));
  const Device device = client.TryDevice();
  TENSORD_ASSIGN_OR_RETURN(
      const SafetensorsFile file,
      OpenOrCreate(model_path, "gpt2.safetensors", [&]() -> absl::StatusOr<nn::StateDict> {
        Gpt2 random(kSmall);
        TENSORD_RETURN_IF_ERROR(random.To(device));
        return random.ToStateDictOfFile();
      }));
  TENSORD_ASSIGN_OR_RETURN(const Gpt2Config config, Gpt2::ReadConfig(file));
  Gpt2 model(config);
  TENSORD_RETURN_IF_ERROR(model.Load(file, device));
  model.Eval();
  std::cout << model.NumParameters() << " parameters on " << device.name() << "\n";

  const std::vector<int64_t> prompt = {11, 7, 5, 3, 2};
  Tensor tokens = FromVector<int64_t>(device, {1, static_cast<int64_t>(prompt.size())}, prompt);
  Gpt2::Cache cache = model.MakeCache(device, 1);
  std::vector<Tensor> sequence = {tokens};
  // Nothing in this loop waits: the next token stays on the device.
  for (int i = 0; i < kNewTokens; ++i) {
    tokens = Reshape(Argmax(model.Append(tokens, &cache), {.axes = {1}}), {1, 1});
    sequence.push_back(tokens);
  }
  const Tensor all = Concat(sequence, 1);
  std::cout << all << "\n";

  // Without the cache, each position computes all earlier ones again.
  const Tensor logits = model.Forward(all);
  const int64_t begin = static_cast<int64_t>(prompt.size()) - 1;
  const Tensor wanted =
      Argmax(Slice(logits, {begin}, {begin + kNewTokens}, {.axes = {1}}), {.axes = {2}});
  std::cout << "without the cache: ";
  return CheckClose(
      Cast(Slice(all, {begin + 1}, {begin + 1 + kNewTokens}, {.axes = {1}}), DType::kFloat32),
      Cast(wanted, DType::kFloat32), 0);
}

}  // namespace
}  // namespace tensord::examples

int main(int argc, char** argv) {
  return tensord::examples::ModelMain(
      argc, argv,
      "Generates tokens by a model of GPT-2's architecture. MODEL is a safetensors file with "
      "Hugging Face's\nnames; by default, a file with a small model of random weights is made.",
      tensord::examples::Run);
}
