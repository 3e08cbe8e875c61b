// The names by which a client knows the members of a group.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace tensord::server {

// The names by rank, for error messages. A rank without a name is written as its number only.
class MemberNames {
 public:
  MemberNames() = default;
  explicit MemberNames(std::vector<std::string> names) : names_(std::move(names)) {}

  // Returns text such as "rank 2 (gpu-b/cuda:0)" or "rank 2".
  std::string Describe(int rank) const { return absl::StrCat("rank ", Numbered(rank)); }
  // Returns text such as "rank 1 (gpu-a/cuda:1), 2 (gpu-b/cuda:0)". Names at most 8 ranks, and
  // counts the rest.
  std::string Describe(absl::Span<const int> ranks) const {
    constexpr size_t kMaxNamed = 8;
    std::string text = "rank ";
    for (size_t i = 0; i < ranks.size() && i < kMaxNamed; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", Numbered(ranks[i]));
    }
    if (ranks.size() > kMaxNamed) {
      absl::StrAppend(&text, " and ", ranks.size() - kMaxNamed, " more");
    }
    return text;
  }

 private:
  std::string Numbered(int rank) const {
    const auto place = static_cast<size_t>(rank);
    if (place >= names_.size() || names_[place].empty()) return absl::StrCat(rank);
    return absl::StrCat(rank, " (", names_[place], ")");
  }

  std::vector<std::string> names_;
};

}  // namespace tensord::server
