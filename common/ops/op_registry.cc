#include "tensord/common/ops/op_registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/util/nearest_word.h"

namespace tensord {
namespace {

void AddInputNames(OpSchema& schema) {
  if (!schema.input_names.empty()) return;
  if (schema.max_inputs == 1) schema.input_names = {"x"};
  if (schema.max_inputs == 2) schema.input_names = {"a", "b"};
}

// Hashes the length, the first and the last bytes of a name, which takes less time than absl::Hash.
// The set of ops is fixed, so callers can't make names collide.
struct NameHash {
  size_t operator()(absl::string_view name) const {
    uint32_t first = 0, last = 0;
    if (name.size() >= sizeof(first)) {
      std::memcpy(&first, name.data(), sizeof(first));
      std::memcpy(&last, name.data() + name.size() - sizeof(last), sizeof(last));
    } else {
      for (char c : name) first = first << 8 | static_cast<unsigned char>(c);
    }
    const uint64_t words = uint64_t{first} << 32 | (last + static_cast<uint32_t>(name.size()));
    const uint64_t hash = words * 0x9e3779b97f4a7c15u;  // 2^64 divided by the golden ratio
    return hash ^ hash >> 32;
  }
};

struct Registry {
  std::vector<OpSchema> schemas;
  std::vector<const OpSchema*> by_name_order;
  absl::flat_hash_map<absl::string_view, const OpSchema*, NameHash> by_name;

  Registry() {
    AppendActivationCompositions(schemas);
    AppendAttentionOps(schemas);
    AppendConvOps(schemas);
    AppendCreationOps(schemas);
    AppendElementwiseCompositions(schemas);
    AppendElementwiseOps(schemas);
    AppendIndexingCompositions(schemas);
    AppendIndexingOps(schemas);
    AppendLossCompositions(schemas);
    AppendNormalizationCompositions(schemas);
    AppendGradientScalerCompositions(schemas);
    AppendOptimizerCompositions(schemas);
    AppendRecurrentCompositions(schemas);
    AppendReductionCompositions(schemas);
    AppendShapeCompositions(schemas);
    AppendSpecialCompositions(schemas);
    AppendLossOps(schemas);
    AppendMatmulOps(schemas);
    AppendNetworkOps(schemas);
    AppendOptimizerOps(schemas);
    AppendPoolOps(schemas);
    AppendRandomOps(schemas);
    AppendRecurrentOps(schemas);
    AppendReductionOps(schemas);
    AppendScanOps(schemas);
    AppendShapeOps(schemas);
    AppendSortOps(schemas);
    AppendStridedOps(schemas);
    std::sort(schemas.begin(), schemas.end(),
              [](const OpSchema& a, const OpSchema& b) { return a.name < b.name; });
    for (OpSchema& schema : schemas) {
      AddInputNames(schema);
      if (schema.formula != nullptr) schema.infer = InferComposition;
      by_name_order.push_back(&schema);
      if (!by_name.emplace(schema.name, &schema).second) {
        std::fprintf(stderr, "op registry: \"%s\" is registered twice\n", schema.name.c_str());
        std::abort();
      }
    }
  }
};

const Registry& GetRegistry() {
  static const Registry& registry = *new Registry;  // never destroyed: threads may use it at exit
  return registry;
}

struct Alias {
  absl::string_view name;
  absl::string_view op;
};

// Names of PyTorch and NumPy, and the op that does the same.
constexpr Alias kAliases[] = {
    {"cat", "concat"},
    {"hstack", "concat"},
    {"vstack", "concat"},
    {"view", "reshape"},
    {"ravel", "reshape"},
    {"flatten", "reshape"},
    {"squeeze", "reshape"},
    {"unsqueeze", "reshape"},
    {"expand_dims", "reshape"},
    {"transpose", "permute"},
    {"t", "permute"},
    {"swapaxes", "permute"},
    {"moveaxis", "permute"},
    {"split", "slice"},
    {"chunk", "slice"},
    {"narrow", "slice"},
    {"mm", "matmul"},
    {"mv", "matmul"},
    {"bmm", "matmul"},
    {"dot", "matmul"},
    {"addmm", "linear"},
    {"conv1d", "conv"},
    {"conv2d", "conv"},
    {"conv3d", "conv"},
    {"convolution", "conv"},
    {"conv_transpose1d", "conv_backward_input"},
    {"conv_transpose2d", "conv_backward_input"},
    {"conv_transpose3d", "conv_backward_input"},
    {"scaled_dot_product_attention", "sdpa"},
    {"to", "cast"},
    {"astype", "cast"},
    {"expand", "broadcast_to"},
    {"rand", "uniform"},
    {"randn", "normal"},
    {"empty", "zeros"},
    {"zeros_like", "zeros"},
    {"ones_like", "ones"},
    {"full_like", "full"},
    {"tensor", "constant"},
    {"amax", "max"},
    {"amin", "min"},
    {"subtract", "sub"},
    {"multiply", "mul"},
    {"divide", "div"},
    {"equal", "eq"},
    {"not_equal", "ne"},
    {"less", "lt"},
    {"less_equal", "le"},
    {"greater", "gt"},
    {"greater_equal", "ge"},
    {"vector_norm", "norm"},
    {"swish", "silu"},
    {"clip", "clamp"},
    {"argsort", "sort"},
    {"argwhere", "nonzero"},
    {"index_add", "index_put"},
    {"index_copy", "index_put"},
    {"index_select", "index"},
    {"embedding", "index"},
    {"masked_fill", "where"},
    {"uniform_like", "uniform"},
    {"normal_like", "normal"},
    {"randint_like", "randint"},
};

struct Equivalent {
  absl::string_view name;
  absl::string_view ops;
};

// Names of PyTorch and NumPy that aren't ops here, and the ops that compute the same.
constexpr Equivalent kEquivalents[] = {
    {"repeat", "reshape and broadcast_to"},    {"tile", "reshape and broadcast_to"},
    {"einsum", "permute, reshape and matmul"}, {"outer", "reshape and mul"},
    {"flip", "slice with the step -1"},        {"select", "slice and reshape"},
    {"stack", "reshape and concat"},           {"masked_select", "nonzero and index"},
    {"unique", "sort, ne, nonzero and index"}, {"bernoulli", "uniform and lt"},
    {"exponential", "uniform and log"},        {"randperm", "randint and sort"},
};

}  // namespace

const OpSchema* FindOp(absl::string_view name) {
  const auto& by_name = GetRegistry().by_name;
  const auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

absl::Span<const OpSchema* const> AllOps() { return GetRegistry().by_name_order; }

absl::Status UnknownOp(absl::string_view name) {
  constexpr size_t kMaxComparedLength = 32;
  constexpr size_t kMaxNamed = 3;
  const std::string prefix = absl::StrCat("there is no op ", QuotedForMessage(name));
  std::string lower = absl::AsciiStrToLower(name.substr(0, kMaxComparedLength));
  if (absl::EndsWith(lower, "_")) lower.pop_back();  // PyTorch's name of an op in place
  for (const auto& [word, ops] : kEquivalents) {
    if (lower == word) return absl::NotFoundError(absl::StrCat(prefix, ": compose it of ", ops));
  }
  std::vector<std::string> near;
  for (const auto& [word, op] : kAliases) {
    if (lower == word) near.emplace_back(op);
  }
  if (near.empty() && FindOp(lower) != nullptr) near.push_back(lower);
  if (near.empty()) {
    std::vector<std::string> names;
    for (const OpSchema* op : AllOps()) names.push_back(op->name);
    near = NearestWords(lower, names, kMaxNamed);
  }
  return absl::NotFoundError(
      absl::StrCat(prefix, "; ",
                   near.empty() ? "ListOps and common/OPS.md list all ops"
                                : absl::StrCat("did you mean ", absl::StrJoin(near, " or "), "?")));
}

}  // namespace tensord
