// The registry of ops: their inputs, attributes, results and inference errors.
//
// Client and server run the same inference. So the client knows the dtype and shape of a result,
// and the errors of the op, before it sends anything.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/device_name.h"
#include "tensord/common/ops/elementwise.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

struct AttrDef {
  std::string name;
  AttrType type;  // kScalar accepts a bool, an int or a float, and keeps its type
  std::optional<AttrValue> default_value;  // none: the attribute is required
  std::string doc;
};

class Formula;
class InferenceContext;

// How long a CPU thread takes per element that the op reads or writes. An op that takes only a few
// microseconds runs on the thread that received it.
enum class OpCost : uint8_t {
  kCopy,     // a nanosecond or less, about as long as copying the element
  kCompute,  // several nanoseconds
  kSelect,   // as kCopy, but of input 0, the op reads only as many elements as it writes
  kSort,     // some tens of nanoseconds
  kWindows,  // several nanoseconds for each element of each window (attribute "kernel")
  kPairs,    // the time depends on the product of two inputs' sizes
};

// Inputs that may be numbers.
struct NumberInputs {
  int first;  // they are the inputs from this position on
  // If false, a number has the dtype to which the op's tensors are promoted. If true, it is float32
  // if that dtype has 16 bits.
  bool is_factor = false;
};

struct OpSchema {
  std::string name;       // "matmul": snake case, PyTorch's or NumPy's name if they have the op
  std::string signature;  // "(M,K)·(K,N) -> (M,N)": shapes, for messages and documentation
  std::string doc;        // one sentence
  int min_inputs = 0;
  int max_inputs = 0;  // if a call has no inputs, the caller names a device
  std::vector<AttrDef> attrs;
  // Adds the context's outputs, sets its input dtypes, and brings its attributes into normal form.
  absl::Status (*infer)(InferenceContext&) = nullptr;
  // If `elementwise` is set, this isn't used: the op then has the cost of its function (CostOf).
  OpCost cost = OpCost::kCompute;
  // If the op is elementwise, this is its function. The backends run such ops by their functions,
  // each alone or several fused into one kernel. Attributes may choose another function:
  // FunctionOf() returns the one to run.
  std::optional<ElementwiseFunction> elementwise = std::nullopt;
  // True if inputs and the attribute "dtype" may be complex. If false, PlanOp() refuses them.
  bool takes_complex = false;
  // The inputs' names, such as "x", "weight", "bias": as many as max_inputs, or none if the op
  // takes a list of tensors. The registry adds "x" for one input, and "a", "b" for two.
  std::vector<std::string> input_names = {};
  // If it is set, inputs may be numbers: clients also take a scalar in place of a tensor.
  std::optional<NumberInputs> numbers = std::nullopt;
  // True if values of the inputs can make the op fail, such as an index out of range. Only the
  // server finds such an error, when the op runs.
  bool value_checked = false;
  // True if the output is input 0 with some elements changed. All backends' kernels then accept an
  // output that has the memory of input 0, and touch only these elements.
  bool updates_input = false;
  // Pairs of an input and an output of the same size. All backends' kernels accept an output that
  // has the memory of its input.
  std::vector<std::pair<int, int>> in_place = {};
  // If this is set, the op is a composition (ops/composition.h): this function builds it from other
  // ops. It then has no kernel, and the registry sets `infer`.
  void (*formula)(Formula&) = nullptr;
};

// Returns the number of outputs after the arrow of the signature, without those in brackets. The
// real number differs for some attributes and inputs of layer_norm, batch_norm,
// group_norm_backward, adam_step and the gradients of network ops.
int CountOutputs(const OpSchema& schema);

// Returns the name of an input for messages: "weight", or "input 3" if the op has no names.
std::string InputName(const OpSchema& schema, size_t position);

using OutputSpecs = absl::InlinedVector<TensorSpec, 2>;

// The result of inference for given inputs. `attrs` is in normal form: every attribute of the
// schema is present with its declared type, and axes, ranges and shapes are resolved:
//   reductions   "axes": ints, sorted, non-negative, never empty unless the input is a scalar
//   sum, prod    as reductions; "dtype": resolved
//   softmax      "axis": int >= 0; also of softmax_backward, cross_entropy, its gradient, sort and
//                topk
//   layer_norm_backward  "gradients": ints, ascending, from 0 to 2, never empty
//   batch_norm_backward  "gradients": as of layer_norm_backward
//   pools        "kernel", "stride", "padding", "dilation": one entry per spatial axis
//   conv         "stride", "dilation": one entry per spatial axis; "padding": two, at the beginning
//                and at the end. Also of its gradients
//   scans        "axis": int >= 0; "dtype": resolved
//   concat       "axis": int >= 0; also of index, gather, index_put and scatter
//   as_strided   "strides", "offset": 0 where they don't matter; also of as_strided_scatter
//   reshape      "shape": without -1
//   permute      "axes": non-negative
//   slice        "starts", "stops", "steps": one entry per axis of the input. If step >= 1,
//                0 <= start <= stop <= dim. If step <= -1, the elements are start, start + step, …
//                above stop, 0 <= stop <= start < dim, or stop is -dim - 1 if they end with
//                element 0. A negative step that selects one element becomes 1. If it selects none,
//                start and stop are 0
//   full         "dtype": resolved; "value": bool, int or float by the dtype's kind, in its range.
//                For complex dtypes it is a float, and for uint64 values above int64's range, too
//   arange       "dtype": resolved; "start", "stop", "step": all ints (an integer dtype) or all
//                floats
//   eye          "cols": >= 0
//   uniform, normal, randint, dropout, sdpa with an input "state": "seed" and "stream" are 0
//   sdpa         "scale": the number that 0 stands for; also of sdpa_backward
// PlanOp() with these attributes returns the same plan.
// `input_dtypes[i]` is the dtype in which the kernel reads input i. If it differs from the input's
// own dtype, the engine casts the input first.
struct OpPlan {
  const OpSchema* schema = nullptr;
  Attributes attrs;
  absl::InlinedVector<DType, 3> input_dtypes;
  OutputSpecs outputs;  // one or more
  // The result has bytes of input 0 (reshape, a cast to the same dtype, a slice of leading rows):
  // it shares the input's memory, and no kernel runs. Only ops with one output are aliases.
  bool alias = false;
  int64_t alias_offset_bytes = 0;  // where the result's bytes begin in the input's

  const TensorSpec& output() const { return outputs[0]; }
};

// The attributes of a call: those that the caller has given, and the defaults of the others. Refers
// to both.
class BoundAttributes : public TypedLookups<BoundAttributes> {
 public:
  // Checks the attributes that are given. If one is unknown, missing or ill-typed, returns
  // INVALID_ARGUMENT.
  static absl::StatusOr<BoundAttributes> Bind(const OpSchema& schema, const Attributes& given);

  // Returns nullptr if the op has no such attribute.
  const AttrValue* Find(absl::string_view name) const;
  // Accepts an int, too.
  double Float(absl::string_view name) const;

 private:
  explicit BoundAttributes(const OpSchema& schema)
      : schema_(&schema), values_(schema.attrs.size(), nullptr) {}

  const OpSchema* schema_;
  absl::InlinedVector<const AttrValue*, 6> values_;  // by position in OpSchema::attrs
};

class InferenceContext {
 public:
  using Inputs = absl::Span<const TensorSpec* const>;

  // `given` are the caller's attributes, and `attrs` those with the defaults. If `plan` is null,
  // only the outputs are wanted. All arguments must outlive this object.
  InferenceContext(const OpSchema& schema, Inputs inputs, const Attributes& given,
                   const BoundAttributes& attrs, OutputSpecs* outputs, OpPlan* plan)
      : schema_(schema),
        inputs_(inputs),
        given_(given),
        attrs_(attrs),
        outputs_(outputs),
        plan_(plan) {}

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  const TensorSpec& input(int i) const { return *inputs_[i]; }
  const OpSchema& schema() const { return schema_; }
  Inputs inputs() const { return inputs_; }
  const BoundAttributes& attrs() const { return attrs_; }
  bool IsGiven(absl::string_view name) const { return given_.Find(name) != nullptr; }
  // If false, only the outputs are wanted: attributes in normal form and aliases have no effect.
  bool wants_plan() const { return plan_ != nullptr; }
  // Set an attribute in normal form. attrs() keeps the value that was given.
  void SetAttr(absl::string_view name, AttrValue value) {
    if (wants_plan()) plan_->attrs.Set(name, std::move(value));
  }
  void SetInts(absl::string_view name, absl::Span<const int64_t> values) {
    if (wants_plan()) SetAttr(name, std::vector<int64_t>(values.begin(), values.end()));
  }
  // Appends an output. Every op has at least one.
  void AddOutput(DType dtype, Shape shape) { outputs_->push_back({dtype, std::move(shape)}); }
  void SetAlias(int64_t offset_bytes = 0) {
    if (!wants_plan()) return;
    plan_->alias = true;
    plan_->alias_offset_bytes = offset_bytes;
  }
  void ReadInputAs(int i, DType dtype) {
    if (wants_plan()) plan_->input_dtypes[i] = dtype;
  }

  // Returns the name of an input: "weight", or "input 3" if the op has no names.
  std::string NameOf(int i) const;
  // Returns INVALID_ARGUMENT: "matmul: <what>; inputs are float32[2, 3] and float32[4, 5]".
  absl::Status Error(absl::string_view what) const;

 private:
  const OpSchema& schema_;
  const Inputs inputs_;
  const Attributes& given_;
  const BoundAttributes& attrs_;
  OutputSpecs* const outputs_;
  OpPlan* const plan_;
};

// Returns nullptr if there is no such op.
const OpSchema* FindOp(absl::string_view name);

// Returns all ops, sorted by name. The registry is built once and never changes.
absl::Span<const OpSchema* const> AllOps();

// Checks the number of inputs and the attributes (unknown, missing, ill-typed), fills defaults,
// runs inference and validates the result. Every failure is INVALID_ARGUMENT, except an unknown op,
// which is NOT_FOUND and lists the nearest names.
absl::StatusOr<OpPlan> PlanOp(absl::string_view op, absl::Span<const TensorSpec> inputs,
                              const Attributes& attrs);
// Does the same, but sets only the outputs, which takes less time. `*outputs` must be empty.
absl::Status InferOutputs(absl::string_view op, InferenceContext::Inputs inputs,
                          const Attributes& attrs, OutputSpecs* outputs);

// An input that is a tensor, and its place.
struct PlacedInput {
  size_t position;  // among all inputs of the op
  uint64_t handle;
  const TensorSpec* spec;
  DeviceName device;
};

// Returns the position of the input that should stay on its device if the inputs are on different
// ones: the weight, which programs use again, or else the first.
size_t PositionToKeep(const OpSchema& schema);

// Returns OK if all inputs are on one device. Otherwise returns INVALID_ARGUMENT that names the op,
// the names, handles, specs and devices of two inputs, and the copy that would correct the call.
absl::Status CheckSameDevice(absl::string_view op, absl::Span<const PlacedInput> inputs);

}  // namespace tensord
