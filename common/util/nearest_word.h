// Finds what a misspelled word was meant to be.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tensord {

// Levenshtein's distance, in bytes.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the candidate that `word` is a likely misspelling or a beginning of. Returns "" if there
// is none.
std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace tensord
