#include "tensord/client/internal/op_table.h"

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/key.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

// The limit of a key. An op with longer attributes (a constant's elements) gets no entry.
constexpr size_t kMaxKeyBytes = 512;

std::string KeyOf(const TensorSpec& spec) {
  std::string key;
  AppendKey(spec.dtype, &key);
  for (int64_t dim : spec.shape.dims()) AppendKey(dim, &key);
  return key;
}

std::string KeyOf(absl::string_view op, absl::Span<const NumberedSpec* const> inputs,
                  const Attributes& attrs) {
  std::string key;
  AppendKeyText(op, &key);
  AppendKey(inputs.size(), &key);
  for (const NumberedSpec* input : inputs) AppendKey(input->number, &key);
  AppendKey(attrs, &key);
  return key;
}

absl::StatusOr<OpTable::Op> Plan(absl::string_view op, absl::Span<const TensorSpec* const> specs,
                                 const Attributes& attrs) {
  absl::InlinedVector<TensorSpec, 3> inputs;
  for (const TensorSpec* spec : specs) inputs.push_back(*spec);
  TENSORD_ASSIGN_OR_RETURN(OpPlan plan, PlanOp(op, inputs, attrs));
  OpTable::Op planned;
  planned.output = std::move(plan.output);
  return planned;
}

}  // namespace

const NumberedSpec* OpTable::Number(const TensorSpec& spec) {
  std::string key = KeyOf(spec);
  const auto found = specs_.find(key);
  if (found != specs_.end()) return &found->second;
  if (specs_.size() >= kMaxSpecs) return nullptr;
  const auto number = static_cast<uint32_t>(specs_.size() + 1);
  return &specs_.emplace(std::move(key), NumberedSpec{spec, number}).first->second;
}

absl::StatusOr<OpTable::Definition> OpTable::Define(absl::string_view op, size_t num_inputs,
                                                    const Attributes& attrs) {
  std::string key = KeyOf(op, {}, attrs);
  AppendKey(num_inputs, &key);
  const auto found = for_programs_.find(key);
  if (found != for_programs_.end()) return Definition{found->second, false};
  if (definitions_ == kMaxDefinitions) {
    return absl::ResourceExhaustedError(
        "this connection has used too many different ops to record more; make a new connection");
  }
  for_programs_.emplace(std::move(key), ++definitions_);
  return Definition{definitions_, true};
}

OpTable::Recent& OpTable::RecentPlace(absl::string_view op,
                                      absl::Span<const NumberedSpec* const> inputs) {
  size_t hash = op.size() * 31 + static_cast<unsigned char>(op.back());
  hash = hash * 31 + static_cast<unsigned char>(op.front());
  for (const NumberedSpec* input : inputs) hash = hash * 31 + input->number;
  return recent_[hash % kRecent];
}

absl::StatusOr<OpTable::Op> OpTable::Find(absl::string_view op,
                                          absl::Span<const NumberedSpec* const> inputs,
                                          absl::Span<const TensorSpec* const> specs,
                                          const Attributes& attrs) {
  bool numbered = !op.empty();
  for (const NumberedSpec* input : inputs) numbered = numbered && input != nullptr;
  if (!numbered) return Plan(op, specs, attrs);
  if (!attrs.empty() || inputs.size() > kRecentInputs) return FindByKey(op, inputs, specs, attrs);

  Recent& recent = RecentPlace(op, inputs);
  bool same = recent.num_inputs == inputs.size() && recent.op == op;
  for (size_t i = 0; same && i < inputs.size(); ++i) same = recent.inputs[i] == inputs[i]->number;
  if (same) return Op{recent.known.output->spec, recent.known.output, recent.known.definition};

  TENSORD_ASSIGN_OR_RETURN(Op found, FindByKey(op, inputs, specs, attrs));
  if (found.definition == 0) return found;
  recent.op = std::string(op);
  recent.num_inputs = inputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) recent.inputs[i] = inputs[i]->number;
  recent.known = {found.numbered_output, found.definition};
  return found;
}

absl::StatusOr<OpTable::Op> OpTable::FindByKey(absl::string_view op,
                                               absl::Span<const NumberedSpec* const> inputs,
                                               absl::Span<const TensorSpec* const> specs,
                                               const Attributes& attrs) {
  std::string key = KeyOf(op, inputs, attrs);
  const auto found = known_.find(key);
  if (found != known_.end() && found->second.definition != 0) {
    return Op{found->second.output->spec, found->second.output, found->second.definition};
  }
  TENSORD_ASSIGN_OR_RETURN(Op planned, Plan(op, specs, attrs));
  planned.numbered_output = Number(planned.output);
  const bool full = definitions_ == kMaxDefinitions || known_.size() >= 4 * kMaxDefinitions;
  if (planned.numbered_output == nullptr || key.size() > kMaxKeyBytes || full) return planned;
  Known& known = known_[std::move(key)];
  const bool again = known.output != nullptr;
  known.output = planned.numbered_output;
  if (attrs.empty() || again) {
    known.definition = planned.definition = ++definitions_;
    planned.is_new = true;
  }
  return planned;
}

}  // namespace tensord::internal
