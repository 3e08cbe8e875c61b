// The text of the process's last error.
#pragma once

#include "absl/strings/string_view.h"

namespace tensord::nccl_emulation {

// Both are thread-safe.
void SetLastError(absl::string_view text);
// Returns the text of the last error of any communicator, as NCCL does. The text is valid until the
// calling thread calls the function again.
const char* LastError();

}  // namespace tensord::nccl_emulation
