// The functions that are made from the registry of ops: names, arguments, defaults, documentation.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/operands.h"
#include "tensord/client/python/tensord/_core/function.h"
#include "tensord/common/ops/op_schema.h"

namespace tensord::python {
namespace {

// Ops that have no function of their own: other parts of the API run them.
constexpr absl::string_view kNotFunctions[] = {
    "cast",      // Tensor.to
    "constant",  // asarray
    "conv",      // conv1d, conv2d, conv3d
    "sdpa",      // scaled_dot_product_attention
    "slice",     // x[start:stop:step]
    // These are only in C++ (client/functional.h): they take results of the forward op.
    "adam_step", "avg_pool_backward", "batch_norm_backward", "conv_backward_input",
    "conv_backward_weight", "cross_entropy_backward", "cross_entropy_loss",
    "cross_entropy_loss_backward", "layer_norm_backward", "max_pool_backward", "sdpa_backward",
    "group_norm_backward", "gru_cell_backward", "gru_layer_backward", "lstm_cell_backward",
    "lstm_layer_backward", "rnn_layer_backward", "softmax_backward",
    // These are parts of other ops.
    "gru_gates_backward", "lstm_gates_backward"};

// Ops whose functions take other arguments than the op. tensor_functions.cc, creation_functions.cc,
// network_functions.cc and training_functions.cc have them.
constexpr absl::string_view kOtherArguments[] = {"arange",
                                                 "as_strided_scatter",
                                                 "broadcast_to",
                                                 "clamp",
                                                 "concat",
                                                 "dropout",
                                                 "embedding_backward",
                                                 "eye",
                                                 "full",
                                                 "index",
                                                 "index_put",
                                                 "linspace",
                                                 "nonzero",
                                                 "normal",
                                                 "ones",
                                                 "permute",
                                                 "randint",
                                                 "reshape",
                                                 "scatter",
                                                 "searchsorted",
                                                 "sgd_step",
                                                 "slice_backward",
                                                 "slice_scatter",
                                                 "uniform",
                                                 "where",
                                                 "zeros",
                                                 "avg_pool",
                                                 "batch_norm",
                                                 "cross_entropy",
                                                 "layer_norm",
                                                 "group_norm",
                                                 "max_pool",
                                                 "nll_loss",
                                                 "nll_loss_backward",
                                                 "binary_cross_entropy_with_logits",
                                                 "binary_cross_entropy_with_logits_backward"};

template <size_t n>
bool Contains(const absl::string_view (&names)[n], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Python's name of an attribute. NumPy and the array API call the axes of a reduction "axis".
absl::string_view ParameterName(const AttrDef& attr) {
  return attr.name == "axes" ? absl::string_view("axis") : attr.name;
}

const char* TypeOf(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return "bool";
    case AttrType::kInt:
      return "int";
    case AttrType::kFloat:
      return "float";
    case AttrType::kString:
      return "str";
    case AttrType::kInts:
      return "int | Sequence[int]";
    case AttrType::kDType:
      return "DTypeLike";
    case AttrType::kScalar:
      return "Scalar";
    case AttrType::kBytes:
      break;
  }
  return "bytes";
}

// Returns the default as Python writes it. "None" stands for the op's own default.
std::string DefaultText(const AttrValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const double* real = std::get_if<double>(&value)) {
    if (std::isnan(*real)) return "None";
    const std::string text = absl::StrCat(*real);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (const std::string* text = std::get_if<std::string>(&value))
    return absl::StrCat("\"", *text, "\"");
  return "None";
}

std::string AttrParameter(const AttrDef& attr) {
  std::string text = absl::StrCat(ParameterName(attr), ": ", TypeOf(attr.type));
  if (!attr.default_value.has_value()) return text;
  const std::string value = DefaultText(*attr.default_value);
  return absl::StrCat(text, value == "None" ? " | None" : "", " = ", value);
}

std::string Parameters(const OpSchema& op) {
  std::vector<std::string> parts;
  for (int i = 0; i < op.max_inputs; ++i) {
    const bool may_be_number = op.numbers.has_value() && i >= op.numbers->first;
    parts.push_back(absl::StrCat(op.input_names[i], ": Tensor", may_be_number ? " | Scalar" : "",
                                 i < op.min_inputs ? "" : " | None = None"));
  }
  if (op.min_inputs == op.max_inputs) parts.push_back("/");
  for (const AttrDef& attr : op.attrs) parts.push_back(AttrParameter(attr));
  return absl::StrJoin(parts, ", ");
}

std::string Documentation(const OpSchema& op) {
  std::string doc = absl::StrCat(op.doc, "\n\nShapes: ", op.signature);
  if (!op.attrs.empty()) absl::StrAppend(&doc, "\n");
  for (const AttrDef& attr : op.attrs)
    absl::StrAppend(&doc, "\n", ParameterName(attr), ": ", attr.doc);
  return doc;
}

AttrValue ReadAttr(const Call& call, int i, AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return call.flag(i);
    case AttrType::kInt:
      return call.integer(i);
    case AttrType::kFloat:
      return call.number(i);
    case AttrType::kInts:
      return call.ints(i);
    case AttrType::kDType:
      return *call.dtype(i);
    case AttrType::kScalar:
      return internal::ToAttr(call.scalar(i));
    case AttrType::kString:
    case AttrType::kBytes:
      break;
  }
  return call.text(i);
}

// Runs an op that takes numbers in place of some inputs. The op has no attributes.
nb::object RunWithNumbers(const OpSchema& op, const Call& call) {
  absl::InlinedVector<Operand, 4> operands;
  for (int i = 0; i < op.max_inputs; ++i) {
    if (i < op.numbers->first) {
      operands.push_back(call.tensor(i));
    } else if (i < op.min_inputs || call.has(i)) {
      operands.push_back(call.operand(i));
    }
  }
  return Wrap(internal::RunOperands(op.name, operands, 0, *op.numbers));
}

nb::object Run(const OpSchema& op, bool several_outputs, const Call& call) {
  absl::InlinedVector<const Tensor*, 3> inputs;
  for (int i = 0; i < op.max_inputs; ++i) {
    if (i < op.min_inputs || call.has(i)) inputs.push_back(&call.tensor(i));
  }
  Attributes attrs;
  for (size_t k = 0; k < op.attrs.size(); ++k) {
    const int i = op.max_inputs + static_cast<int>(k);
    if (call.has(i)) attrs.Set(op.attrs[k].name, ReadAttr(call, i, op.attrs[k].type));
  }
  if (!several_outputs) return Wrap(internal::Enqueue(op.name, inputs, attrs));
  nb::list outputs;
  for (Tensor& output : Unwrap(internal::EnqueueAll(op.name, inputs, attrs, {}))) {
    outputs.append(Wrap(std::move(output)));
  }
  return nb::tuple(outputs);
}

std::string ReturnType(int outputs) {
  if (outputs == 1) return "Tensor";
  return absl::StrCat("tuple[", absl::StrJoin(std::vector<const char*>(outputs, "Tensor"), ", "),
                      "]");
}

// Returns whether the function is also a method of Tensor.
bool IsMethod(const OpSchema& op) {
  constexpr absl::string_view kMethods[] = {"select_scatter", "take_along_dim"};
  constexpr absl::string_view kNoMethods[] = {"add_scaled", "one_hot", "trunc_divide"};
  if (absl::EndsWith(op.name, "_backward") || Contains(kNoMethods, op.name)) return false;
  return op.formula == nullptr || op.max_inputs == 1 || op.numbers.has_value() ||
         Contains(kMethods, op.name);
}

FunctionSpec FromSchema(const OpSchema& op) {
  const int outputs = CountOutputs(op);
  const bool several = outputs > 1;
  return {.name = op.name,
          .parameters = Parameters(op),
          .returns = ReturnType(outputs),
          .doc = Documentation(op),
          .body =
              [&op, several](const Call& call) {
                return op.numbers.has_value() ? RunWithNumbers(op, call) : Run(op, several, call);
              },
          .is_method = IsMethod(op)};
}

// The elementwise ops call the functions of client/ops.h, which also take scalars.
struct Elementwise {
  absl::string_view name;
  Tensor (*unary)(const Tensor&);
  Tensor (*binary)(Operand, Operand);
};

constexpr Elementwise kElementwise[] = {
#define TENSORD_ROW(name, Function, typing, cost, doc) {#name, &Function, nullptr},
    TENSORD_UNARY_OPS(TENSORD_ROW)
#undef TENSORD_ROW
#define TENSORD_ROW(name, Function, typing, cost, doc) {#name, nullptr, &Function},
        TENSORD_BINARY_OPS(TENSORD_ROW)
#undef TENSORD_ROW
};

FunctionSpec FromElementwise(const OpSchema& op, const Elementwise& row) {
  FunctionSpec spec{.name = op.name, .returns = "Tensor", .doc = op.doc};
  if (row.unary != nullptr) {
    spec.parameters = "x: Tensor, /";
    spec.body = [run = row.unary](const Call& call) { return Wrap(run(call.tensor(0))); };
  } else {
    spec.parameters = "a: Tensor | Scalar, b: Tensor | Scalar, /";
    spec.body = [run = row.binary](const Call& call) {
      return Wrap(run(call.operand(0), call.operand(1)));
    };
  }
  return spec;
}

}  // namespace

void AddSchemaFunctions(nb::module_& m, nb::class_<Box>& tensor) {
  for (const Elementwise& row : kElementwise)
    AddFunction(m, tensor, FromElementwise(*FindOp(row.name), row));
  for (const OpSchema* op : AllOps()) {
    const bool done = std::any_of(std::begin(kElementwise), std::end(kElementwise),
                                  [&](const Elementwise& row) { return row.name == op->name; });
    if (done || Contains(kNotFunctions, op->name) || Contains(kOtherArguments, op->name)) continue;
    AddFunction(m, tensor, FromSchema(*op));
  }
  nb::list names;
  for (const OpSchema* op : AllOps()) {
    if (!Contains(kNotFunctions, op->name)) names.append(nb::str(op->name.c_str()));
  }
  m.attr("_op_names") = nb::tuple(names);  // the tests check that each is a function
}

}  // namespace tensord::python
