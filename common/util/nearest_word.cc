#include "tensord/common/util/nearest_word.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace tensord {

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      next[j] = std::min({substituted, row[j] + 1, next[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        next[j] = std::min(next[j], before[j - 2] + 1);
      }
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

namespace {

// Returns how many edits a misspelling has at most. Of a short word, one edit makes another word.
int MaxEdits(size_t size) { return size < 4 ? 0 : static_cast<int>(size + 1) / 4; }

}  // namespace

std::vector<std::string> NearestWords(absl::string_view word,
                                      absl::Span<const std::string> candidates, size_t max_count) {
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& candidate : candidates) {
    // A prefix of at least three letters counts as one edit.
    const bool is_prefix = word.size() >= 3 && absl::StartsWith(candidate, word);
    const int distance = is_prefix ? 1 : EditDistance(word, candidate);
    if (is_prefix || distance <= MaxEdits(std::min(word.size(), candidate.size())))
      near.emplace_back(distance, candidate);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> words;
  for (auto& [distance, candidate] : near) {
    if (words.size() < max_count) words.push_back(std::move(candidate));
  }
  return words;
}

std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates) {
  const std::vector<std::string> words = NearestWords(word, candidates, 1);
  return words.empty() ? "" : words[0];
}

}  // namespace tensord
