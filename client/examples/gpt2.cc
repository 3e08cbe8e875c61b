#include "tensord/client/examples/gpt2.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::examples {
namespace {

constexpr int64_t kHeadSize = 64;

// Returns whether a file has this parameter transposed: it is the weight of a linear layer.
bool IsTransposed(const std::string& name) {
  return absl::StartsWith(name, "h.") && absl::StrContains(name, ".c_") &&
         absl::EndsWith(name, ".weight");
}

}  // namespace

Gpt2Attention::Gpt2Attention(const Gpt2Config& config) : config_(config) {
  c_attn_ = AddModule("c_attn", nn::Linear(config.width, 3 * config.width));
  c_proj_ = AddModule("c_proj", nn::Linear(config.width, config.width));
}

Tensor Gpt2Attention::Attend(const Tensor& x, int64_t begin, KeyValues* cache) const {
  if (!x.ok()) return x;
  const int64_t batch = x.shape().dim(0), length = x.shape().dim(1);
  const int64_t heads = config_.heads, size = config_.width / heads;
  // (N,L,3·width) -> (3,N,heads,L,size), whose parts are contiguous.
  const Tensor joint =
      Permute(Reshape(c_attn_->Forward(x), {batch, length, 3, heads, size}), {2, 0, 3, 1, 4});
  const Shape shape = {batch, heads, length, size};
  const auto part = [&](int64_t i) { return Reshape(Slice(joint, {i}, {i + 1}), shape); };
  const Tensor q = part(0);
  Tensor k = part(1), v = part(2);
  std::optional<Tensor> mask;
  if (cache != nullptr) {
    const int64_t positions = config_.positions, end = begin + length;
    const int64_t strides[] = {heads * positions * size, positions * size, size, 1};
    const auto append = [&](Tensor* all, const Tensor& part) {
      *all = AsStridedScatter(*all, part, shape, strides, {.offset = begin * size, .donate = true});
      return Slice(*all, {0}, {end}, {.axes = {2}});
    };
    k = append(&cache->keys, k);
    v = append(&cache->values, v);
    if (begin > 0 && length > 1) {
      mask = Ge(Reshape(Arange(x.device(), begin, end), {length, 1}), Arange(x.device(), end));
    }
  }
  // If there are no earlier positions, the mask is the causal one.
  const Tensor y = ScaledDotProductAttention(q, k, v, {.mask = mask, .causal = begin == 0});
  return c_proj_->Forward(Reshape(Permute(y, {0, 2, 1, 3}), {batch, length, config_.width}));
}

Gpt2Block::Gpt2Block(const Gpt2Config& config) {
  ln_1_ = AddModule("ln_1", nn::LayerNorm({config.width}));
  attn_ = AddModule("attn", Gpt2Attention(config));
  ln_2_ = AddModule("ln_2", nn::LayerNorm({config.width}));
  c_fc_ = AddModule("mlp.c_fc", nn::Linear(config.width, 4 * config.width,
                                           {.activation = Activation::kGeluTanh}));
  c_proj_ = AddModule("mlp.c_proj", nn::Linear(4 * config.width, config.width));
}

Tensor Gpt2Block::Transform(const Tensor& x, int64_t begin, KeyValues* cache) const {
  const Tensor y = x + attn_->Attend(ln_1_->Forward(x), begin, cache);
  return y + c_proj_->Forward(c_fc_->Forward(ln_2_->Forward(y)));
}

Gpt2::Gpt2(const Gpt2Config& config) : config_(config) {
  wte_ = AddModule("wte", nn::Embedding(config.vocabulary, config.width));
  wpe_ = AddModule("wpe", nn::Embedding(config.positions, config.width));
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(AddModule(absl::StrCat("h.", i), Gpt2Block(config)));
  }
  ln_f_ = AddModule("ln_f", nn::LayerNorm({config.width}));
}

Gpt2::Cache Gpt2::MakeCache(const Device& device, int64_t batch) const {
  const Shape shape = {batch, config_.heads, config_.positions, config_.width / config_.heads};
  Cache cache;
  for (int64_t i = 0; i < config_.layers; ++i) {
    cache.layers.push_back({Zeros(device, shape), Zeros(device, shape)});
  }
  return cache;
}

Tensor Gpt2::Hidden(const Tensor& tokens, Cache* cache) const {
  if (!tokens.ok()) return tokens;
  const int64_t begin = cache == nullptr ? 0 : cache->length;
  const int64_t end = begin + (tokens.rank() == 2 ? tokens.shape().dim(1) : 0);
  if (tokens.rank() != 2 || end > config_.positions) {
    return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(
        "the tokens have shape ", tokens.shape().ToString(), " after ", begin,
        " earlier ones: they must be (N,L), and at most ", config_.positions, " in all")));
  }
  Tensor x = wte_->Forward(tokens) + Slice(wpe_->weight(), {begin}, {end});
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i]->Transform(x, begin, cache == nullptr ? nullptr : &cache->layers[i]);
  }
  if (cache != nullptr) cache->length = end;
  return x;
}

Tensor Gpt2::Forward(const Tensor& tokens) const {
  return Linear(ln_f_->Forward(Hidden(tokens, nullptr)), wte_->weight());
}

Tensor Gpt2::Append(const Tensor& tokens, Cache* cache) const {
  const Tensor x = Hidden(tokens, cache);
  if (!x.ok()) return x;
  const int64_t batch = x.shape().dim(0), length = x.shape().dim(1);
  const Tensor last = Slice(x, {length - 1}, {length}, {.axes = {1}});
  return Linear(ln_f_->Forward(Reshape(last, {batch, config_.width})), wte_->weight());
}

absl::Status Gpt2::Load(const SafetensorsFile& file, const Device& device) {
  nn::StateDict state;
  for (const auto& [name, parameter] : Parameters()) {
    TENSORD_ASSIGN_OR_RETURN(const Tensor value, file.Load(device, name));
    state[name] = IsTransposed(name) ? Transpose(value) : value;
  }
  return LoadStateDict(state);
}

absl::StatusOr<Gpt2Config> Gpt2::ReadConfig(const SafetensorsFile& file) {
  Gpt2Config config;
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec wte, file.spec("wte.weight"));
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec wpe, file.spec("wpe.weight"));
  if (wte.shape.rank() != 2 || wpe.shape.rank() != 2 || wte.shape.dim(1) % kHeadSize != 0) {
    return absl::InvalidArgumentError(absl::StrCat("wte.weight is ", wte.ToString(),
                                                   " and wpe.weight ", wpe.ToString(),
                                                   ": this is no model of GPT-2's architecture"));
  }
  config.vocabulary = wte.shape.dim(0);
  config.positions = wpe.shape.dim(0);
  config.width = wte.shape.dim(1);
  config.heads = config.width / kHeadSize;
  config.layers = 0;
  while (file.contains(absl::StrCat("h.", config.layers, ".ln_1.weight"))) ++config.layers;
  return config;
}

nn::StateDict Gpt2::ToStateDictOfFile() const {
  nn::StateDict state = GetStateDict();
  for (auto& [name, value] : state) {
    if (IsTransposed(name)) value = Transpose(value);
  }
  return state;
}

}  // namespace tensord::examples
