// Training steps in C++: the PyTorch device beside PyTorch's CPU, in one run. torch_device.py --cpp
// builds it and starts it. The models are those of torch_device.py.
//   usage: torch_training ADDRESS THREADS ROUNDS FILTER
#include <torch/torch.h>
#include <torch_tensord.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace nn = torch::nn;
using torch::Tensor;

struct Network : nn::Module {
  virtual Tensor forward(const Tensor& x) = 0;
};

struct Mlp : Network {
  Mlp()
      : layers(register_module(
            "layers", nn::Sequential(nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 10)))) {}
  Tensor forward(const Tensor& x) override { return layers->forward(x); }
  nn::Sequential layers;
};

nn::Conv2d Conv(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

struct Block : Network {
  Block(int64_t in, int64_t out, int64_t stride)
      : main(register_module(
            "main", nn::Sequential(Conv(in, out, 3, stride), nn::BatchNorm2d(out), nn::ReLU(),
                                   Conv(out, out, 3, 1), nn::BatchNorm2d(out)))) {
    if (stride != 1 || in != out) {
      shortcut = register_module("shortcut",
                                 nn::Sequential(Conv(in, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }
  Tensor forward(const Tensor& x) override {
    return torch::relu(main->forward(x) + (shortcut.is_empty() ? x : shortcut->forward(x)));
  }
  nn::Sequential main, shortcut{nullptr};
};

struct ResNet18 : Network {
  explicit ResNet18(int64_t width)
      : stem(register_module(
            "stem", nn::Sequential(Conv(3, width, 3, 1), nn::BatchNorm2d(width), nn::ReLU()))) {
    int64_t channels = width;
    for (int i = 0; i < 8; ++i) {
      const int64_t out = width << i / 2;
      blocks.push_back(
          register_module("block" + std::to_string(i),
                          std::make_shared<Block>(channels, out, i > 0 && i % 2 == 0 ? 2 : 1)));
      channels = out;
    }
    head = register_module("head", nn::Linear(channels, 10));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = stem->forward(x);
    for (const auto& block : blocks) y = block->forward(y);
    return head->forward(y.mean({2, 3}));
  }
  nn::Sequential stem;
  std::vector<std::shared_ptr<Block>> blocks;
  nn::Linear head{nullptr};
};

struct Transformer : Network {
  Transformer(int64_t width, int64_t heads, int64_t words)
      : embedding(register_module("embedding", nn::Embedding(words, width))),
        encoder(register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                               nn::TransformerEncoderLayerOptions(width, heads)
                                                   .dim_feedforward(4 * width)
                                                   .dropout(0),
                                               4)))),
        head(register_module("head", nn::Linear(width, words))) {}
  Tensor forward(const Tensor& x) override {
    return head->forward(encoder->forward(embedding->forward(x))).transpose(1, 2);
  }
  nn::Embedding embedding;
  nn::TransformerEncoder encoder;
  nn::Linear head;
};

// A cell in a loop of the program.
struct Cells : Network {
  Cells(int64_t features, int64_t width)
      : cell(register_module("cell", nn::RNNCell(features, width))),
        head(register_module("head", nn::Linear(width, 10))) {}
  Tensor forward(const Tensor& x) override {
    Tensor state = torch::zeros({x.size(1), cell->options.hidden_size()}, x.device());
    for (const Tensor& step : x.unbind()) state = cell->forward(step, state);
    return head->forward(state);
  }
  nn::RNNCell cell;
  nn::Linear head;
};

template <typename Layer>
struct Layers : Network {
  Layers(int64_t features, int64_t width)
      : layer(register_module("layer", Layer(features, width))),
        head(register_module("head", nn::Linear(width, 10))) {}
  Tensor forward(const Tensor& x) override {
    return head->forward(std::get<0>(layer->forward(x))[-1]);
  }
  Layer layer;
  nn::Linear head;
};

using Parameters = std::vector<Tensor>;
using Optimizer = std::shared_ptr<torch::optim::Optimizer>;
Optimizer Sgd(const Parameters& parameters) {
  return std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.01));
}
Optimizer Momentum(const Parameters& parameters) {
  return std::make_shared<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.01).momentum(0.9));
}
Optimizer Adam(const Parameters& parameters) {
  return std::make_shared<torch::optim::Adam>(parameters);
}
Optimizer AdamW(const Parameters& parameters) {
  return std::make_shared<torch::optim::AdamW>(parameters);
}

using Data = std::pair<Tensor, Tensor>;
Data Values(c10::IntArrayRef shape, int64_t batch) {
  return {torch::randn(shape), torch::randint(10, {batch})};
}
Data Tokens(int64_t length, int64_t batch, int64_t words) {
  return {torch::randint(words, {length, batch}), torch::randint(words, {length, batch})};
}

struct Case {
  const char* name;
  std::function<std::shared_ptr<Network>()> model;
  std::function<Data()> data;
  Optimizer (*optimizer)(const Parameters&);
  int steps;  // of a round
};

template <typename Model, typename... Arguments>
std::function<std::shared_ptr<Network>()> Make(Arguments... arguments) {
  return [=] { return std::make_shared<Model>(arguments...); };
}

std::vector<Case> Cases() {
  const auto images = [](int64_t batch) { return [=] { return Values({batch, 784}, batch); }; };
  const auto pictures = [](int64_t n) { return [=] { return Values({n, 3, 32, 32}, n); }; };
  const auto sequence = [](int64_t batch, int64_t features) {
    return [=] { return Values({32, batch, features}, batch); };
  };
  const auto tokens = [](int64_t length, int64_t batch, int64_t words) {
    return [=] { return Tokens(length, batch, words); };
  };
  return {
      {"MLP 784-256-10, batch 8, SGD", Make<Mlp>(), images(8), Sgd, 50},
      {"MLP, batch 8, Adam", Make<Mlp>(), images(8), Adam, 50},
      {"ResNet-18, width 8, batch 1, SGD momentum", Make<ResNet18>(8), pictures(1), Momentum, 5},
      {"Transformer, 4 layers of 32, batch 2x16, AdamW", Make<Transformer>(32, 4, 100),
       tokens(16, 2, 100), AdamW, 8},
      {"RNN, 32 steps of 32, batch 4, SGD", Make<Cells>(16, 32), sequence(4, 16), Sgd, 20},
      {"LSTM, 32 steps of 32, batch 4, SGD", Make<Layers<nn::LSTM>>(16, 32), sequence(4, 16), Sgd,
       10},
      {"GRU, 32 steps of 32, batch 4, SGD", Make<Layers<nn::GRU>>(16, 32), sequence(4, 16), Sgd,
       10},
      {"MLP 784-256-10, batch 256, SGD", Make<Mlp>(), images(256), Sgd, 20},
      {"MLP, batch 256, Adam", Make<Mlp>(), images(256), Adam, 20},
      {"ResNet-18, width 32, batch 16, SGD momentum", Make<ResNet18>(32), pictures(16), Momentum,
       1},
      {"Transformer, 4 layers of 256, batch 8x64, AdamW", Make<Transformer>(256, 8, 1000),
       tokens(64, 8, 1000), AdamW, 1},
      {"RNN, 32 steps of 256, batch 64, SGD", Make<Cells>(128, 256), sequence(64, 128), Sgd, 3},
      {"LSTM, 32 steps of 256, batch 64, SGD", Make<Layers<nn::LSTM>>(128, 256), sequence(64, 128),
       Sgd, 1},
      {"GRU, 32 steps of 256, batch 64, SGD", Make<Layers<nn::GRU>>(128, 256), sequence(64, 128),
       Sgd, 1},
  };
}

class Training {
 public:
  Training(const Case& given, torch::Device device) : steps_(given.steps), model_(given.model()) {
    torch::manual_seed(0);
    model_->to(device);
    const auto [x, y] = given.data();
    x_ = x.to(device);
    y_ = y.to(device);
    optimizer_ = given.optimizer(model_->parameters());
  }

  // Returns the seconds for a step.
  double Run() {
    const auto start = std::chrono::steady_clock::now();
    Tensor loss;
    for (int i = 0; i < steps_; ++i) {
      optimizer_->zero_grad();
      loss = nn::functional::cross_entropy(model_->forward(x_), y_);
      loss.backward();
      optimizer_->step();
    }
    // Waits for the last step, too: it reads a parameter.
    TORCH_CHECK(model_->parameters().back().sum().isfinite().item<bool>());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return seconds.count() / steps_;
  }

 private:
  const int steps_;
  const std::shared_ptr<Network> model_;
  Tensor x_, y_;
  Optimizer optimizer_;
};

}  // namespace

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 5, "usage: torch_training ADDRESS THREADS ROUNDS FILTER");
  torch_tensord::Connect(argv[1]);
  torch::set_num_threads(std::atoi(argv[2]));
  const int rounds = std::atoi(argv[3]);
  const std::regex filter(argv[4]);
  for (const Case& each : Cases()) {
    if (!std::regex_search(each.name, filter)) continue;
    Training cpu(each, torch::kCPU), ours(each, torch::Device("tensord:0"));
    double best[2] = {std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
    for (int i = 0; i < rounds + 2; ++i) {
      const double seconds[2] = {cpu.Run(), ours.Run()};
      for (int k = 0; k < 2 && i >= 2; ++k) best[k] = std::min(best[k], seconds[k]);
    }
    std::printf("| %s, C++ | eager | %.0f | %.0f | %.2f |\n", each.name, 1e6 * best[0],
                1e6 * best[1], best[0] / best[1]);
    std::fflush(stdout);
  }
}
