// Functions of the Python API: a table row becomes a Python function and, perhaps, a method.
//
// A row has the signature as a stub writes it. The parser of calls, the docstring, the stub and
// inspect.signature() are made from this text, so they agree.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/client/losses.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/random.h"

namespace tensord::python {

inline constexpr int kMaxParameters = 12;

struct FunctionSpec;

// The arguments of one call, by the position of the parameter. An argument that is None counts as
// absent. The functions raise TypeError if the argument has a wrong type.
class Call {
 public:
  explicit Call(const FunctionSpec& spec) : spec_(spec) {}

  // Returns the name of the function that is called.
  const std::string& function() const;

  bool has(int i) const { return at(i) != nullptr; }
  PyObject* at(int i) const { return values_[i] == Py_None ? nullptr : values_[i]; }

  // Returns the argument, or raises TypeError if it is absent.
  PyObject* object(int i) const;
  // The argument must be a Tensor.
  const Tensor& tensor(int i) const;
  const Tensor* tensor_or_null(int i) const { return has(i) ? &tensor(i) : nullptr; }
  // A Tensor or a number.
  Operand operand(int i) const;
  std::vector<Tensor> tensors(int i) const;
  Scalar scalar(int i) const;
  Scalar scalar(int i, Scalar otherwise) const { return has(i) ? scalar(i) : otherwise; }
  bool flag(int i, bool otherwise = false) const;
  int64_t integer(int i) const { return ReadInt(object(i), name(i)); }
  int64_t integer(int i, int64_t otherwise) const { return has(i) ? integer(i) : otherwise; }
  double number(int i) const;
  double number(int i, double otherwise) const { return has(i) ? number(i) : otherwise; }
  std::string text(int i) const;
  // One int or a sequence of ints; of a parameter with a star also several ints. Absent: empty.
  std::vector<int64_t> ints(int i) const;
  Shape shape(int i) const { return Shape(absl::MakeConstSpan(ints(i))); }
  std::optional<DType> dtype(int i) const;
  DType dtype(int i, DType otherwise) const { return dtype(i).value_or(otherwise); }
  Device device(int i) const { return ReadDevice(values_[i]); }

  // Binds the arguments to the parameters. If they don't fit, raises TypeError.
  void Bind(PyObject* const* args, size_t num_positional, PyObject* keyword_names);

 private:
  const char* name(int i) const;
  [[noreturn]] void RaiseWrongType(int i, const char* expected) const;
  void BindKeyword(PyObject* keyword, PyObject* value);

  const FunctionSpec& spec_;
  std::array<PyObject*, kMaxParameters> values_{};
  nb::object star_;  // the arguments of the parameter with a star
};

struct Parameter {
  std::string name;
  PyObject* interned = nullptr;
  bool required = false;
  bool positional_only = false;
  bool keyword_only = false;
  bool star = false;
};

struct FunctionSpec {
  std::string name;        // "sum"
  std::string parameters;  // "x: Tensor, /, axis: int | Sequence[int] | None = None"
  std::string returns;     // "Tensor"
  std::string doc;
  std::function<nb::object(const Call&)> body;
  bool is_method = true;  // the function is also a method of Tensor

  std::vector<Parameter> parsed = {};  // made by AddFunction
};

// Adds the function to the module and, if it is a method, to the class.
void AddFunction(nb::module_& m, nb::class_<Box>& tensor, FunctionSpec spec);

// A row of a table of functions whose result is one tensor. TENSORD_RUN makes `run` of an
// expression in which `c` is the call.
struct Row {
  const char* name;
  const char* parameters;
  const char* doc;
  Tensor (*run)(const Call&);
  std::optional<bool> is_method = {};  // none: as the others of the table
};
#define TENSORD_RUN(expression) [](const Call& c) -> Tensor { return expression; }
void AddRows(nb::module_& m, nb::class_<Box>& tensor, absl::Span<const Row> rows, bool are_methods);

// Reads an argument that names random numbers: a Generator, a seed, or a Tensor with a state
// (int64[2]). If it is absent, they come from the default generator.
RandomSource ReadSource(const Call& call, int i);

// Reads "none", "mean" or "sum". If the argument is absent, returns kMean.
LossReduction ReadLossReduction(const Call& call, int i);

// The parts of functions.cc: each adds the functions of one file.
void AddSchemaFunctions(nb::module_& m, nb::class_<Box>& tensor);
void AddTensorFunctions(nb::module_& m, nb::class_<Box>& tensor);
void AddCreationFunctions(nb::module_& m, nb::class_<Box>& tensor);
void AddNetworkFunctions(nb::module_& m, nb::class_<Box>& tensor);
void AddTrainingFunctions(nb::module_& m, nb::class_<Box>& tensor);

}  // namespace tensord::python
