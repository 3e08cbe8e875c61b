// Ops that are built from other ops.
//
// A composition has a formula in place of kernels: a function that builds the op from other ops. It
// runs over specs, so client and server infer the same results. The server runs it once for given
// specs and attributes, and prepares what it has built. Formulas are in ops/compositions/.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/ops/elementwise_list.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

struct CompositionLoop;

// What a formula has built. Values are numbered from 0: first the inputs, then the results of each
// step. No step is a composition. A number is a step: the op `full` with the shape [].
struct Composition {
  static constexpr size_t kMaxSteps = 512;  // without the steps within loops
  static constexpr size_t kMaxDepth = 8;    // of compositions within compositions

  struct Step {
    const OpSchema* schema;  // null for a loop
    Attributes attrs;
    absl::InlinedVector<uint32_t, 3> operands;
    uint32_t result;  // the first one; those of the other outputs follow
    std::shared_ptr<const CompositionLoop> loop = nullptr;
  };

  uint32_t num_inputs = 0;
  std::deque<TensorSpec> specs;  // of every value; references to them stay valid
  std::vector<Step> steps;
  absl::InlinedVector<uint32_t, 2> outputs;

  // While formulas run:
  // The compositions whose formulas run, the outermost first.
  absl::InlinedVector<absl::string_view, 2> running;
  absl::Status error;  // of the first op that can't be built; the steps are then incomplete
};

// A step that runs a composition once for each index of axis 0 of some sequences. The step's
// operands are the first values of the states, the sequences, and the constants. Its results are
// the states and the rows of each round, as Formula::Loop() returns them.
struct CompositionLoop {
  // Its inputs are the states, an element of each sequence, and the constants. Its outputs are the
  // next states and the rows.
  Composition body;
  int64_t length = 0;  // 1 or more
  bool reverse = false;
  absl::InlinedVector<bool, 2> stacked;  // for each state: whether the result has all its values
  uint32_t num_sequences = 0;

  uint32_t num_states() const { return static_cast<uint32_t>(stacked.size()); }
};

// A value of a formula: computed, or a number. Cheap to copy. It must not outlive the Composition
// that it belongs to. In an op, the first operand that isn't a number determines the dtype of a
// number. The condition of `where` doesn't count:
//   no such operand                            float32
//   floating or complex                        that dtype
//   integer or bool, the number is a fraction  float32
//   bool, an integer other than 0 and 1        int64
//   otherwise                                  the operand's dtype
class Value {
 public:
  // Makes a number.
  template <typename T>
  requires std::is_arithmetic_v<T> Value(T number) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_floating_point_v<T>) {
      number_ = static_cast<double>(number);
    } else {
      number_ = static_cast<int64_t>(number);
    }
  }

  bool is_number() const { return built_ == nullptr; }
  // Call the functions below only if is_number() is false. The references are valid as long as the
  // Composition.
  const TensorSpec& spec() const { return built_->specs[index_]; }
  DType dtype() const { return spec().dtype; }
  const Shape& shape() const { return spec().shape; }
  Value To(DType dtype) const;

 private:
  friend struct ValueAccess;
  Value(Composition* built, uint32_t index) : built_(built), index_(index) {}

  Composition* built_ = nullptr;
  uint32_t index_ = 0;
  std::variant<double, int64_t> number_;
};

// The inputs and attributes of a composition, from which a formula builds its outputs. After the
// first error the values that a formula builds mean nothing, and ops have one output.
class Formula {
 public:
  // All arguments must outlive this object.
  Formula(const BoundAttributes& attrs, absl::Span<const Value> inputs, Composition* built)
      : attrs_(attrs), inputs_(inputs), built_(built) {}

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  Value input(int i) const { return inputs_[i]; }
  absl::Span<const Value> inputs() const { return inputs_; }
  const BoundAttributes& attrs() const { return attrs_; }
  // Returns an attribute of type kScalar.
  Value Number(absl::string_view attr) const;

  // Adds a tensor whose elements all have the value of a number.
  Value Full(const Value& number, const Shape& shape, DType dtype);
  // Adds an op without inputs, and returns its first output.
  Value Create(absl::string_view op, const Attributes& attrs);

  // A loop over axis 0 of `sequences`, from the first index to the last, or with `reverse` from the
  // last to the first.
  struct LoopState {
    Value first;           // the value before the first round
    bool stacked = false;  // whether the result has the values after all rounds, in place of the
                           // last one
  };
  struct LoopOperands {
    absl::Span<const LoopState> states;
    absl::Span<const Value> sequences;  // of one length, at least 1
    absl::Span<const Value> constants;  // other values that `round` reads
    bool reverse = false;
  };
  // What a round reads: a state is that after the previous round, or in the first round
  // LoopState::first. An element is the part of a sequence with the index of the round, without
  // axis 0.
  struct LoopInputs {
    absl::Span<const Value> states, elements, constants;
  };
  struct LoopResults {
    std::vector<Value> states;  // after the round; each has the spec of the state before it
    std::vector<Value> rows;
  };
  // Adds a loop, whose rounds `round` builds. It is called once, and may use no values but those
  // that it gets. Returns the states, and then the rows of all rounds along a new axis 0. Stacked
  // values and rows have the index of their round. If the composition has failed, returns nothing.
  std::vector<Value> Loop(const LoopOperands& operands,
                          absl::FunctionRef<LoopResults(const LoopInputs&)> round);

  // If the composition has no error yet, records INVALID_ARGUMENT with the message "mish: <what>;
  // input is int32[2, 3]". Afterwards the formula should return: values that it builds mean
  // nothing.
  void Fail(absl::string_view what);
  // Fails unless all inputs are floating.
  void RequireFloating();
  // Returns false if the composition has failed.
  bool ok() const { return built_->error.ok(); }

  // Appends an output. Every formula has at least one. If an output is an input or another output,
  // a copy takes its place.
  void Return(Value value) { outputs_.push_back(value); }

  absl::Span<const Value> outputs() const { return outputs_; }

 private:
  const BoundAttributes& attrs_;
  const absl::Span<const Value> inputs_;
  Composition* const built_;
  absl::InlinedVector<Value, 2> outputs_;
};

// Runs the formula of `schema`. Returns its errors, which name the composition and the inner op:
// "cross_entropy_loss: cross_entropy: target has the shape [3] and must have that of x …".
absl::StatusOr<Composition> Compose(const OpSchema& schema, InferenceContext::Inputs inputs,
                                    const BoundAttributes& attrs);

// OpSchema::infer of every composition: infers the outputs that its formula builds. If all its ops
// are aliases, the result is one.
absl::Status InferComposition(InferenceContext& ctx);

// Adds an op to the formula of its inputs, of which at least one isn't a number. Returns its
// outputs.
absl::InlinedVector<Value, 2> ApplyAll(absl::string_view op, absl::Span<const Value> inputs,
                                       const Attributes& attrs = {});
// Does the same, and returns the first output.
Value Apply(absl::string_view op, std::initializer_list<Value> inputs,
            const Attributes& attrs = {});

// Returns the value with another shape, of as many elements.
Value Reshape(const Value& x, const Shape& shape);
// Returns the elements of x from `start` up to `stop` along an axis.
Value Slice(const Value& x, int64_t axis, int64_t start, int64_t stop);
// Returns a value with the same elements, in memory of its own.
Value Copy(const Value& x);
// Returns the value, broadcast to a shape.
Value BroadcastTo(const Value& x, const Shape& shape);
// Returns the parts, joined along an axis.
Value Concat(std::initializer_list<Value> parts, int64_t axis);
// Returns x with `values` at the places offset + i strides[0] + j strides[1] + ….
Value AsStridedScatter(const Value& x, const Value& values, const Shape& shape,
                       absl::Span<const int64_t> strides, int64_t offset);

// Returns the dtype to which the values are promoted together. If two values have no common dtype,
// the result means nothing: an op of these values then fails.
DType PromotedDType(absl::Span<const Value> values);
// Returns the dtype in which a formula that rounds more than once computes results of `dtype`:
// float32 for float16 and bfloat16, otherwise `dtype`.
constexpr DType WideDType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}
// Returns the dtype of the result of a function of real numbers: float32 for integers and bool,
// otherwise `dtype`.
constexpr DType FloatingDType(DType dtype) { return IsFloating(dtype) ? dtype : DType::kFloat32; }

// Returns the schema of a composition of one output whose inputs are broadcast together.
OpSchema ElementwiseComposition(const char* name, const char* doc, void (*formula)(Formula&),
                                std::vector<std::string> input_names = {"x"},
                                std::vector<AttrDef> attrs = {});

// The elementwise ops by name, for formulas.
namespace formula {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

#define TENSORD_FUNCTION(name, Function, typing, cost, doc) \
  inline Value Function(const Value& x) { return Apply(#name, {x}); }
TENSORD_UNARY_OPS(TENSORD_FUNCTION)
#undef TENSORD_FUNCTION
#define TENSORD_FUNCTION(name, Function, typing, cost, doc) \
  inline Value Function(const Value& a, const Value& b) { return Apply(#name, {a, b}); }
TENSORD_BINARY_OPS(TENSORD_FUNCTION)
#undef TENSORD_FUNCTION
inline Value Where(const Value& condition, const Value& x, const Value& y) {
  return Apply("where", {condition, x, y});
}

inline Value operator+(const Value& a, const Value& b) { return Add(a, b); }
inline Value operator-(const Value& a, const Value& b) { return Sub(a, b); }
inline Value operator*(const Value& a, const Value& b) { return Mul(a, b); }
inline Value operator/(const Value& a, const Value& b) { return Div(a, b); }
inline Value operator-(const Value& x) { return Neg(x); }

}  // namespace formula
}  // namespace tensord
