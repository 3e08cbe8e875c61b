// Exchanges models with Python. Loads a module that Python exported (torch.jit), and a state_dict
// of torch.nn.Linear(3, 2) that Python saved. Trains the layer for one step, and saves its
// state_dict for torch.load().
//   usage: exchange MODULE STATE NEW_STATE [DEVICE]       DEVICE: tensord:0
#include <torch/script.h>
#include <torch/torch.h>
#include <torch_tensord.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// Reads a state_dict into the module's parameters and buffers, wherever they are.
void LoadState(const std::string& path, torch::nn::Module& module) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const c10::impl::GenericDict state = torch::pickle_load(bytes).toGenericDict();
  const torch::NoGradGuard no_grad;
  const auto copy = [&](const auto& own) {
    for (const auto& each : own) each.value().copy_(state.at(each.key()).toTensor());
  };
  copy(module.named_parameters());
  copy(module.named_buffers());
}

void SaveState(const torch::nn::Module& module, const std::string& path) {
  c10::Dict<std::string, torch::Tensor> state;
  for (const auto& each : module.named_parameters()) {
    state.insert(each.key(), each.value().detach().cpu());
  }
  for (const auto& each : module.named_buffers()) state.insert(each.key(), each.value().cpu());
  const std::vector<char> bytes = torch::pickle_save(state);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TORCH_CHECK(file, "can't write ", path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: exchange MODULE STATE NEW_STATE [DEVICE]\n");
    return 2;
  }
  const torch::Device device(argc > 4 ? argv[4] : "tensord:0");
  torch::jit::Module exported = torch::jit::load(argv[1], device);
  const torch::Tensor x = torch::ones({2, 3}, device);
  std::cout << exported.forward({x}).toTensor().cpu() << '\n';

  torch::nn::Linear layer(3, 2);
  layer->to(device);
  LoadState(argv[2], *layer);
  torch::optim::SGD optimizer(layer->parameters(), torch::optim::SGDOptions(0.5));
  layer->forward(x).sum().backward();
  optimizer.step();
  SaveState(*layer, argv[3]);
}
