// A language model of GPT-2's architecture, with Hugging Face's names of parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tensord/client/tensord.h"

namespace tensord::examples {

// The defaults are those of GPT-2 small.
struct Gpt2Config {
  int64_t vocabulary = 50257;
  int64_t positions = 1024;
  int64_t width = 768;
  int64_t layers = 12;
  int64_t heads = 12;
};

// The keys and values of one layer: (N,heads,positions,width/heads), of which the first ones are
// set.
struct KeyValues {
  Tensor keys, values;
};

class Gpt2Attention : public nn::Module {
 public:
  explicit Gpt2Attention(const Gpt2Config& config);

  Tensor Forward(const Tensor& x) const override { return Attend(x, 0, nullptr); }
  // x (N,L,width) has the positions from `begin` on. If `cache` isn't null, writes their keys and
  // values into it, in place, and also attends to the positions before `begin`.
  Tensor Attend(const Tensor& x, int64_t begin, KeyValues* cache) const;

 private:
  Gpt2Config config_;
  std::shared_ptr<nn::Linear> c_attn_, c_proj_;
};

class Gpt2Block : public nn::Module {
 public:
  explicit Gpt2Block(const Gpt2Config& config);

  Tensor Forward(const Tensor& x) const override { return Transform(x, 0, nullptr); }
  // Applies the block. The parameters mean the same as those of Gpt2Attention::Attend.
  Tensor Transform(const Tensor& x, int64_t begin, KeyValues* cache) const;

 private:
  std::shared_ptr<nn::LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<Gpt2Attention> attn_;
  std::shared_ptr<nn::Linear> c_fc_, c_proj_;
};

class Gpt2 : public nn::Module {
 public:
  explicit Gpt2(const Gpt2Config& config);

  // The keys and values of the positions of a sequence that were computed so far.
  struct Cache {
    std::vector<KeyValues> layers;
    int64_t length = 0;  // the number of positions that are set
  };
  Cache MakeCache(const Device& device, int64_t batch) const;

  // Returns the logits of the token after each position: int64 (N,L) -> (N,L,vocabulary).
  Tensor Forward(const Tensor& tokens) const override;
  // Returns the logits after the last token: (N,vocabulary).
  Tensor Logits(const Tensor& tokens) const { return Append(tokens, nullptr); }
  // Appends `tokens` (N,L) to the sequence. `cache` may be null. Returns the logits after the last
  // one: (N,vocabulary).
  Tensor Append(const Tensor& tokens, Cache* cache) const;

  // Loads the parameters from a file. Hugging Face stores the weights of linear layers transposed.
  absl::Status Load(const SafetensorsFile& file, const Device& device);
  // Returns the configuration of the model in a file. It assumes heads of 64 elements.
  static absl::StatusOr<Gpt2Config> ReadConfig(const SafetensorsFile& file);
  // Returns the parameters as Load expects them.
  nn::StateDict ToStateDictOfFile() const;

 private:
  Tensor Hidden(const Tensor& tokens, Cache* cache) const;

  Gpt2Config config_;
  std::shared_ptr<nn::Embedding> wte_, wpe_;
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  std::shared_ptr<nn::LayerNorm> ln_f_;
};

}  // namespace tensord::examples
