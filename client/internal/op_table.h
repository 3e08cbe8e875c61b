// A cache of inferred ops: each combination of op, shapes and attributes is inferred once.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::internal {

// A spec and its number in the table, from 1 on.
struct NumberedSpec {
  TensorSpec spec;
  uint32_t number;
};

// Finds specs by number, and ops by their inputs' numbers. Not thread-safe.
class OpTable {
 public:
  struct Op {
    TensorSpec output;
    const NumberedSpec* numbered_output = nullptr;  // null if the table is full
    uint32_t definition = 0;                        // on the stream; 0: none
    bool is_new = false;                            // the definition has to be sent first
  };

  struct Definition {
    uint32_t number;
    bool is_new;  // has to be sent first
  };
  // Defines an op for programs, for inputs of any specs. RESOURCE_EXHAUSTED if there are too many.
  absl::StatusOr<Definition> Define(absl::string_view op, size_t num_inputs,
                                    const Attributes& attrs);

  // Returns the numbered spec, valid as long as the table. Null if the table is full.
  const NumberedSpec* Number(const TensorSpec& spec);

  // Returns the op's output, and its definition if it has one: from the first use on for an op
  // without attributes, from the second on for others. The error is that of inference. Inputs may
  // be null; `specs` has all of them.
  absl::StatusOr<Op> Find(absl::string_view op, absl::Span<const NumberedSpec* const> inputs,
                          absl::Span<const TensorSpec* const> specs, const Attributes& attrs);

 private:
  // Entries are never removed. When the table is full, new specs and ops work without an entry.
  static constexpr uint32_t kMaxDefinitions = 1 << 16;
  static constexpr size_t kMaxSpecs = 1 << 18;
  static constexpr size_t kRecent = 256;
  static constexpr size_t kRecentInputs = 3;

  struct Known {
    const NumberedSpec* output = nullptr;
    uint32_t definition = 0;  // 0: seen once
  };
  // A small direct-mapped cache for ops without attributes.
  struct Recent {
    std::string op;
    uint32_t inputs[kRecentInputs] = {};
    size_t num_inputs = ~size_t{0};
    Known known;
  };

  Recent& RecentPlace(absl::string_view op, absl::Span<const NumberedSpec* const> inputs);
  absl::StatusOr<Op> FindByKey(absl::string_view op, absl::Span<const NumberedSpec* const> inputs,
                               absl::Span<const TensorSpec* const> specs, const Attributes& attrs);

  absl::node_hash_map<std::string, NumberedSpec> specs_;
  absl::node_hash_map<std::string, Known> known_;
  absl::node_hash_map<std::string, uint32_t> for_programs_;
  uint32_t definitions_ = 0;
  Recent recent_[kRecent];
};

}  // namespace tensord::internal
