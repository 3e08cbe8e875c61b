#include "tensord/common/ops/op_registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/util/nearest_word.h"

namespace tensord {
namespace {

struct Registry {
  std::vector<OpSchema> schemas;
  std::vector<const OpSchema*> by_name_order;
  absl::flat_hash_map<absl::string_view, const OpSchema*> by_name;

  Registry() {
    AppendCreationOps(schemas);
    AppendElementwiseOps(schemas);
    AppendMatmulOps(schemas);
    AppendReductionOps(schemas);
    AppendScanOps(schemas);
    AppendShapeOps(schemas);
    std::sort(schemas.begin(), schemas.end(),
              [](const OpSchema& a, const OpSchema& b) { return a.name < b.name; });
    for (const OpSchema& schema : schemas) {
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

// Names of PyTorch and NumPy, and our ops for them. Listed if the spelling is too different for
// EditDistance to find the op.
constexpr std::pair<absl::string_view, absl::string_view> kAliases[] = {
    {"cat", "concat"},       {"stack", "concat"},      {"view", "reshape"},
    {"flatten", "reshape"},  {"transpose", "permute"}, {"t", "permute"},
    {"mm", "matmul"},        {"bmm", "matmul"},        {"dot", "matmul"},
    {"to", "cast"},          {"astype", "cast"},       {"expand", "broadcast_to"},
    {"rand", "uniform"},     {"randn", "normal"},      {"amax", "max"},
    {"amin", "min"},         {"subtract", "sub"},      {"multiply", "mul"},
    {"divide", "div"},       {"equal", "eq"},          {"not_equal", "ne"},
    {"less", "lt"},          {"less_equal", "le"},     {"greater", "gt"},
    {"greater_equal", "ge"}, {"addmm", "linear"},      {"vector_norm", "norm"},
    {"swish", "silu"},       {"tensor", "constant"},   {"var", "var_mean"},
    {"std", "var_mean"},     {"all", "count_nonzero"}, {"any", "count_nonzero"},
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
  const std::string lower = absl::AsciiStrToLower(name.substr(0, kMaxComparedLength));
  std::vector<std::string> near;
  for (const auto& [word, op] : kAliases) {
    if (lower == word) near.emplace_back(op);
  }
  std::vector<std::string> names;
  for (const OpSchema* op : AllOps()) names.push_back(op->name);
  for (const std::string& candidate : NearestWords(lower, names, kMaxNamed)) {
    if (near.size() < kMaxNamed && std::find(near.begin(), near.end(), candidate) == near.end()) {
      near.push_back(candidate);
    }
  }
  const std::string advice = near.empty()
                                 ? "ListOps lists all ops"
                                 : absl::StrCat("did you mean ", absl::StrJoin(near, " or "), "?");
  return absl::NotFoundError(absl::StrCat("there is no op ", QuotedForMessage(name), "; ", advice));
}

}  // namespace tensord
