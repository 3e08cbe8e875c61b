// What the examples have in common.
#pragma once

#include <cmath>
#include <iostream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/common/status_macros.h"

namespace tensord::examples {

// The largest difference of two float32 tensors of one shape, wherever they are; an error where it
// is more than `tolerance`.
inline absl::Status CheckClose(const Tensor& got, const Tensor& wanted, double tolerance) {
  const Tensor difference = Max(Abs(got.To(wanted.device()) - wanted));
  TENSORD_ASSIGN_OR_RETURN(const double most, difference.Item<double>());
  if (!(most <= tolerance)) {
    return absl::InternalError(absl::StrCat("differs from one device by ", most));
  }
  std::cout << "as on one device, to within " << most << "\n";
  return absl::OkStatus();
}

inline int Report(const absl::Status& status) {
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace tensord::examples
