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
    uint32_t definition = 0;                        // its number on the stream; 0: none
    bool is_new = false;                            // the definition must be sent first
  };

  struct Definition {
    uint32_t number;
    bool is_new;  // the definition must be sent first
  };
  // Returns the definition of an op for programs, which accepts inputs of any specs. If there are
  // too many definitions, returns RESOURCE_EXHAUSTED.
  absl::StatusOr<Definition> Define(absl::string_view op, size_t num_inputs,
                                    const Attributes& attrs);

  // Returns the numbered spec, valid as long as the table. Null if the table is full.
  const NumberedSpec* Number(const TensorSpec& spec);

  // Returns the op's output, and its definition if it has one. An op without attributes gets a
  // definition at its first use, other ops at their second use. If inference fails, returns its
  // error. An input is null if its spec isn't in the table; `specs` has the specs of all inputs.
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
    uint32_t definition = 0;  // 0: the op was used only once
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
