// The modes of TENSORD_DEBUG, a list of words in the environment.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "tensord/client/tensor.h"

namespace tensord::python {

// "sync": each op waits, so that an exception points at the op that failed.
// "tracebacks": an error that a wait raises names the line of Python that called the failed op.
struct DebugModes {
  bool sync = false;
  bool tracebacks = false;
  bool any() const { return sync || tracebacks; }
};
// Read once, when the module is imported.
const DebugModes& Debug();

// Remembers the line of Python that is running as that of the ops up to this tensor.
void RememberLine(const Tensor& tensor);
// Returns the line of the op that an error of the server names, or "" if it isn't known.
std::string LineOf(absl::string_view error_message);

}  // namespace tensord::python
