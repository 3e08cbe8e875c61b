// Losses, and their gradients. In the gradients, g is the gradient of the loss.
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

// ---------------------------------------------------------------- losses of elements

// They are computed in float32 if all inputs have 16 bits, and rounded once.

// Returns the dtype to which all inputs are promoted.
DType CommonDType(const Formula& f) { return PromotedDType(f.inputs()); }

void RequireOneShape(Formula& f, const Value& x, const Value& target) {
  if (x.shape() == target.shape()) return;
  f.Fail("x and the target must have one shape");
}

Value Reduce(const Value& losses, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  return Apply(reduction == Reduction::kMean ? "mean" : "sum", {losses});
}

// Returns x, multiplied by the input at this position if the call has one.
Value MultiplyByOptional(const Formula& f, const Value& x, int position) {
  if (position >= f.num_inputs()) return x;
  return x * f.input(position).To(x.dtype());
}

// Outputs the reduced losses. function(x, target) computes the loss of each element.
template <typename Function>
void Loss(Formula& f, Function function) {
  const Reduction reduction = ReadReduction(f);
  f.RequireFloating();
  const Value x = f.input(0), target = f.input(1);
  RequireOneShape(f, x, target);
  const DType dtype = CommonDType(f), wide = WideDType(dtype);
  const Value losses = function(x.To(wide), target.To(wide));
  if (f.ok() && losses.shape() != x.shape()) f.Fail("a weight doesn't broadcast to x");
  f.Return(Reduce(losses, reduction).To(dtype));
}

// Outputs the gradient of x. function(x, target) computes the derivative of each element's loss.
template <typename Function>
void LossGradient(Formula& f, Function function) {
  const Reduction reduction = ReadReduction(f);
  f.RequireFloating();
  const Value g = f.input(0), x = f.input(1), target = f.input(2);
  RequireOneShape(f, x, target);
  const DType dtype = CommonDType(f), wide = WideDType(dtype);
  Value result = function(x.To(wide), target.To(wide)) * g.To(wide);
  if (reduction == Reduction::kMean) {
    result = result / static_cast<double>(x.spec().num_elements());
  }
  if (f.ok() && result.shape() != x.shape()) {
    f.Fail("the gradient or a weight doesn't broadcast to x");
  }
  f.Return(result.To(dtype));
}

void MseLoss(Formula& f) {
  Loss(f, [](const Value& x, const Value& target) {
    const Value difference = x - target;
    return difference * difference;
  });
}

void MseLossBackward(Formula& f) {
  LossGradient(f, [](const Value& x, const Value& target) { return (x - target) * 2; });
}

void L1Loss(Formula& f) {
  Loss(f, [](const Value& x, const Value& target) { return Abs(x - target); });
}

void L1LossBackward(Formula& f) {
  LossGradient(f, [](const Value& x, const Value& target) { return Sign(x - target); });
}

// Returns the loss of a difference: quadratic up to `limit`, then linear.
Value HuberOf(const Value& difference, double limit) {
  const Value distance = Abs(difference);
  const Value near = Minimum(distance, limit);
  return (near * -0.5 + distance) * near;
}

double ReadBeta(Formula& f) {
  const double beta = f.attrs().Float("beta");
  if (!(beta >= 0)) f.Fail(absl::StrCat("beta is ", beta, " and must not be negative"));
  return beta;
}

double ReadDelta(Formula& f) {
  const double delta = f.attrs().Float("delta");
  if (!(delta > 0)) f.Fail(absl::StrCat("delta is ", delta, " and must be positive"));
  return delta;
}

void SmoothL1Loss(Formula& f) {
  const double beta = ReadBeta(f);
  Loss(f, [&](const Value& x, const Value& target) {
    return beta == 0 ? Abs(x - target) : HuberOf(x - target, beta) / beta;
  });
}

void SmoothL1LossBackward(Formula& f) {
  const double beta = ReadBeta(f);
  LossGradient(f, [&](const Value& x, const Value& target) {
    if (beta == 0) return Sign(x - target);
    return Minimum(Maximum((x - target) / beta, -1), 1);
  });
}

void HuberLoss(Formula& f) {
  const double delta = ReadDelta(f);
  Loss(f, [&](const Value& x, const Value& target) { return HuberOf(x - target, delta); });
}

void HuberLossBackward(Formula& f) {
  const double delta = ReadDelta(f);
  LossGradient(f, [&](const Value& x, const Value& target) {
    return Minimum(Maximum(x - target, -delta), delta);
  });
}

void BinaryCrossEntropy(Formula& f) {
  constexpr double kMinLog = -100;
  Loss(f, [&](const Value& x, const Value& target) {
    const Value log = Maximum(Log(x), kMinLog);
    const Value log_of_rest = Maximum(Log1p(-x), kMinLog);
    return MultiplyByOptional(f, (target - 1) * log_of_rest - target * log, 2);
  });
}

void BinaryCrossEntropyBackward(Formula& f) {
  constexpr double kMinVariance = 1e-12;
  LossGradient(f, [&](const Value& x, const Value& target) {
    const Value variance = Maximum((1 - x) * x, kMinVariance);
    return MultiplyByOptional(f, (x - target) / variance, 3);
  });
}

void BinaryCrossEntropyWithLogits(Formula& f) {
  Loss(f, [&](const Value& x, const Value& target) {
    const Value rest = 1 - target, curve = Logaddexp(-x, 0);  // log(1 + exp(-x))
    const Value factor = f.num_inputs() == 4 ? MultiplyByOptional(f, target, 3) + rest : Value(1);
    return MultiplyByOptional(f, (factor.is_number() ? curve : factor * curve) + rest * x, 2);
  });
}

void BinaryCrossEntropyWithLogitsBackward(Formula& f) {
  LossGradient(f, [&](const Value& x, const Value& target) {
    if (f.num_inputs() < 5) return MultiplyByOptional(f, Sigmoid(x) - target, 3);
    const Value positive = MultiplyByOptional(f, target, 4) * Sigmoid(-x);
    return MultiplyByOptional(f, (1 - target) * Sigmoid(x) - positive, 3);
  });
}

void KlDiv(Formula& f) {
  const bool log_target = f.attrs().Bool("log_target");
  Loss(f, [&](const Value& x, const Value& target) {
    if (log_target) return Exp(target) * (target - x);
    return Where(Eq(target, 0), 0, (Log(target) - x) * target);
  });
}

void KlDivBackward(Formula& f) {
  const bool log_target = f.attrs().Bool("log_target");
  LossGradient(
      f, [&](const Value&, const Value& target) { return log_target ? -Exp(target) : -target; });
}

// ---------------------------------------------------------------- losses of classes

// The targets of nll_loss and its gradient.
struct Classes {
  Value counted;  // bool: which targets aren't ignored
  Value column;   // the classes, with an axis of size 1 for them, and class 0 for ignored targets
  Value weights;  // of each target, in the wide dtype; 0 for ignored ones
};

// Fails unless the axis, the target and the weight fit x. `weight` is the position of this optional
// input.
void RequireClasses(Formula& f, const Value& x, const Value& target, int weight) {
  const int64_t axis = f.attrs().Int("axis");
  if (!IsFloating(x.dtype())) return f.Fail("x must be floating");
  if (x.shape().rank() == 0) return f.Fail("a scalar has no classes");
  const absl::StatusOr<int> normal = NormalizeAxis(axis, x.shape().rank());
  if (!normal.ok()) return f.Fail(normal.status().message());
  if (target.dtype() != DType::kInt32 && target.dtype() != DType::kInt64) {
    return f.Fail("the target must be int32 or int64");
  }
  Shape rows;
  for (int d = 0; d < x.shape().rank(); ++d) {
    if (d != *normal) rows.AppendDim(x.shape().dim(d));
  }
  if (target.shape() != rows) return f.Fail("the target must have x's shape without the classes");
  const int64_t classes = x.shape().dim(*normal);
  if (f.num_inputs() > weight && f.input(weight).shape() != Shape({classes})) {
    f.Fail(absl::StrCat("the weight must have the shape [", classes, "]"));
  }
}

// Returns the targets' classes and weights. A negative class is out of range. Call this only if
// RequireClasses() has succeeded.
Classes ReadClasses(Formula& f, const Value& x, const Value& target, int weight) {
  const DType wide = WideDType(x.dtype());
  Classes read{0, 0, 0};
  read.counted = Ne(target, f.attrs().Int("ignore_index"));
  const Value classes = Where(read.counted, target, 0);
  Shape column = x.shape();
  column.set_dim(*NormalizeAxis(f.attrs().Int("axis"), x.shape().rank()), 1);
  read.column = Reshape(classes, column);
  read.weights = read.counted.To(wide);
  if (f.num_inputs() > weight) {
    const Value picked = Apply("index", {f.input(weight), classes}, {{"from_end", false}});
    read.weights = Where(read.counted, picked.To(wide), 0);
  }
  return read;
}

Attributes AxisAttributes(const Formula& f) {
  return {{"axis", f.attrs().Int("axis")}, {"from_end", false}};
}

void NllLoss(Formula& f) {
  const Reduction reduction = ReadReduction(f);
  const Value x = f.input(0), target = f.input(1);
  RequireClasses(f, x, target, 2);
  if (!f.ok()) return;
  const Classes classes = ReadClasses(f, x, target, 2);
  const Value picked = Apply("gather", {x, classes.column}, AxisAttributes(f));
  if (!f.ok()) return;
  const Value wide = Reshape(picked.To(WideDType(x.dtype())), target.shape());
  const Value losses = Where(classes.counted, -(wide * classes.weights), 0);
  const Value total = Apply("sum", {classes.weights});
  Value loss = reduction == Reduction::kNone ? losses : Apply("sum", {losses});
  if (reduction == Reduction::kMean) loss = loss / total;
  f.Return(loss.To(x.dtype()));
  f.Return(total.To(x.dtype()));
}

void NllLossBackward(Formula& f) {
  const Reduction reduction = ReadReduction(f);
  const Value x = f.input(1), target = f.input(2);
  RequireClasses(f, x, target, 3);
  if (!f.ok()) return;
  const Classes classes = ReadClasses(f, x, target, 3);
  Value share = f.input(0).To(WideDType(x.dtype()));
  if (reduction == Reduction::kMean) share = share / Apply("sum", {classes.weights});
  const Value slopes = Where(classes.counted, -(classes.weights * share), 0);
  if (f.ok() && slopes.shape() != target.shape()) {
    f.Fail("the gradient doesn't broadcast to the target");
  }
  if (!f.ok()) return;
  const Value column = Reshape(slopes.To(x.dtype()), classes.column.shape());
  const Value zeros = f.Full(0, x.shape(), x.dtype());
  if (target.spec().num_elements() == 0) return f.Return(zeros);
  f.Return(Apply("scatter", {zeros, classes.column, column}, AxisAttributes(f)));
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
  if (reduction != Reduction::kNone) gradient = BroadcastTo(gradient, target.shape());
  std::vector<Value> inputs = {gradient, x, lse, target};
  if (f.num_inputs() == 6) inputs.push_back(f.input(5));
  f.Return(ApplyAll("cross_entropy_backward", inputs, ClassAttributes(f))[0]);
}

AttrDef ReductionAttr(const char* doc) {
  return OptionalAttr("reduction", AttrType::kString, "mean", doc);
}

// Appends a loss of elements, and its gradient. `weights` are the names of optional inputs.
void AppendLoss(std::vector<OpSchema>& ops, const std::string& name, const char* doc,
                void (*formula)(Formula&), void (*gradient)(Formula&),
                std::vector<AttrDef> options = {}, std::vector<std::string> weights = {}) {
  std::vector<AttrDef> attrs = {ReductionAttr("\"mean\", \"sum\" or \"none\"")};
  attrs.insert(attrs.end(), options.begin(), options.end());
  std::vector<std::string> inputs = {"x", "target"};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  const auto optional = static_cast<int>(weights.size());
  ops.push_back({.name = name,
                 .signature = "x, target (…) -> () or (…)",
                 .doc = doc,
                 .min_inputs = 2,
                 .max_inputs = 2 + optional,
                 .attrs = attrs,
                 .input_names = inputs,
                 .formula = formula});
  inputs.insert(inputs.begin(), "gradient");
  ops.push_back({.name = name + "_backward",
                 .signature = "gradient, x, target (…) -> (…)",
                 .doc = absl::StrCat("The gradient of x for ", name, "."),
                 .min_inputs = 3,
                 .max_inputs = 3 + optional,
                 .attrs = std::move(attrs),
                 .input_names = std::move(inputs),
                 .formula = gradient});
}

void AppendElementLosses(std::vector<OpSchema>& ops) {
  const auto real = [](const char* name, const char* doc) {
    return OptionalAttr(name, AttrType::kFloat, 1.0, doc);
  };
  AppendLoss(ops, "mse_loss", "d², with d = x - target.", MseLoss, MseLossBackward);
  AppendLoss(ops, "l1_loss", "abs(x - target).", L1Loss, L1LossBackward);
  AppendLoss(ops, "smooth_l1_loss",
             "d² / (2 beta) where d = abs(x - target) < beta, and d - beta / 2 elsewhere.",
             SmoothL1Loss, SmoothL1LossBackward, {real("beta", "not negative; 0: l1_loss")});
  AppendLoss(ops, "huber_loss",
             "d² / 2 where d = abs(x - target) < delta, and delta (d - delta / 2) elsewhere.",
             HuberLoss, HuberLossBackward, {real("delta", "positive")});
  AppendLoss(ops, "binary_cross_entropy",
             "weight (-target log(x) - (1 - target) log(1 - x)), with logarithms of at least -100. "
             "NaN where x isn't in [0, 1].",
             BinaryCrossEntropy, BinaryCrossEntropyBackward, {}, {"weight"});
  AppendLoss(ops, "binary_cross_entropy_with_logits",
             "weight ((1 - target) x + (1 - target + pos_weight target) log(1 + exp(-x))).",
             BinaryCrossEntropyWithLogits, BinaryCrossEntropyWithLogitsBackward, {},
             {"weight", "pos_weight"});
  AppendLoss(
      ops, "kl_div",
      "target (log(target) - x), where x has logarithms of probabilities. 0 where the target is 0.",
      KlDiv, KlDivBackward,
      {OptionalAttr("log_target", AttrType::kBool, false, "the target has logarithms, too")});
}

// Appends a loss of classes, and its gradient. The last input of each is the optional weight.
void AppendClassLoss(std::vector<OpSchema>& ops, OpSchema loss, OpSchema gradient,
                     std::vector<AttrDef> options = {}) {
  std::vector<AttrDef> attrs = {
      OptionalAttr("axis", AttrType::kInt, int64_t{-1}, "the axis of the classes"),
      OptionalAttr("ignore_index", AttrType::kInt, int64_t{-100},
                   "a target of this value gives no loss and no gradient, and doesn't count"),
      ReductionAttr("\"mean\": the sum of the losses divided by the total; \"sum\"; \"none\"")};
  attrs.insert(attrs.end(), options.begin(), options.end());
  for (OpSchema* op : {&loss, &gradient}) {
    op->attrs = attrs;
    op->max_inputs = static_cast<int>(op->input_names.size());
    op->min_inputs = op->max_inputs - 1;
    op->value_checked = true;
    ops.push_back(std::move(*op));
  }
}

void AppendClassLosses(std::vector<OpSchema>& ops) {
  AppendClassLoss(ops,
                  {.name = "nll_loss",
                   .signature = "x (…,C), target (…), weight (C) -> loss, total ()",
                   .doc = "-weight[target] x[target]. The total is the sum of the weights of the "
                          "targets that aren't ignored.",
                   .input_names = {"x", "target", "weight"},
                   .formula = NllLoss},
                  {.name = "nll_loss_backward",
                   .signature = "gradient, x (…,C), target (…), weight (C) -> gx (…,C)",
                   .doc = "The gradient of x for nll_loss.",
                   .input_names = {"gradient", "x", "target", "weight"},
                   .formula = NllLossBackward});
  AppendClassLoss(
      ops,
      {.name = "cross_entropy_loss",
       .signature = "x (…,C), target (…), weight (C) -> loss, lse (…), total ()",
       .doc = "The losses of cross_entropy, reduced. The total is the sum of the weights of the "
              "targets that aren't ignored.",
       .input_names = {"x", "target", "weight"},
       .formula = CrossEntropyLoss},
      {.name = "cross_entropy_loss_backward",
       .signature = "gradient, x (…,C), lse (…), target (…), total (), weight (C) -> gx (…,C)",
       .doc =
           "The gradient of x, from the gradient of the loss and from the results lse and total of "
           "cross_entropy_loss.",
       .input_names = {"gradient", "x", "lse", "target", "total", "weight"},
       .formula = CrossEntropyLossBackward},
      {OptionalAttr("label_smoothing", AttrType::kFloat, 0.0, "the same as for cross_entropy")});
}

}  // namespace
}  // namespace formula

void AppendLossCompositions(std::vector<OpSchema>& ops) {
  formula::AppendElementLosses(ops);
  formula::AppendClassLosses(ops);
}

}  // namespace tensord
