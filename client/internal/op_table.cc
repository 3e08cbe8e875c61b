#include "tensord/client/internal/op_table.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/key.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

// Mixes 64 bits into a hash. The multiplier is that of Fibonacci hashing, 2^64 divided by the
// golden ratio.
class Hasher {
 public:
  void Add(uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 32;
  }
  // Adds a few bytes of the text. Entry::Is() compares all of it.
  void AddText(absl::string_view text) {
    uint64_t bytes = text.size();
    for (size_t i = 0; i < std::min<size_t>(text.size(), 6); ++i) {
      bytes = bytes << 8 | static_cast<unsigned char>(text[i]);
    }
    Add(bytes);
  }
  void AddSpec(const TensorSpec& spec) {
    Add(static_cast<uint64_t>(spec.dtype) << 8 | static_cast<uint64_t>(spec.shape.rank()));
    for (int64_t dim : spec.shape.dims()) Add(static_cast<uint64_t>(dim));
  }
  void AddAttr(const AttrValue& value) {
    struct Visitor {
      Hasher* hasher;
      void operator()(bool v) const { hasher->Add(v ? 1 : 0); }
      void operator()(int64_t v) const { hasher->Add(static_cast<uint64_t>(v)); }
      void operator()(double v) const { hasher->Add(__builtin_bit_cast(uint64_t, v)); }
      void operator()(const std::string& v) const { hasher->AddText(v); }
      void operator()(const Bytes& v) const { hasher->Add(v.data.size()); }
      void operator()(DType v) const { hasher->Add(static_cast<uint64_t>(v)); }
      void operator()(const std::vector<int64_t>& v) const {
        for (int64_t item : v) hasher->Add(static_cast<uint64_t>(item));
      }
    };
    std::visit(Visitor{this}, value);
  }

  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

uint64_t HashOf(const OpCall& call) {
  Hasher hasher;
  hasher.AddText(call.op);
  for (const TensorSpec* input : call.inputs) hasher.AddSpec(*input);
  for (const auto& [name, value] : *call.attrs) {
    hasher.AddText(name);
    hasher.AddAttr(value);
  }
  hasher.Add(uint64_t{call.scalars} << 32 | call.donate);
  if (call.device != nullptr) hasher.Add(static_cast<uint64_t>(call.device->index));
  return hasher.hash();
}

bool HasBytes(const Attributes& attrs) {
  return std::any_of(attrs.begin(), attrs.end(),
                     [](const auto& attr) { return std::holds_alternative<Bytes>(attr.second); });
}

}  // namespace

bool IsWordAttr(const AttrValue& value) {
  constexpr size_t kMaxInts = 64;  // the limit of v1::Batch
  const auto* ints = std::get_if<std::vector<int64_t>>(&value);
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value) ||
         (ints != nullptr && ints->size() <= kMaxInts);
}

bool OpTable::Entry::Is(const OpCall& call, uint64_t call_hash) const {
  if (hash != call_hash || op != call.op || inputs.size() != call.inputs.size() ||
      scalars != call.scalars || donate != call.donate) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != *call.inputs[i]) return false;
  }
  return attrs == *call.attrs && (call.device == nullptr || device == *call.device);
}

absl::StatusOr<OpTable::PlannedOp> OpTable::Find(const OpCall& call) {
  const uint64_t hash = HashOf(call);
  std::unique_ptr<Entry>& place = entries_[hash % kEntries];
  if (place == nullptr || !place->Is(call, hash)) {
    absl::InlinedVector<TensorSpec, 2> inputs;
    for (const TensorSpec* input : call.inputs) inputs.push_back(*input);
    TENSORD_ASSIGN_OR_RETURN(OpPlan plan, PlanOp(call.op, inputs, *call.attrs));
    for (const TensorSpec& output : plan.outputs) {
      TENSORD_RETURN_IF_ERROR(support_.Check(call.op, output.dtype));
    }
    if (HasBytes(*call.attrs)) {  // these attributes are too large for an entry
      unkept_outputs_ = std::move(plan.outputs);
      return PlannedOp{unkept_outputs_, {}};
    }
    if (place == nullptr) place = std::make_unique<Entry>();
    *place = {.hash = hash,
              .op = std::string(call.op),
              .inputs = std::move(inputs),
              .attrs = *call.attrs,
              .scalars = call.scalars,
              .donate = call.donate,
              .device = call.device == nullptr ? DeviceName() : *call.device,
              .outputs = std::move(plan.outputs)};
  }
  PlannedOp planned{place->outputs, {place->definition, false}};
  if (place->generation == generation_) return planned;
  planned.definition = DefineForSteps(call, place->outputs.size());
  place->definition = planned.definition.number;
  place->generation = generation_;
  return planned;
}

OpTable::Definition OpTable::Define(std::string key) {
  const auto found = definitions_.find(key);
  if (found != definitions_.end()) return {found->second, false};
  if (definitions_.size() == kMaxDefinitions) {
    definitions_.clear();
    ++generation_;
  }
  const auto number = static_cast<uint32_t>(definitions_.size() + 1);
  definitions_.emplace(std::move(key), number);
  return {number, true};
}

OpTable::Definition OpTable::DefineForSteps(const OpCall& call, size_t num_outputs) {
  std::string key = "s";
  AppendKeyText(call.op, &key);
  AppendKey(static_cast<uint32_t>(call.inputs.size()), &key);
  AppendKey(static_cast<uint32_t>(num_outputs), &key);
  AppendKey(call.scalars, &key);
  AppendKey(call.donate, &key);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i < 32 && (call.scalars >> i & 1) != 0) AppendKey(call.inputs[i]->dtype, &key);
  }
  if (call.device != nullptr) AppendKeyText(call.device->ToString(), &key);
  for (const auto& [name, value] : *call.attrs) {
    AppendKeyText(name, &key);
    AppendKey(static_cast<uint8_t>(value.index()), &key);
    if (!IsWordAttr(value)) AppendKey(value, &key);
  }
  return Define(std::move(key));
}

absl::Status OpTable::Reserve(size_t count) {
  if (count > kMaxDefinitions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a program has at most ", kMaxDefinitions, " ops, not ", count, "; split it"));
  }
  if (definitions_.size() + count > kMaxDefinitions) {
    definitions_.clear();
    ++generation_;
  }
  return absl::OkStatus();
}

OpTable::Definition OpTable::DefineForProgram(absl::string_view op, size_t num_inputs,
                                              size_t num_outputs, const Attributes& attrs) {
  std::string key = "p";
  AppendKeyText(op, &key);
  AppendKey(static_cast<uint32_t>(num_inputs), &key);
  AppendKey(static_cast<uint32_t>(num_outputs), &key);
  AppendKey(attrs, &key);
  return Define(std::move(key));
}

}  // namespace tensord::internal
