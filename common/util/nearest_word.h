// Finds the known words that a misspelled word is closest to.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tensord {

// Returns how many edits turn `a` into `b`. An edit inserts, deletes or replaces a byte, or
// exchanges two neighbouring bytes. No part of the text is edited twice.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the candidates that `word` may mean: `word` is a misspelling or a prefix of each. The
// nearest ones come first; at most `max_count` are returned. A word of 4 to 6 letters may have one
// edit, a word of 7 to 10 letters two, and so on.
std::vector<std::string> NearestWords(absl::string_view word,
                                      absl::Span<const std::string> candidates, size_t max_count);

// Returns the first of NearestWords(), or "" if there is none.
std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace tensord
