// The Python type of the functions, and the parser of their calls.
#include "tensord/client/python/tensord/_core/function.h"

#include <structmember.h>

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace tensord::python {
namespace {

// A Python function. It is never destroyed before the process ends.
struct FunctionObject {
  PyObject_HEAD vectorcallfunc call;
  const FunctionSpec* spec;
};

// PyTorch's names of parameters, and ours.
constexpr std::pair<absl::string_view, absl::string_view> kAliases[] = {
    {"dim", "axis"}, {"keepdim", "keepdims"}, {"dims", "axes"}, {"size", "shape"}};

// Splits at commas that aren't in brackets.
std::vector<std::string> SplitParameters(absl::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(std::move(part));
      part.clear();
    } else {
      part.push_back(c);
    }
  }
  if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

std::vector<Parameter> ParseParameters(absl::string_view text) {
  std::vector<Parameter> parameters;
  bool keyword_only = false;
  for (const std::string& part : SplitParameters(text)) {
    absl::string_view stripped = absl::StripAsciiWhitespace(part);
    if (stripped == "/") {
      for (Parameter& parameter : parameters) parameter.positional_only = true;
    } else if (stripped == "*") {
      keyword_only = true;
    } else {
      Parameter parameter;
      parameter.star = absl::ConsumePrefix(&stripped, "*");
      parameter.required = !parameter.star && !absl::StrContains(stripped, '=');
      parameter.keyword_only = keyword_only;
      parameter.name = std::string(stripped.substr(0, stripped.find(':')));
      parameter.interned = PyUnicode_InternFromString(parameter.name.c_str());
      keyword_only = keyword_only || parameter.star;
      parameters.push_back(std::move(parameter));
    }
  }
  return parameters;
}

const FunctionSpec& SpecOf(PyObject* self) {
  return *reinterpret_cast<FunctionObject*>(self)->spec;
}

PyObject* VectorCall(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return Guarded<PyObject*>(nullptr, [&] {
    const FunctionSpec& spec = SpecOf(self);
    Call call(spec);
    call.Bind(args, PyVectorcall_NARGS(flags), names);
    return spec.body(call).release().ptr();
  });
}

std::string Declaration(const FunctionSpec& spec) {
  return absl::StrCat("def ", spec.name, "(", spec.parameters, ") -> ", spec.returns);
}

PyObject* GetName(PyObject* self, void*) { return PyUnicode_FromString(SpecOf(self).name.c_str()); }
PyObject* GetDoc(PyObject* self, void*) { return PyUnicode_FromString(SpecOf(self).doc.c_str()); }
PyObject* GetModule(PyObject*, void*) { return PyUnicode_FromString("tensord"); }

// The stub of the function, for nanobind.stubgen.
PyObject* GetStub(PyObject* self, void*) {
  const FunctionSpec& spec = SpecOf(self);
  std::string doc = spec.doc;
  for (size_t at = 0; (at = doc.find('\n', at)) != std::string::npos; at += 5) {
    doc.replace(at, 1, "\n    ");
  }
  const std::string stub = absl::StrCat(Declaration(spec), ":\n    \"\"\"", doc,
                                        absl::StrContains(doc, '\n') ? "\n    " : "", "\"\"\"");
  return PyUnicode_FromString(stub.c_str());
}

// For inspect.signature(), which asks for this attribute first.
PyObject* GetSignature(PyObject* self, void*) {
  return Guarded<PyObject*>(nullptr, [&] {
    return nb::module_::import_("tensord._signature")
        .attr("of")(Declaration(SpecOf(self)).c_str())
        .release()
        .ptr();
  });
}

PyObject* Repr(PyObject* self) {
  return PyUnicode_FromFormat("<function tensord.%s>", SpecOf(self).name.c_str());
}

PyObject* Reduce(PyObject* self, PyObject*) { return GetName(self, nullptr); }

// As a function of Python: an attribute of a class becomes a method.
PyObject* DescrGet(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) return Py_NewRef(self);
  // PyMethod_New isn't in the stable ABI. Calls x.f(…) don't get here (METHOD_DESCRIPTOR).
  static const auto* const type = new nb::object(nb::module_::import_("types").attr("MethodType"));
  return PyObject_CallFunctionObjArgs(type->ptr(), self, object, nullptr);
}

PyGetSetDef getters[] = {{"__name__", GetName, nullptr, nullptr, nullptr},
                         {"__qualname__", GetName, nullptr, nullptr, nullptr},
                         {"__module__", GetModule, nullptr, nullptr, nullptr},
                         {"__doc__", GetDoc, nullptr, nullptr, nullptr},
                         {"__signature__", GetSignature, nullptr, nullptr, nullptr},
                         {"__nb_signature__", GetStub, nullptr, nullptr, nullptr},
                         {}};
PyMethodDef methods[] = {{"__reduce__", Reduce, METH_NOARGS, nullptr}, {}};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, call), READONLY, nullptr}, {}};
PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_repr, reinterpret_cast<void*>(Repr)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(DescrGet)},
                       {Py_tp_getset, getters},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {}};
PyType_Spec type_spec = {"tensord._core.function", sizeof(FunctionObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                             Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                         slots};

PyTypeObject* FunctionType() {
  static auto* const type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));
  if (type == nullptr) throw nb::python_error();
  return type;
}

}  // namespace

void Call::Bind(PyObject* const* args, size_t num_positional, PyObject* keyword_names) {
  const std::vector<Parameter>& parameters = spec_.parsed;
  size_t used = 0;
  for (; used < num_positional; ++used) {
    if (used >= parameters.size() || parameters[used].keyword_only) break;
    if (parameters[used].star) {
      // x.reshape(2, 3) or x.reshape((2, 3)).
      const size_t count = num_positional - used;
      if (count == 1) {
        values_[used] = args[used];
      } else {
        star_ = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
        for (size_t i = 0; i < count; ++i) {
          PyTuple_SetItem(star_.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(args[used + i]));
        }
        values_[used] = star_.ptr();
      }
      used = num_positional;
      break;
    }
    values_[used] = args[used];
  }
  if (used < num_positional) {
    RaiseTypeError(absl::StrCat(spec_.name, "() takes at most ", used,
                                " positional arguments, and got ", num_positional));
  }
  const Py_ssize_t num_keywords = keyword_names == nullptr ? 0 : PyTuple_Size(keyword_names);
  for (Py_ssize_t i = 0; i < num_keywords; ++i) {
    BindKeyword(PyTuple_GetItem(keyword_names, i), args[num_positional + static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].required && values_[i] == nullptr) {
      RaiseTypeError(absl::StrCat(spec_.name, "() needs the argument '", parameters[i].name,
                                  "': ", spec_.name, "(", spec_.parameters, ")"));
    }
  }
}

void Call::BindKeyword(PyObject* keyword, PyObject* value) {
  const std::vector<Parameter>& parameters = spec_.parsed;
  const auto bind = [&](size_t i) {
    if (values_[i] != nullptr) {
      RaiseTypeError(
          absl::StrCat(spec_.name, "() got the argument '", parameters[i].name, "' twice"));
    }
    values_[i] = value;
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].interned == keyword && !parameters[i].positional_only) return bind(i);
  }
  const absl::string_view name = nb::cast<const char*>(nb::handle(keyword));
  absl::string_view wanted = name;
  for (const auto& [alias, own] : kAliases) {
    if (name == alias) wanted = own;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.positional_only) continue;
    if (parameter.name == name || parameter.name == wanted) return bind(i);
  }
  RaiseTypeError(absl::StrCat(spec_.name, "() has no argument '", name, "': ", spec_.name, "(",
                              spec_.parameters, ")"));
}

const char* Call::name(int i) const { return spec_.parsed[i].name.c_str(); }

PyObject* Call::object(int i) const {
  if (has(i)) return at(i);
  RaiseTypeError(absl::StrCat(spec_.name, "(): ", name(i), " must not be None"));
}

void Call::RaiseWrongType(int i, const char* expected) const {
  const bool is_array_for_tensor =
      absl::StartsWith(expected, "a Tensor") && IsNumPyArray(values_[i]);
  RaiseTypeError(absl::StrCat(
      spec_.name, "(): ", name(i), " must be ", expected, ", not ", TypeName(values_[i]),
      is_array_for_tensor ? "; copy the array to the device with tensord.asarray(array)" : ""));
}

const Tensor& Call::tensor(int i) const {
  const Tensor* const tensor = TensorOrNull(object(i));
  if (tensor == nullptr) RaiseWrongType(i, "a Tensor");
  return *tensor;
}

Operand Call::operand(int i) const {
  if (const Tensor* tensor = TensorOrNull(object(i))) return *tensor;
  Scalar scalar = false;
  if (!ReadScalar(object(i), &scalar)) RaiseWrongType(i, "a Tensor or a number");
  return scalar;
}

std::vector<Tensor> Call::tensors(int i) const {
  return ReadTensors(object(i), absl::StrCat(spec_.name, "(): ", name(i)).c_str());
}

Scalar Call::scalar(int i) const {
  Scalar scalar = false;
  if (!ReadScalar(object(i), &scalar)) RaiseWrongType(i, "a number");
  return scalar;
}

bool Call::flag(int i, bool otherwise) const {
  if (!has(i)) return otherwise;
  if (!PyBool_Check(at(i))) RaiseWrongType(i, "bool");
  return at(i) == Py_True;
}

const std::string& Call::function() const { return spec_.name; }

double Call::number(int i) const {
  return std::visit([](auto value) { return static_cast<double>(value); }, scalar(i).value());
}

std::string Call::text(int i) const {
  if (!PyUnicode_Check(object(i))) RaiseWrongType(i, "str");
  return nb::cast<std::string>(nb::handle(at(i)));
}

std::vector<int64_t> Call::ints(int i) const {
  if (values_[i] == Py_None && spec_.parsed[i].star) RaiseWrongType(i, "ints");
  return has(i) ? ReadInts(at(i), name(i)) : std::vector<int64_t>();
}

std::optional<DType> Call::dtype(int i) const {
  return has(i) ? std::optional(ReadDType(at(i))) : std::nullopt;
}

void AddFunction(nb::module_& m, nb::class_<Box>& tensor, FunctionSpec spec) {
  auto* const kept = new FunctionSpec(std::move(spec));
  kept->parsed = ParseParameters(kept->parameters);
  if (kept->parsed.size() > kMaxParameters)
    throw std::runtime_error(kept->name + " has too many parameters");
  auto* const function = PyObject_New(FunctionObject, FunctionType());
  if (function == nullptr) throw nb::python_error();
  function->call = VectorCall;
  function->spec = kept;
  const nb::object object = nb::steal(reinterpret_cast<PyObject*>(function));
  m.attr(kept->name.c_str()) = object;
  if (kept->is_method) tensor.attr(kept->name.c_str()) = object;
}

void AddRows(nb::module_& m, nb::class_<Box>& tensor, absl::Span<const Row> rows,
             bool are_methods) {
  for (const Row& row : rows) {
    AddFunction(m, tensor,
                {.name = row.name,
                 .parameters = row.parameters,
                 .returns = "Tensor",
                 .doc = row.doc,
                 .body = [run = row.run](const Call& call) { return Wrap(run(call)); },
                 .is_method = row.is_method.value_or(are_methods)});
  }
}

void BindFunctions(nb::module_& m, nb::class_<Box>& tensor) {
  AddSchemaFunctions(m, tensor);
  AddTensorFunctions(m, tensor);
  AddCreationFunctions(m, tensor);
  AddNetworkFunctions(m, tensor);
  AddTrainingFunctions(m, tensor);
}

}  // namespace tensord::python
