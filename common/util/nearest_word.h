// Finds the known word that a misspelled word is closest to.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tensord {

// Returns the Levenshtein distance, in bytes.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the candidate that `word` probably means: `word` is a misspelling or a prefix of it.
// Returns "" if there is none.
std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace tensord
