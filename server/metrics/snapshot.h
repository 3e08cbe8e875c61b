// The values of all metrics at one time.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/server/metrics/families.h"
#include "tensord/server/metrics/histogram.h"

namespace tensord::server::metrics {

// Not thread-safe.
class Snapshot {
 public:
  struct Sample {
    std::vector<std::string> labels;  // their values, in the order of Family::labels
    std::variant<double, Histogram::Snapshot> value;
  };

  // Adds a sample of `family`. `labels` has a value for each label of the family, in UTF-8. No
  // other sample of the family may have the same values.
  void Add(const Family& family, std::vector<std::string> labels,
           std::variant<double, Histogram::Snapshot> value) {
    samples_[&family].push_back({std::move(labels), value});
  }

  // Returns the samples of `family`, in the order in which they were added.
  absl::Span<const Sample> Of(const Family& family) const {
    const auto found = samples_.find(&family);
    return found == samples_.end() ? absl::Span<const Sample>() : found->second;
  }

 private:
  absl::flat_hash_map<const Family*, std::vector<Sample>> samples_;
};

}  // namespace tensord::server::metrics
