// Generates tokens with a model of the shape of GPT-2, and a cache of keys and values. The weights
// are random, so the tokens mean nothing; they are the same on each device.
//   usage: generate [DEVICE] [LAYERS WIDTH HEADS VOCABULARY TOKENS]      default: tensord:0 12 768 12 50257 32
#include <torch/torch.h>
#include <torch_tensord.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

struct Sizes {
  int64_t layers = 12, width = 768, heads = 12, vocabulary = 50257, tokens = 32, positions = 1024;
};

using torch::nn::Linear;
using torch::nn::LinearOptions;

// The keys and values of one layer: [1, heads, positions so far, width / heads].
struct Cache {
  torch::Tensor k, v;
};

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(const Sizes& sizes)
      : heads(sizes.heads),
        norm1(register_module("norm1",
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})))),
        norm2(register_module("norm2",
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})))),
        qkv(register_module("qkv", Linear(sizes.width, 3 * sizes.width))),
        out(register_module("out", Linear(sizes.width, sizes.width))),
        up(register_module("up", Linear(sizes.width, 4 * sizes.width))),
        down(register_module("down", Linear(4 * sizes.width, sizes.width))) {}

  // x is [1, length, width]. Adds its keys and values to the cache.
  torch::Tensor forward(const torch::Tensor& x, Cache& cache) {
    const int64_t length = x.size(1), width = x.size(2);
    std::vector<torch::Tensor> parts = qkv->forward(norm1->forward(x)).split(width, 2);
    for (torch::Tensor& part : parts) {
      part = part.view({1, length, heads, width / heads}).transpose(1, 2);
    }
    cache.k = cache.k.defined() ? torch::cat({cache.k, parts[1]}, 2) : parts[1];
    cache.v = cache.v.defined() ? torch::cat({cache.v, parts[2]}, 2) : parts[2];
    const torch::Tensor attended = torch::scaled_dot_product_attention(
        parts[0], cache.k, cache.v, /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/length > 1);
    const torch::Tensor y = x + out->forward(attended.transpose(1, 2).reshape({1, length, width}));
    return y + down->forward(torch::gelu(up->forward(norm2->forward(y)), "tanh"));
  }

  int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  Linear qkv, out, up, down;
};
TORCH_MODULE(Layer);

struct ModelImpl : torch::nn::Module {
  explicit ModelImpl(const Sizes& sizes)
      : tokens(register_module("tokens", torch::nn::Embedding(sizes.vocabulary, sizes.width))),
        positions(register_module("positions", torch::nn::Embedding(sizes.positions, sizes.width))),
        norm(register_module("norm",
                             torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})))) {
    for (int64_t i = 0; i < sizes.layers; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), Layer(sizes)));
    }
  }

  // Returns the scores of the token after the last one, [1, vocabulary].
  torch::Tensor forward(const torch::Tensor& given, int64_t start, std::vector<Cache>& caches) {
    const torch::Tensor at = torch::arange(start, start + given.size(1), given.device());
    torch::Tensor x = tokens->forward(given) + positions->forward(at);
    for (size_t i = 0; i < layers.size(); ++i) x = layers[i]->forward(x, caches[i]);
    return torch::linear(norm->forward(x.select(1, -1)), tokens->weight);
  }

  torch::nn::Embedding tokens, positions;
  torch::nn::LayerNorm norm;
  std::vector<Layer> layers;
};
TORCH_MODULE(Model);

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  int64_t* const given[] = {&sizes.layers, &sizes.width, &sizes.heads, &sizes.vocabulary,
                            &sizes.tokens};
  for (int i = 2; i < argc && i < 7; ++i) *given[i - 2] = std::atoll(argv[i]);
  const torch::Device device(argc > 1 ? argv[1] : "tensord:0");

  torch::manual_seed(0);
  Model model(sizes);
  model->eval();
  model->to(device);
  const c10::InferenceMode inference;
  std::vector<Cache> caches(static_cast<size_t>(sizes.layers));
  torch::Tensor input = torch::arange(8).remainder(sizes.vocabulary).view({1, 8}).to(device);
  int64_t start = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < sizes.tokens; ++i) {
    const torch::Tensor next = model->forward(input, start, caches).argmax(-1);
    start += input.size(1);
    input = next.view({1, 1});
    std::printf("%lld ", static_cast<long long>(next.item<int64_t>()));  // waits
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("\n%.1f tokens per second\n", static_cast<double>(sizes.tokens) / seconds.count());
}
