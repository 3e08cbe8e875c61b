#include "tensord/client/internal/dtype_support.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tensord::internal {
namespace {

constexpr char kFeature[] = "dtypes-2";

}  // namespace

DTypeSupport::DTypeSupport(const ServerInfo& info, absl::string_view address) {
  if (std::find(info.features.begin(), info.features.end(), kFeature) != info.features.end()) {
    return;
  }
  server_ = absl::StrCat("tensord server at ", address, " (version ", info.version, ")");
}

absl::Status DTypeSupport::Check(absl::string_view what, DType dtype) const {
  if (server_.empty() || dtype < DType::kInt16) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(what, ": ", server_, " doesn't have ",
                                               DTypeName(dtype),
                                               "; update the server, or use another dtype"));
}

}  // namespace tensord::internal
