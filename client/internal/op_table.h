// A cache of inferred ops, and the numbers of a stream's definitions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/internal/dtype_support.h"
#include "tensord/common/attributes.h"
#include "tensord/common/device_name.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/common/util/op_words.h"

namespace tensord::internal {

// One input of an op: a tensor or a scalar.
struct QueuedInput {
  uint64_t handle;         // for a scalar, its word: op_words.h
  const TensorSpec* spec;  // for a scalar, of shape []
};

// The name and the attributes of an op that is called many times. The constructor computes what
// depends on them alone. Thread-safe.
struct PreparedOp {
  PreparedOp(absl::string_view op, Attributes attributes);
  PreparedOp(const PreparedOp&) = delete;
  PreparedOp& operator=(const PreparedOp&) = delete;

  const std::string name;
  const Attributes attrs;
  const uint64_t id;  // no other prepared op of the process has or had it
  const uint64_t hash;
  const std::string words;        // the encoded values for which IsWordAttr() is true
  const char* const schema_name;  // OpSchema::name. Null: there is no such op
};

// An op to queue. The views must be valid during the call only.
struct OpToQueue {
  absl::string_view op;
  absl::Span<const QueuedInput> inputs;
  const Attributes* attrs;
  const PreparedOp* prepared = nullptr;  // if not null, it has the same name and attributes
  uint32_t donate = 0;                   // bit i: input i is donated
  uint32_t scalars = 0;                  // bit i: input i is a scalar
  const DeviceName* device = nullptr;    // of an op without inputs; otherwise null
  bool takes_all_outputs = false;        // the caller takes any number of outputs, otherwise one

  bool is_scalar(size_t i) const { return i < 32 && (scalars >> i & 1) != 0; }
};

// Memory is bounded: entries replace each other, and when there are too many definitions, all are
// forgotten and made again as they are used. Not thread-safe.
class OpTable {
 public:
  // The maximum number of definitions of a stream (v1::Definition).
  static constexpr uint32_t kMaxDefinitions = 1 << 16;

  // A definition on the stream.
  struct Definition {
    uint32_t number = 0;
    bool is_new = false;  // it must be sent before it is used
  };

  // Find() returns the error of `support` for an op whose result the server can't have. Without
  // this call, the server has all dtypes. Call it before the first Find().
  void set_dtype_support(DTypeSupport support) { support_ = std::move(support); }

  // Appends the op's outputs to `*outputs`, which must be empty, and returns its definition for
  // steps. Attributes that may vary are words of each step (IsWordAttr). If inference fails,
  // returns its error. If there are more outputs than the caller takes, returns INVALID_ARGUMENT.
  // An op with an attribute of bytes has no definition: returns number 0.
  absl::StatusOr<Definition> Find(const OpToQueue& op, OutputSpecs* outputs);

  // Makes room for `count` definitions that are then made by DefineForProgram(). These numbers
  // don't change until the next call of Find() or Reserve(). If `count` exceeds kMaxDefinitions,
  // returns RESOURCE_EXHAUSTED.
  absl::Status Reserve(size_t count);
  // Returns the definition of a program's op, whose attributes are all in the definition.
  Definition DefineForProgram(absl::string_view op, size_t num_inputs, size_t num_outputs,
                              const Attributes& attrs);

 private:
  static constexpr size_t kEntries = 4096;

  // An inferred op. An op's hash determines its place. An op gets an entry at its second use,
  // unless another op of that place came between.
  struct Entry {
    uint64_t hash = 0;
    uint64_t prepared = 0;  // PreparedOp::id of the last call by a prepared op, or 0
    std::string op;
    absl::InlinedVector<TensorSpec, 2> inputs;
    Attributes attrs;
    uint32_t scalars = 0;
    uint32_t donate = 0;
    DeviceName device;
    OutputSpecs outputs;
    uint32_t definition = 0;
    uint32_t generation = 0;  // generation_ when `definition` was made

    bool Is(const OpToQueue& call, uint64_t hash);
    bool HasNameAndAttrsOf(const OpToQueue& call);
  };

  // Returns the definition whose key is key_.
  Definition DefineByKey();
  absl::StatusOr<Definition> FindNew(const OpToQueue& op, uint64_t hash, OutputSpecs* outputs);
  Definition DefineForSteps(const OpToQueue& op, size_t num_outputs);

  DTypeSupport support_;
  std::array<std::unique_ptr<Entry>, kEntries> entries_;
  std::array<uint64_t, kEntries> hashes_{};  // of each place's last op without an entry
  // When there are kMaxDefinitions, all are forgotten, and the numbers begin again at 1.
  absl::flat_hash_map<std::string, uint32_t> definitions_;
  std::string key_;  // of definitions_; a member, so that it keeps its memory
  // The last key of steps of each hash of an op's name, and its number. Takes less time than
  // definitions_.
  struct RecentKey {
    std::string key;
    uint32_t number = 0;
    uint32_t generation = 0;
  };
  std::array<RecentKey, 64> recent_keys_;
  uint32_t generation_ = 1;
};

// Returns the error of an op that has several outputs if its caller takes one.
absl::Status SeveralOutputsError(absl::string_view op, size_t num_outputs);

// Returns whether each step has the attribute's value as words. The definition then has only its
// name and type.
bool IsWordAttr(const AttrValue& value);
// Calls `append` with each word of an attribute for which IsWordAttr() is true.
template <typename Append>
void ForEachWord(const AttrValue& value, Append append) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    append(IntToWord(*integer));
  } else if (const auto* real = std::get_if<double>(&value)) {
    append(FloatToWord(*real));
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    append(integers->size());
    for (int64_t each : *integers) append(IntToWord(each));
  }
}

}  // namespace tensord::internal
