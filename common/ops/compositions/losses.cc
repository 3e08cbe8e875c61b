// Losses that reduce the results of a fused op, and their gradients.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

enum class Reduction { kNone, kMean, kSum };

Reduction ReadReduction(Formula& f) {
  const std::string& name = f.attrs().String("reduction");
  if (name == "none") return Reduction::kNone;
  if (name == "sum") return Reduction::kSum;
  if (name != "mean") {
    f.Fail(absl::StrCat("reduction is ", QuotedForMessage(name),
                        " and must be \"none\", \"mean\" or \"sum\""));
  }
  return Reduction::kMean;
}

// Returns the attributes of the op cross_entropy.
Attributes ClassAttributes(const Formula& f) {
  return {{"axis", f.attrs().Int("axis")},
          {"ignore_index", f.attrs().Int("ignore_index")},
          {"label_smoothing", f.attrs().Float("label_smoothing")}};
}

void CrossEntropyLoss(Formula& f) {
  const Reduction reduction = ReadReduction(f);
  const Value target = f.input(1);
  const auto statistics = ApplyAll("cross_entropy", f.inputs(), ClassAttributes(f));
  if (!f.ok()) return;
  const Value loss = statistics[0], lse = statistics[1];
  const Value counts = Ne(target, f.attrs().Int("ignore_index"));
  Value weights = counts.To(loss.dtype());
  if (f.num_inputs() == 3) {
    const Value classes = Where(counts, target, 0);
    weights = Where(counts, Apply("index", {f.input(2), classes}).To(loss.dtype()), 0);
  }
  const Value total = Apply("sum", {weights});
  if (reduction == Reduction::kNone) {
    f.Return(loss);
  } else {
    const Value sum = Apply("sum", {loss});
    f.Return(reduction == Reduction::kMean ? sum / total : sum);
  }
  f.Return(lse);
  f.Return(total);
}

void CrossEntropyLossBackward(Formula& f) {
  const Reduction reduction = ReadReduction(f);
  const Value x = f.input(1), lse = f.input(2), target = f.input(3), total = f.input(4);
  Value gradient = f.input(0);
  if (reduction == Reduction::kMean) gradient = gradient.To(total.dtype()) / total;
  if (reduction != Reduction::kNone) {
    const auto dims = target.shape().dims();
    gradient = Apply("broadcast_to", {gradient},
                     {{"shape", std::vector<int64_t>(dims.begin(), dims.end())}});
  }
  std::vector<Value> inputs = {gradient, x, lse, target};
  if (f.num_inputs() == 6) inputs.push_back(f.input(5));
  f.Return(ApplyAll("cross_entropy_backward", inputs, ClassAttributes(f))[0]);
}

void AppendLosses(std::vector<OpSchema>& ops) {
  const std::vector<AttrDef> attrs = {
      OptionalAttr("axis", AttrType::kInt, int64_t{-1}, "the axis of the classes"),
      OptionalAttr("ignore_index", AttrType::kInt, int64_t{-100},
                   "a target of this value gives no loss and no gradient, and doesn't count"),
      OptionalAttr("label_smoothing", AttrType::kFloat, 0.0, "the same as for cross_entropy"),
      OptionalAttr("reduction", AttrType::kString, "mean",
                   "\"mean\": the sum of the losses divided by the total; \"sum\"; \"none\"")};
  ops.push_back({.name = "cross_entropy_loss",
                 .signature = "x (…,C), target (…), weight (C) -> loss, lse (…), total ()",
                 .doc = "The losses of cross_entropy, reduced. The total is the sum of the weights "
                        "of the targets that aren't ignored.",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = attrs,
                 .input_names = {"x", "target", "weight"},
                 .value_checked = true,
                 .formula = CrossEntropyLoss});
  ops.push_back({.name = "cross_entropy_loss_backward",
                 .signature = "gradient, x (…,C), lse (…), target (…), total (), weight (C) -> "
                              "gx (…,C)",
                 .doc = "The gradient of cross_entropy_loss, from that of its loss, and from its "
                        "lse and total.",
                 .min_inputs = 5,
                 .max_inputs = 6,
                 .attrs = attrs,
                 .input_names = {"gradient", "x", "lse", "target", "total", "weight"},
                 .value_checked = true,
                 .formula = CrossEntropyLossBackward});
}

}  // namespace
}  // namespace formula

void AppendLossCompositions(std::vector<OpSchema>& ops) { formula::AppendLosses(ops); }

}  // namespace tensord
