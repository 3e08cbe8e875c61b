// Which dtypes a server has.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/client/client.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

// The dtypes from int16 on, by their numbers, need the server's feature "dtypes-2". A value that
// doesn't change after construction, so it is thread-safe.
class DTypeSupport {
 public:
  // Accepts all dtypes.
  DTypeSupport() = default;
  // `address` is the address of the server that sent `info`.
  DTypeSupport(const ServerInfo& info, absl::string_view address);

  // If the server lacks the dtype, returns UNIMPLEMENTED with the server and its dtypes. `what` is
  // the op or call that needs the dtype. The message begins with it.
  absl::Status Check(absl::string_view what, DType dtype) const;

 private:
  std::string server_;  // a description of a server without the feature; empty if it has it
};

}  // namespace tensord::internal
