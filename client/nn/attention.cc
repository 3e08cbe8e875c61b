#include "tensord/client/nn/attention.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/elementwise.h"
#include "tensord/client/functional.h"
#include "tensord/client/internal/module.h"
#include "tensord/client/ops.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::nn {
namespace {

struct Heads {
  Tensor q, k, v;  // (N,H,L,E), (N,H,S,E), (N,H,S,E)
};

// Returns one mask for ScaledDotProductAttention that leaves out the keys of both masks. If the
// query has no batch, `batch` is 1.
absl::StatusOr<std::optional<Tensor>> JoinMasks(const AttentionMasks& masks, bool batched,
                                                int64_t batch, int64_t keys, DType dtype) {
  std::optional<Tensor> joined = masks.attention;
  if (masks.key_padding.has_value()) {
    TENSORD_RETURN_IF_ERROR(masks.key_padding->status());
    const Shape shape = batched ? Shape({batch, keys}) : Shape({keys});
    if (masks.key_padding->dtype() != DType::kBool || masks.key_padding->shape() != shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "nn::MultiheadAttention: the mask key_padding is ", masks.key_padding->spec().ToString(),
          ", and must be bool", shape.ToString()));
    }
    const Tensor padding = Reshape(*masks.key_padding, {batch, 1, 1, keys});
    if (!joined.has_value()) {
      joined = padding;
    } else if (joined->dtype() == DType::kBool) {
      joined = LogicalOr(*joined, padding);
    } else {
      joined = Where(padding, -std::numeric_limits<double>::infinity(), *joined);
    }
  }
  if (!joined.has_value()) return joined;
  TENSORD_RETURN_IF_ERROR(joined->status());
  return joined->dtype() == DType::kBool ? LogicalNot(*joined) : Cast(*joined, dtype);
}

// Returns another seed than that of the joint projection. Without a seed, each draws its own.
std::optional<int64_t> SeedOfOutput(const std::optional<int64_t>& seed) {
  if (!seed.has_value()) return std::nullopt;
  return ~*seed;
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads,
                                       const MultiheadAttentionOptions& options)
    : embed_dim_(embed_dim),
      num_heads_(num_heads),
      batch_first_(options.batch_first),
      seed_(options.seed),
      in_proj_weight_{{options.dtype, {3 * embed_dim, embed_dim}}},
      out_proj_(AddModule("out_proj", Linear(embed_dim, embed_dim,
                                             {.bias = options.bias,
                                              .dtype = options.dtype,
                                              .seed = SeedOfOutput(options.seed)}))) {
  if (options.bias) in_proj_bias_ = Parameter{{options.dtype, {3 * embed_dim}}};
  if (options.device.valid()) Initialize(options.device);
}

absl::Status MultiheadAttention::Check(const Tensor& query, const Tensor& key,
                                       const Tensor& value) const {
  TENSORD_RETURN_IF_ERROR(internal::RequireValues(
      *this, {&in_proj_weight_, in_proj_bias_.has_value() ? &*in_proj_bias_ : nullptr}));
  if (num_heads_ < 1 || embed_dim_ % num_heads_ != 0) {
    return absl::InvalidArgumentError(absl::StrCat("nn::MultiheadAttention: embed_dim is ",
                                                   embed_dim_, ", and must be a multiple of the ",
                                                   num_heads_, " heads"));
  }
  const std::pair<absl::string_view, const Tensor*> inputs[] = {
      {"query", &query}, {"key", &key}, {"value", &value}};
  for (const auto& [name, input] : inputs) {
    TENSORD_RETURN_IF_ERROR(input->status());
    const int rank = input->rank();
    if ((rank == 2 || rank == 3) && rank == query.rank() &&
        input->shape().dim(rank - 1) == embed_dim_) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("nn::MultiheadAttention: the ", name, " has shape ", input->shape().ToString(),
                     ", and must be ", batch_first_ ? "(N,L," : "(L,N,", embed_dim_, ") or (L,",
                     embed_dim_, ")"));
  }
  const int batch_axis = batch_first_ ? 0 : 1;
  if (query.rank() == 3 && query.shape().dim(batch_axis) != key.shape().dim(batch_axis)) {
    return absl::InvalidArgumentError(
        absl::StrCat("nn::MultiheadAttention: the query has shape ", query.shape().ToString(),
                     " and the key ", key.shape().ToString(), ", whose batches must be equal"));
  }
  if (key.shape() == value.shape()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("nn::MultiheadAttention: the key has shape ", key.shape().ToString(),
                   " and the value ", value.shape().ToString(), ", which must be equal"));
}

Tensor MultiheadAttention::Attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const AttentionMasks& masks) const {
  if (const absl::Status status = Check(query, key, value); !status.ok()) {
    return Tensor::Failed(status);
  }
  const bool batched = query.rank() == 3;
  const int batch_axis = batch_first_ ? 0 : 1, length_axis = batched && batch_first_ ? 1 : 0;
  const int64_t batch = batched ? query.shape().dim(batch_axis) : 1;
  const int64_t length = query.shape().dim(length_axis), keys = key.shape().dim(length_axis);
  const int64_t size = embed_dim_ / num_heads_;
  // Returns the input, whose length is `count`, as (N,L,embed_dim).
  const auto batch_first = [&](const Tensor& x, int64_t count) {
    if (!batched) return Reshape(x, {1, count, embed_dim_});
    return batch_first_ ? x : Permute(x, {1, 0, 2});
  };
  const std::optional<Tensor> bias =
      in_proj_bias_.has_value() ? std::optional<Tensor>(in_proj_bias_->value) : std::nullopt;

  Heads heads;
  if (query.state() == key.state() && key.state() == value.state()) {
    // One product for all three: (N,L,3·embed_dim) -> (3,N,H,L,E), whose parts are contiguous.
    const Tensor joint = internal::Project(batch_first(query, length), in_proj_weight_.value, bias);
    const Tensor split =
        Permute(Reshape(joint, {batch, length, 3, num_heads_, size}), {2, 0, 3, 1, 4});
    const auto part = [&](int64_t i) {
      return Reshape(Slice(split, {i}, {i + 1}), {batch, num_heads_, length, size});
    };
    heads = {part(0), part(1), part(2)};
  } else {
    // Part `i` of the joint projection: (N,count,embed_dim) -> (N,H,count,E).
    const auto project = [&](const Tensor& x, int64_t count, int64_t i) {
      const int64_t begin = i * embed_dim_, end = begin + embed_dim_;
      std::optional<Tensor> own_bias;
      if (bias.has_value()) own_bias = Slice(*bias, {begin}, {end});
      const Tensor y = internal::Project(batch_first(x, count),
                                         Slice(in_proj_weight_.value, {begin}, {end}), own_bias);
      return Permute(Reshape(y, {batch, count, num_heads_, size}), {0, 2, 1, 3});
    };
    heads = {project(query, length, 0), project(key, keys, 1), project(value, keys, 2)};
  }

  const absl::StatusOr<std::optional<Tensor>> mask =
      JoinMasks(masks, batched, batch, keys, query.dtype());
  if (!mask.ok()) return Tensor::Failed(mask.status());
  const Tensor attended = ScaledDotProductAttention(heads.q, heads.k, heads.v,
                                                    {.mask = *mask, .causal = masks.is_causal});
  const Tensor y =
      out_proj_->Forward(Reshape(Permute(attended, {0, 2, 1, 3}), {batch, length, embed_dim_}));
  if (!batched) return Reshape(y, {length, embed_dim_});
  return batch_first_ ? y : Permute(y, {1, 0, 2});
}

void MultiheadAttention::VisitParameters(const std::string& prefix, const Visitor& visit) {
  visit(prefix + "in_proj_weight", &in_proj_weight_);
  if (in_proj_bias_.has_value()) visit(prefix + "in_proj_bias", &*in_proj_bias_);
  Module::VisitParameters(prefix, visit);
}

void MultiheadAttention::Initialize(const Device& device) {
  internal::Initializer initializer(device, seed_);
  // Xavier-uniform for the joint projection, as in PyTorch.
  initializer.Uniform(
      &in_proj_weight_,
      embed_dim_ > 0 ? std::sqrt(6.0 / (4.0 * static_cast<double>(embed_dim_))) : 0);
  if (in_proj_bias_.has_value()) initializer.Fill(&*in_proj_bias_, 0);
  // As in PyTorch, both biases begin with zeros. The bias of a Linear alone begins otherwise.
  out_proj_->VisitParameters("", [&](const std::string& name, Parameter* parameter) {
    if (name == "bias") initializer.Fill(parameter, 0);
  });
  Module::Initialize(device);
}

}  // namespace tensord::nn
