// The fused steps of the optimizers Adam, AdamW, SGD and Adagrad. None waits for the server.
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "kernels.h"

namespace torch_tensord {
namespace {

using at::TensorList;
using MaybeTensor = std::optional<at::Tensor>;

void CheckLengths(const char* name, TensorList self, std::initializer_list<TensorList> others) {
  for (const TensorList& other : others) {
    TORCH_CHECK(other.size() == self.size(), name, ": all lists must have one tensor for each of ",
                "the ", self.size(), " parameters, but one has ", other.size());
  }
}

// Returns the number in a tensor of one element, as a value without dimensions.
Value OneNumber(const at::Tensor& tensor, c10::DeviceIndex device) {
  return Reshape(ReadAs(tensor, tensor.scalar_type(), device), {});
}

// A learning rate: a number, or a tensor on the device.
class Rate {
 public:
  Rate(double number, c10::DeviceIndex) : number_(number) {}
  Rate(const at::Tensor& tensor, c10::DeviceIndex device) {
    if (IsOurs(tensor)) {
      value_ = OneNumber(tensor, device);
    } else {
      number_ = tensor.item();
    }
  }
  // Returns the rate as an input in `dtype`, which is valid as long as this object is.
  In as(at::ScalarType dtype) {
    if (!value_) return In(number_, dtype);
    converted_ = Cast(value_, dtype);
    return In(converted_);
  }

 private:
  at::Scalar number_ = 0;
  Value value_, converted_;
};

// What a GradScaler gives to the steps: a factor of the gradients, and whether the steps are
// skipped because a gradient isn't finite.
struct Scaling {
  Scaling(c10::DeviceIndex device, const MaybeTensor& grad_scale, const MaybeTensor& found_inf) {
    if (IsGiven(grad_scale)) scale = OneNumber(*grad_scale, device);
    if (IsGiven(found_inf)) {
      const Value found = OneNumber(*found_inf, device);
      skip = Push(server_op<"ne">, {found, Number(0, found)});
    }
  }
  // Returns the value that replaces `old`.
  Value Choose(const Value& old, const Value& made) const {
    const Value result = Cast(made, old->dtype());
    return skip ? Where(skip, old, result) : result;
  }

  Value scale;  // null: the gradients aren't scaled
  Value skip;   // bool; null: no step is skipped
};

// The new values of a parameter, its gradient and its state. They are written together at the end,
// so that an error or an interruption in the middle of a step leaves the tensors as they were.
class Step {
 public:
  Step(const Scaling& scaling, const at::Tensor& p)
      : scaling_(scaling), dtype_(ComputeDType(p.scalar_type())) {}

  // The dtype in which the step computes.
  at::ScalarType dtype() const { return dtype_; }
  // Returns the gradient without the scale. As in PyTorch, the tensor gets this value, too.
  Value Gradient(const at::Tensor& gradient) {
    const Value g = Cast(Read(gradient), dtype_);
    if (!scaling_.scale) return g;
    const Value unscaled = Div(g, Cast(scaling_.scale, dtype_));
    Replace(gradient, unscaled);
    return unscaled;
  }
  void Replace(const at::Tensor& tensor, const Value& made) {
    results_.emplace_back(&tensor, scaling_.Choose(Read(tensor), made));
  }
  void Finish() {
    for (auto& [tensor, result] : results_) Write(*tensor, std::move(result));
  }

 private:
  const Scaling& scaling_;
  const at::ScalarType dtype_;
  std::vector<std::pair<const at::Tensor*, Value>> results_;
};

// ---- Adam

struct Adam {
  double beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;
};

// The values of tensors that an op overwrites. If the op fails, the tensors get them back.
class DonatedValues {
 public:
  // If `keep` is true, the op doesn't overwrite them.
  DonatedValues(c10::ArrayRef<const at::Tensor*> tensors, bool keep) : tensors_(tensors) {
    for (const at::Tensor* each : tensors) values_.push_back(Read(*each));
    for (size_t i = 0; i < tensors.size() && !keep; ++i) {
      Cell* const cell = CellOf(*tensors[i]);
      if (IsTaken(i) || cell->value() != values_[i]) continue;
      values_[i].reset();
      taken_[i].emplace(cell);
    }
  }

  const Value& operator[](size_t i) const { return taken_[i] ? taken_[i]->get() : values_[i]; }
  // Returns whether nothing else has value i.
  bool donated(size_t i) const { return taken_[i] && taken_[i]->donated() != 0; }
  // Gives the tensors the op's results.
  void Replace(const std::vector<Value>& results) {
    // A write to a part of a storage may fail, so it comes last.
    for (size_t i = 0; i < results.size(); ++i) {
      if (taken_[i]) taken_[i]->Set(results[i]);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (!taken_[i]) Write(*tensors_[i], results[i]);
    }
  }

 private:
  // Returns whether an earlier tensor has the storage of tensor i, and its value is taken.
  bool IsTaken(size_t i) const {
    for (size_t j = 0; j < i; ++j) {
      if (taken_[j] && CellOf(*tensors_[j]) == CellOf(*tensors_[i])) return true;
    }
    return false;
  }

  static constexpr size_t kMaxTensors = 4;
  const c10::ArrayRef<const at::Tensor*> tensors_;
  c10::SmallVector<Value, kMaxTensors> values_;
  std::array<std::optional<TakenValue>, kMaxTensors> taken_;
};

void AdamStep(const Adam& adam, const Scaling& scaling, Rate& lr, const at::Tensor& p,
              const at::Tensor& gradient, c10::ArrayRef<const at::Tensor*> state,
              const at::Tensor& count) {
  Step step(scaling, p);
  const Value g = Cast(step.Gradient(gradient), p.scalar_type());
  const Value number = ReadAs(count, count.scalar_type(), DeviceOf(p));
  DonatedValues values(state, /*keep=*/scaling.skip.defined());
  c10::SmallVector<In, 7> inputs;
  uint32_t donated = 0;
  for (size_t i = 0; i < state.size(); ++i) {
    if (i == 1) inputs.emplace_back(g);
    if (values.donated(i)) donated |= 1U << inputs.size();
    inputs.emplace_back(values[i]);
  }
  inputs.emplace_back(number);
  inputs.push_back(lr.as(at::kDouble));
  std::vector<Value> made = PushAll("adam_step", inputs,
                                    {{"beta1", adam.beta1},
                                     {"beta2", adam.beta2},
                                     {"eps", adam.eps},
                                     {"weight_decay", adam.weight_decay},
                                     {"decoupled", adam.decoupled},
                                     {"amsgrad", adam.amsgrad},
                                     {"maximize", adam.maximize}},
                                    donated);
  if (scaling.skip) {
    for (size_t i = 0; i < made.size(); ++i) made[i] = scaling.Choose(values[i], made[i]);
  }
  values.Replace(made);
  step.Finish();
}

template <bool kDecoupled, typename Lr>
void FusedAdam(TensorList self, TensorList grads, TensorList m, TensorList v, TensorList vmax,
               TensorList steps, Lr lr, double beta1, double beta2, double weight_decay, double eps,
               bool amsgrad, bool maximize, const MaybeTensor& grad_scale,
               const MaybeTensor& found_inf) {
  CheckLengths(kDecoupled ? "_fused_adamw_" : "_fused_adam_", self,
               {grads, m, v, amsgrad ? vmax : self, steps});
  if (self.empty()) return;
  const Adam adam{beta1, beta2, weight_decay, eps, amsgrad, maximize, kDecoupled};
  const Scaling scaling(DeviceOf(self[0]), grad_scale, found_inf);
  Rate rate(lr, DeviceOf(self[0]));
  for (size_t i = 0; i < self.size(); ++i) {
    if (self[i].numel() == 0) continue;
    c10::SmallVector<const at::Tensor*, 4> state = {&self[i], &m[i], &v[i]};
    if (amsgrad) state.push_back(&vmax[i]);
    AdamStep(adam, scaling, rate, self[i], grads[i], state, steps[i]);
  }
}

// ---- stochastic gradient descent

template <typename Lr>
void FusedSgd(TensorList self, TensorList grads, TensorList buffers, double weight_decay,
              double momentum, Lr lr, double dampening, bool nesterov, bool maximize,
              bool is_first_step, const MaybeTensor& grad_scale, const MaybeTensor& found_inf) {
  CheckLengths("_fused_sgd_", self, {grads, momentum == 0 ? self : buffers});
  if (self.empty()) return;
  const Scaling scaling(DeviceOf(self[0]), grad_scale, found_inf);
  Rate rate(lr, DeviceOf(self[0]));
  for (size_t i = 0; i < self.size(); ++i) {
    const at::Tensor& p = self[i];
    if (p.numel() == 0) continue;
    Step step(scaling, p);
    c10::SmallVector<In, 4> inputs;
    const Value x = Read(p), g = step.Gradient(grads[i]);
    const bool has_buffer = momentum != 0 && !is_first_step;
    const Value buffer = has_buffer ? Read(buffers[i]) : Value();
    for (const In& input : {In(x), In(g), rate.as(step.dtype())}) inputs.push_back(input);
    if (has_buffer) inputs.emplace_back(buffer);
    const std::vector<Value> made = PushAll("sgd_step", inputs,
                                            {{"momentum", momentum},
                                             {"dampening", dampening},
                                             {"weight_decay", weight_decay},
                                             {"nesterov", nesterov && momentum != 0},
                                             {"maximize", maximize}});
    if (momentum != 0) step.Replace(buffers[i], made[1]);
    step.Replace(p, made[0]);
    step.Finish();
  }
}

// ---- Adagrad

template <typename Lr>
void FusedAdagrad(TensorList self, TensorList grads, TensorList sums, TensorList steps, Lr lr,
                  double lr_decay, double weight_decay, double eps, bool maximize,
                  const MaybeTensor& grad_scale, const MaybeTensor& found_inf) {
  CheckLengths("_fused_adagrad_", self, {grads, sums, steps});
  if (self.empty()) return;
  const Scaling scaling(DeviceOf(self[0]), grad_scale, found_inf);
  Rate rate(lr, DeviceOf(self[0]));
  for (size_t i = 0; i < self.size(); ++i) {
    const at::Tensor& p = self[i];
    if (p.numel() == 0) continue;
    Step step(scaling, p);
    const Value g = step.Gradient(grads[i]);
    const std::vector<Value> made =
        PushAll("adagrad_step",
                {Read(p), g, Read(sums[i]), ReadAs(steps[i], steps[i].scalar_type(), DeviceOf(p)),
                 rate.as(at::kDouble)},
                {{"lr_decay", lr_decay},
                 {"weight_decay", weight_decay},
                 {"eps", eps},
                 {"maximize", maximize}});
    step.Replace(p, made[0]);
    step.Replace(sums[i], made[1]);
    step.Finish();
  }
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_fused_adam_", FusedAdam<false, double>);
  m.impl("_fused_adamw_", FusedAdam<true, double>);
  m.impl("_fused_adam_.tensor_lr", FusedAdam<false, const at::Tensor&>);
  m.impl("_fused_adamw_.tensor_lr", FusedAdam<true, const at::Tensor&>);
  m.impl("_fused_sgd_", FusedSgd<double>);
  m.impl("_fused_sgd_.tensor_lr", FusedSgd<const at::Tensor&>);
  m.impl("_fused_adagrad_", FusedAdagrad<double>);
  m.impl("_fused_adagrad_.tensor_lr", FusedAdagrad<const at::Tensor&>);
}

}  // namespace torch_tensord
