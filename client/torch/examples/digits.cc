// Trains a small convolutional network on handwritten digits, and saves a checkpoint after each
// epoch. If the server is lost, continues from the checkpoint on the next one.
//   usage: digits DATA CHECKPOINT SERVER [SERVER…]       DATA: tests/data/digits.safetensors
#include <torch/torch.h>
#include <torch_tensord.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr int64_t kTraining = 1200, kBatch = 100;
constexpr int kEpochs = 6;

struct Digits {
  torch::Tensor images, labels;
};

// Reads the images, 8 by 8 pixels from 0 to 1, and the digits. The file has the size of a header,
// the header, the images and the labels, as bytes.
Digits ReadDigits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  file.seekg(static_cast<std::streamoff>(header), std::ios::cur);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const int64_t count = static_cast<int64_t>(bytes.size()) / 65;
  TORCH_CHECK(file && count > kTraining, "can't read the digits in ", path);
  const torch::Tensor all = torch::from_blob(bytes.data(), {count * 65}, torch::kByte);
  return {all.slice(0, 0, count * 64).view({count, 1, 8, 8}).to(torch::kFloat),
          all.slice(0, count * 64).to(torch::kLong)};
}

struct Training {
  torch::nn::Sequential model{torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
                              torch::nn::BatchNorm2d(16),
                              torch::nn::ReLU(),
                              torch::nn::MaxPool2d(2),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)),
                              torch::nn::ReLU(),
                              torch::nn::Flatten(),
                              torch::nn::Linear(32 * 16, 10)};
  torch::optim::Adam optimizer{model->parameters(), torch::optim::AdamOptions(2e-3)};
  int epoch = 0;

  void Save(const std::string& path) {
    torch::serialize::OutputArchive archive, model_part, optimizer_part;
    model->save(model_part);
    optimizer.save(optimizer_part);
    archive.write("model", model_part);
    archive.write("optimizer", optimizer_part);
    archive.write("epoch", torch::tensor(epoch));
    archive.save_to(path + ".new");
    std::filesystem::rename(path + ".new", path);  // the old or the new file is there and complete
  }
  void Load(const std::string& path, torch::Device device) {
    torch::serialize::InputArchive archive, model_part, optimizer_part;
    archive.load_from(path, device);
    archive.read("model", model_part);
    archive.read("optimizer", optimizer_part);
    model->load(model_part);
    optimizer.load(optimizer_part);
    torch::Tensor saved;
    archive.read("epoch", saved);
    epoch = saved.item<int>();
    std::printf("continues with epoch %d\n", epoch);
  }
};

void TrainEpoch(Training& training, const Digits& digits, torch::Device device) {
  training.model->train();
  torch::Tensor total = torch::zeros({}, device);
  const torch::Tensor order = torch::randperm(kTraining);
  for (int64_t i = 0; i < kTraining; i += kBatch) {
    const torch::Tensor rows = order.slice(0, i, i + kBatch);
    const torch::Tensor x = digits.images.index({rows}).to(device);
    const torch::Tensor y = digits.labels.index({rows}).to(device);
    torch::Tensor loss = torch::nn::functional::cross_entropy(training.model->forward(x), y);
    training.optimizer.zero_grad();
    loss.backward();
    training.optimizer.step();
    total += loss.detach();
  }
  std::printf("epoch %d: loss %.4f\n", training.epoch,
              total.item<float>() * kBatch / kTraining);  // waits for the epoch
  std::fflush(stdout);
  ++training.epoch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: digits DATA CHECKPOINT SERVER [SERVER...]\n");
    return 2;
  }
  const std::string checkpoint = argv[2];
  std::vector<std::string> servers(argv + 3, argv + argc);
  const Digits digits = ReadDigits(argv[1]);
  torch::manual_seed(0);
  // If a server is gone for ten seconds, it is lost.
  const torch_tensord::Options options = {{"reconnect_timeout", "10"}};
  torch_tensord::Connect(servers[0], options);
  const torch::Device device("tensord:0");

  Training training;
  training.model->to(device);
  size_t server = 0;
  if (std::filesystem::exists(checkpoint)) {
    training.Load(checkpoint, device);
  } else {
    training.Save(checkpoint);
  }
  bool lost = false;
  while (training.epoch < kEpochs) {
    try {
      if (lost) {
        torch_tensord::Resume(servers[server], options);
        training.Load(checkpoint, device);
        lost = false;
      }
      TrainEpoch(training, digits, device);
      training.Save(checkpoint);
    } catch (const c10::AcceleratorError& error) {
      std::printf("lost the server: %s\n", error.what_without_backtrace());
      if (++server == servers.size()) throw;
      lost = true;
    }
  }

  training.model->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = digits.images.slice(0, kTraining).to(device);
  const torch::Tensor guessed = training.model->forward(x).argmax(1).cpu();
  const torch::Tensor right = guessed.eq(digits.labels.slice(0, kTraining)).sum();
  std::printf("%d of %d test digits are right\n", right.item<int>(),
              static_cast<int>(guessed.size(0)));
}
