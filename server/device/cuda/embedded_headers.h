// Headers that code compiled at run time may include: the text they had when the program was built.
#pragma once

#include <span>

namespace tensord::server::cuda {

struct EmbeddedHeader {
  const char* name;  // as it is included
  const char* text;
};

// Those of the project, and the little of the standard library's that they use.
std::span<const EmbeddedHeader> EmbeddedHeaders();

}  // namespace tensord::server::cuda
