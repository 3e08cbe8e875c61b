// The headers that code compiled at run time may include. Their texts are those of the build.
#pragma once

#include <span>

namespace tensord::server::cuda {

struct EmbeddedHeader {
  const char* name;  // as in an #include directive
  const char* text;
};

// Returns the project's headers, and replacements (rtc_std/) for the standard headers that they
// use.
std::span<const EmbeddedHeader> EmbeddedHeaders();

}  // namespace tensord::server::cuda
