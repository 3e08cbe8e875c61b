#include "tensord/client/internal/op_table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/key.h"
#include "tensord/common/util/protobuf_wire.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

// Mixes 64 bits into a hash. The multiplier is that of Fibonacci hashing, 2^64 divided by the
// golden ratio.
class Hasher {
 public:
  explicit Hasher(uint64_t hash = 0) : hash_(hash) {}
  void Add(uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 32;
  }
  // Adds a few bytes of the text. Entry::Is() compares all of it.
  void AddText(absl::string_view text) {
    uint32_t first = 0;
    if (text.size() >= sizeof(first)) {
      std::memcpy(&first, text.data(), sizeof(first));
    } else {
      for (char c : text) first = first << 8 | static_cast<unsigned char>(c);
    }
    Add(uint64_t{text.size()} << 32 | first);
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
  uint64_t hash_;
};

uint64_t HashOf(absl::string_view op, const Attributes& attrs) {
  Hasher hasher;
  hasher.AddText(op);
  for (const auto& [name, value] : attrs) {
    hasher.AddText(name);
    hasher.AddAttr(value);
  }
  return hasher.hash();
}

uint64_t HashOf(const OpToQueue& op) {
  Hasher hasher(op.prepared == nullptr ? HashOf(op.op, *op.attrs) : op.prepared->hash);
  for (const QueuedInput& input : op.inputs) hasher.AddSpec(*input.spec);
  if (op.device != nullptr) hasher.Add(static_cast<uint64_t>(op.device->index));
  return hasher.hash();
}

// The first word of a key of definitions_: for which kind of definition it is.
constexpr uint32_t kStepsKey = 0;
constexpr uint32_t kProgramKey = 1;

uint64_t NextPreparedOp() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::string EncodeWords(const Attributes& attrs) {
  std::string words;
  for (const auto& [name, value] : attrs) {
    if (!IsWordAttr(value)) continue;
    ForEachWord(value, [&words](uint64_t word) { wire::AppendVarint(word, &words); });
  }
  return words;
}

bool HasBytes(const Attributes& attrs) {
  return std::any_of(attrs.begin(), attrs.end(),
                     [](const auto& attr) { return std::holds_alternative<Bytes>(attr.second); });
}

}  // namespace

PreparedOp::PreparedOp(absl::string_view op, Attributes attributes)
    : name(op),
      attrs(std::move(attributes)),
      id(NextPreparedOp()),
      hash(HashOf(op, attrs)),
      words(EncodeWords(attrs)),
      schema_name(FindOp(op) == nullptr ? nullptr : FindOp(op)->name.c_str()) {}

absl::Status SeveralOutputsError(absl::string_view op, size_t num_outputs) {
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": has ", num_outputs, " outputs here, and RunOp returns one: call RunOpWithOutputs"));
}

bool IsWordAttr(const AttrValue& value) {
  constexpr size_t kMaxInts = 64;  // the limit of v1::Batch
  const auto* ints = std::get_if<std::vector<int64_t>>(&value);
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value) ||
         (ints != nullptr && ints->size() <= kMaxInts);
}

// Comparing the text and the values takes longer than all the rest, so a prepared op does it once.
bool OpTable::Entry::HasNameAndAttrsOf(const OpToQueue& call) {
  if (call.prepared != nullptr && prepared == call.prepared->id) return true;
  if (op != call.op || !(attrs.empty() ? call.attrs->empty() : attrs == *call.attrs)) return false;
  if (call.prepared != nullptr) prepared = call.prepared->id;
  return true;
}

bool OpTable::Entry::Is(const OpToQueue& call, uint64_t call_hash) {
  if (hash != call_hash || inputs.size() != call.inputs.size() || scalars != call.scalars ||
      donate != call.donate) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != *call.inputs[i].spec) return false;
  }
  return (call.device == nullptr || device == *call.device) && HasNameAndAttrsOf(call);
}

absl::StatusOr<OpTable::Definition> OpTable::Find(const OpToQueue& op, OutputSpecs* outputs) {
  const uint64_t hash = HashOf(op);
  Entry* const entry = entries_[hash % kEntries].get();
  if (entry == nullptr || entry->generation != generation_ || !entry->Is(op, hash)) {
    return FindNew(op, hash, outputs);
  }
  if (entry->outputs.size() > 1 && !op.takes_all_outputs) {
    return SeveralOutputsError(op.op, entry->outputs.size());
  }
  *outputs = entry->outputs;
  return Definition{entry->definition, false};
}

absl::StatusOr<OpTable::Definition> OpTable::FindNew(const OpToQueue& op, uint64_t hash,
                                                     OutputSpecs* outputs) {
  absl::InlinedVector<const TensorSpec*, 3> inputs;
  for (const QueuedInput& input : op.inputs) inputs.push_back(input.spec);
  TENSORD_RETURN_IF_ERROR(InferOutputs(op.op, inputs, *op.attrs, outputs));
  if (outputs->size() > 1 && !op.takes_all_outputs) {
    return SeveralOutputsError(op.op, outputs->size());
  }
  for (const TensorSpec& output : *outputs) {
    TENSORD_RETURN_IF_ERROR(support_.Check(op.op, output.dtype));
  }
  if (HasBytes(*op.attrs)) return Definition{};  // these attributes are too large for an entry
  const Definition definition = DefineForSteps(op, outputs->size());
  // Most new ops of a program whose shapes change all the time never come again.
  uint64_t& last_hash = hashes_[hash % kEntries];
  if (std::exchange(last_hash, hash) != hash) return definition;
  std::unique_ptr<Entry>& place = entries_[hash % kEntries];
  if (place == nullptr) place = std::make_unique<Entry>();
  *place = {.hash = hash,
            .prepared = op.prepared == nullptr ? 0 : op.prepared->id,
            .op = std::string(op.op),
            .inputs = {},
            .attrs = *op.attrs,
            .scalars = op.scalars,
            .donate = op.donate,
            .device = op.device == nullptr ? DeviceName() : *op.device,
            .outputs = *outputs,
            .definition = definition.number,
            .generation = generation_};
  for (const TensorSpec* input : inputs) place->inputs.push_back(*input);
  return definition;
}

OpTable::Definition OpTable::DefineByKey() {
  const auto found = definitions_.find(key_);
  if (found != definitions_.end()) return {found->second, false};
  if (definitions_.size() == kMaxDefinitions) {
    definitions_.clear();
    ++generation_;
  }
  const auto number = static_cast<uint32_t>(definitions_.size() + 1);
  definitions_.emplace(key_, number);
  return {number, true};
}

OpTable::Definition OpTable::DefineForSteps(const OpToQueue& op, size_t num_outputs) {
  const struct {
    uint32_t kind, name_size, num_inputs, num_outputs, scalars, donate;
  } head = {kStepsKey,
            static_cast<uint32_t>(op.op.size()),
            static_cast<uint32_t>(op.inputs.size()),
            static_cast<uint32_t>(num_outputs),
            op.scalars,
            op.donate};
  key_.clear();
  AppendKey(head, &key_);
  key_.append(op.op.data(), op.op.size());
  for (size_t i = 0; i < op.inputs.size() && op.scalars != 0; ++i) {
    if (op.is_scalar(i)) AppendKey(op.inputs[i].spec->dtype, &key_);
  }
  if (op.device != nullptr) AppendKeyText(op.device->ToString(), &key_);
  for (const auto& [name, value] : *op.attrs) {
    AppendKey(static_cast<uint64_t>(name.size()) << 8 | value.index(), &key_);
    key_.append(name);
    if (!IsWordAttr(value)) AppendKey(value, &key_);
  }
  Hasher hasher;
  hasher.AddText(op.op);
  RecentKey& recent = recent_keys_[hasher.hash() % recent_keys_.size()];
  if (recent.generation == generation_ && recent.key == key_) return {recent.number, false};
  const Definition definition = DefineByKey();
  recent = {key_, definition.number, generation_};
  return definition;
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
  key_.clear();
  AppendKey(kProgramKey, &key_);
  AppendKeyText(op, &key_);
  AppendKey(static_cast<uint32_t>(num_inputs), &key_);
  AppendKey(static_cast<uint32_t>(num_outputs), &key_);
  AppendKey(attrs, &key_);
  return DefineByKey();
}

}  // namespace tensord::internal
