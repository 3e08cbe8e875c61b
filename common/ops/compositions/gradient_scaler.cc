// The gradient scaler of mixed precision, as in torch.amp.GradScaler.
#include <cstdint>
#include <vector>

#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

void AmpUnscale(Formula& f) {
  f.RequireFloating();
  const Value g = f.input(0), found = f.input(1), inverse_scale = f.input(2);
  if (found.shape().rank() != 0 || inverse_scale.shape().rank() != 0) {
    f.Fail("found_inf and inverse_scale must be scalars");
  }
  // The difference is 0, or NaN.
  const Value count = Apply("count_nonzero", {Ne(g - g, 0)});
  f.Return((g.To(WideDType(g.dtype())) * inverse_scale).To(g.dtype()));
  f.Return(Maximum(found, Ne(count, 0).To(found.dtype())));
}

void AmpUpdateScale(Formula& f) {
  const Value scale = f.input(0), tracker = f.input(1);
  for (const Value& input : f.inputs()) {
    if (input.shape().rank() != 0) return f.Fail("all inputs must be scalars");
  }
  if (!IsFloating(scale.dtype()) || !IsInteger(tracker.dtype())) {
    return f.Fail("scale must be floating and growth_tracker an integer");
  }
  const Value failed = Ne(f.input(2), 0), successes = tracker + 1;
  const Value due = Eq(successes, f.attrs().Int("interval"));
  const Value grown = scale * f.attrs().Float("growth");
  const Value larger = Where(Eq(grown - grown, 0), grown, scale);  // unless it is infinite
  f.Return(Where(failed, scale * f.attrs().Float("backoff"), Where(due, larger, scale)));
  f.Return(Where(BitwiseOr(failed, due), 0, successes));
}

void AppendGradientScaler(std::vector<OpSchema>& ops) {
  ops.push_back({.name = "amp_unscale",
                 .signature = "gradient (…), found_inf (), inverse_scale () -> unscaled (…), "
                              "new_found_inf ()",
                 .doc =
                     "gradient * inverse_scale, and maximum(found_inf, 1) if the gradient has an "
                     "infinity or NaN, otherwise found_inf.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .input_names = {"gradient", "found_inf", "inverse_scale"},
                 .formula = AmpUnscale});
  ops.push_back(
      {.name = "amp_update_scale",
       .signature = "scale, growth_tracker, found_inf () -> new_scale, new_growth_tracker ()",
       .doc = "If found_inf isn't 0, new_scale is scale * backoff, and the tracker becomes 0. "
              "Otherwise the tracker grows by 1. When it reaches interval, it becomes 0, and "
              "new_scale is scale * growth, unless that is infinite.",
       .min_inputs = 3,
       .max_inputs = 3,
       .attrs = {RequiredAttr("growth", AttrType::kFloat,
                              "the factor after `interval` optimizer steps"),
                 RequiredAttr("backoff", AttrType::kFloat, "the factor after an infinity"),
                 RequiredAttr("interval", AttrType::kInt, "the number of optimizer steps")},
       .input_names = {"scale", "growth_tracker", "found_inf"},
       .formula = AmpUpdateScale});
}

}  // namespace
}  // namespace formula

void AppendGradientScalerCompositions(std::vector<OpSchema>& ops) {
  formula::AppendGradientScaler(ops);
}

}  // namespace tensord
