#include "tensord/common/util/nearest_word.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace tensord {

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = std::exchange(row[0], static_cast<int>(i));
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates) {
  std::string best;
  int best_distance = 1 << 20;
  for (const std::string& candidate : candidates) {
    // A prefix of at least three letters counts as one edit.
    const bool is_prefix = word.size() >= 3 && absl::StartsWith(candidate, word);
    const int distance = is_prefix ? 1 : EditDistance(word, candidate);
    const int allowed = std::max<int>(1, static_cast<int>(candidate.size()) / 3);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tensord
