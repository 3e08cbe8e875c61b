#include "tensord/client/internal/function_name.h"

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"

namespace tensord::internal {

Tensor NameFunction(absl::string_view function, std::initializer_list<Operand> operands,
                    Tensor result) {
  // Other codes than INVALID_ARGUMENT concern the session, and not the function's arguments.
  const absl::Status status = result.status();
  if (!absl::IsInvalidArgument(status)) return result;
  for (const Operand& operand : operands) {
    if (operand.tensor() != nullptr && !operand.tensor()->ok()) return result;
  }
  return Tensor::Failed(WithPrefix(status, absl::StrCat(function, ": ")));
}

}  // namespace tensord::internal
