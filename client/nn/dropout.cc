#include "tensord/client/nn/dropout.h"

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/enqueue.h"

namespace tensord::nn {

Dropout::Dropout(double p, std::optional<int64_t> seed)
    : p_(p),
      generator_(seed.has_value() ? std::make_shared<Generator>(*seed)
                                  : std::make_shared<Generator>()) {}

Tensor Dropout::Forward(const Tensor& x) const {
  if (!training()) return x;
  if (tensord::internal::IsRecorded(x)) {
    return Tensor::Failed(absl::FailedPreconditionError(absl::StrCat(
        "nn::", ToString(),
        " in a program would drop the same elements in each run: call Eval() before recording, or "
        "tensord::Dropout with a state that is an input of the program")));
  }
  return tensord::Dropout(x, p_, *generator_);
}

std::string Dropout::ToString() const { return absl::StrCat("Dropout(p=", p_, ", inplace=False)"); }

}  // namespace tensord::nn
