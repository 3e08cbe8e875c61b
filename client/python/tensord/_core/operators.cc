#include "tensord/client/python/tensord/_core/operators.h"

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/elementwise.h"

namespace tensord::python {
namespace {

using Binary = Tensor (*)(Operand, Operand);

// An operand of an operator: a Tensor or a number.
class Side {
 public:
  // Returns false for any other object.
  bool Read(PyObject* object) {
    tensor_ = TensorOrNull(object);
    return tensor_ != nullptr || ReadScalar(object, &scalar_);
  }
  Operand operand() const { return tensor_ != nullptr ? Operand(*tensor_) : Operand(scalar_); }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar scalar_ = false;
};

// Returns NotImplemented, so that Python calls the operator of the other object. If one operand is
// a numpy.ndarray, raises TypeError, because NumPy's message wouldn't say what to do.
PyObject* RefuseOperands(PyObject* a, PyObject* b) {
  for (PyObject* const object : {a, b}) {
    if (!IsNumPyArray(object)) continue;
    RaiseTypeError(absl::StrCat("an operator got a tensord.Tensor and a ", TypeName(object),
                                "; copy the array to the device with tensord.asarray(array), or "
                                "the tensor to the host with x.numpy()"));
  }
  Py_RETURN_NOTIMPLEMENTED;
}

template <Binary function>
PyObject* BinarySlot(PyObject* a, PyObject* b) {
  return Guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    Side left, right;
    if (!left.Read(a) || !right.Read(b)) return RefuseOperands(a, b);
    return Wrap(function(left.operand(), right.operand())).release().ptr();
  });
}

// Gives the box of `a` the result, so that other names of this Python object see it.
template <Binary function>
PyObject* InPlaceSlot(PyObject* a, PyObject* b) {
  return Guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    Side right;
    if (!right.Read(b)) return RefuseOperands(a, b);
    Box& box = *BoxOrNull(a);
    Tensor result = function(box.value, right.operand());
    if (!result.ok()) Raise(result.status());
    if (result.dtype() != box.value.dtype()) {
      RaiseTypeError(absl::StrCat("an operator in place can't change the dtype from ",
                                  DTypeName(box.value.dtype()), " to ", DTypeName(result.dtype()),
                                  "; write x = x … y instead"));
    }
    if (result.shape() != box.value.shape()) {
      RaiseValueError(absl::StrCat("an operator in place can't change the shape from ",
                                   box.value.shape().ToString(), " to ", result.shape().ToString(),
                                   "; write x = x … y instead"));
    }
    Assign(box, std::move(result));
    return Py_NewRef(a);
  });
}

template <Tensor (*function)(const Tensor&)>
PyObject* UnarySlot(PyObject* a) {
  return Guarded<PyObject*>(nullptr,
                            [&] { return Wrap(function(*TensorOrNull(a))).release().ptr(); });
}

Tensor MatmulOf(Operand a, Operand b) {
  if (a.tensor() == nullptr || b.tensor() == nullptr)
    RaiseTypeError("@ needs a Tensor on both sides");
  return Matmul(*a.tensor(), *b.tensor());
}

Tensor Same(const Tensor& x) { return x; }

PyObject* PowSlot(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return BinarySlot<Pow>(a, b);
}
PyObject* InPlacePowSlot(PyObject* a, PyObject* b, PyObject*) { return InPlaceSlot<Pow>(a, b); }

PyObject* CompareSlot(PyObject* a, PyObject* b, int operation) {
  switch (operation) {
    case Py_LT:
      return BinarySlot<Lt>(a, b);
    case Py_LE:
      return BinarySlot<Le>(a, b);
    case Py_EQ:
      return BinarySlot<Eq>(a, b);
    case Py_NE:
      return BinarySlot<Ne>(a, b);
    case Py_GT:
      return BinarySlot<Gt>(a, b);
    default:
      return BinarySlot<Ge>(a, b);
  }
}

// Reads the only element and calls a conversion of Python on it.
PyObject* Convert(PyObject* self, PyObject* (*convert)(PyObject*)) {
  PyObject* const item = PyObject_CallMethod(self, "item", nullptr);
  if (item == nullptr) return nullptr;
  PyObject* const result = convert(item);
  Py_DECREF(item);
  return result;
}
PyObject* IntSlot(PyObject* self) {
  return Convert(self, [](PyObject* item) {
    return PyComplex_Check(item) ? PyErr_Format(PyExc_TypeError, "can't convert complex to int")
                                 : PyNumber_Long(item);
  });
}
PyObject* FloatSlot(PyObject* self) { return Convert(self, PyNumber_Float); }
PyObject* IndexSlot(PyObject* self) {
  if (!IsInteger(TensorOrNull(self)->dtype())) {
    return PyErr_Format(PyExc_TypeError, "only an integer tensor of one element can be an index");
  }
  return Convert(self, PyNumber_Index);
}
int BoolSlot(PyObject* self) {
  const Tensor& x = *TensorOrNull(self);
  if (x.num_elements() != 1) {
    PyErr_Format(PyExc_ValueError,
                 "the truth value of a tensor of %lld elements is ambiguous: use any() or all()",
                 static_cast<long long>(x.num_elements()));  // NOLINT: the type of %lld
    return -1;
  }
  PyObject* const item = PyObject_CallMethod(self, "item", nullptr);
  if (item == nullptr) return -1;
  const int truth = PyObject_IsTrue(item);
  Py_DECREF(item);
  return truth;
}

Py_ssize_t LengthSlot(PyObject* self) {
  const Tensor& x = *TensorOrNull(self);
  if (x.rank() > 0) return static_cast<Py_ssize_t>(x.shape().dim(0));
  PyErr_SetString(PyExc_TypeError, "a tensor without axes has no len()");
  return -1;
}

PyObject* GetItemSlot(PyObject* self, PyObject* key) {
  return Guarded<PyObject*>(nullptr,
                            [&] { return GetItem(*TensorOrNull(self), key).release().ptr(); });
}
int SetItemSlot(PyObject* self, PyObject* key, PyObject* value) {
  return Guarded<int>(-1, [&] {
    if (value == nullptr) RaiseTypeError("elements of a tensor can't be deleted");
    SetItem(*BoxOrNull(self), key, value);
    return 0;
  });
}

// Iterates over the first axis. Makes each part when the loop asks for it.
PyObject* IterSlot(PyObject* self) {
  return Guarded<PyObject*>(nullptr, [&] {
    const Tensor x = *TensorOrNull(self);
    if (x.rank() == 0) RaiseTypeError("can't iterate over a tensor without axes");
    const nb::module_ builtins = nb::module_::import_("builtins");
    const nb::object indices = builtins.attr("range")(x.shape().dim(0));
    return builtins.attr("map")(Wrap(x).attr("__getitem__"), indices).release().ptr();
  });
}

constexpr auto kMaxReprWait = std::chrono::seconds(5);

// A tensor that has failed prints its error; so a repr doesn't raise, except for an interrupt. A
// debugger, or a notebook, calls repr unasked, so it doesn't wait for long.
PyObject* ReprSlot(PyObject* self) {
  return Guarded<PyObject*>(nullptr, [&] {
    const Tensor x = *TensorOrNull(self);
    const auto deadline = std::chrono::steady_clock::now() + kMaxReprWait;
    bool late = false;
    std::string text =
        Interruptible([&] { return x.ToString(); },
                      [&] { return late = std::chrono::steady_clock::now() >= deadline; });
    if (late) {
      text = absl::StrCat("tensor(<waiting>, shape=", x.shape().ToString(), ", device='",
                          x.device().name(), "', dtype=", DTypeName(x.dtype()), ")");
    }
    if (absl::StartsWith(text, "tensor(<error: ")) text = ForPython(text);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  });
}

template <typename Function>
void* Pointer(Function function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

PyType_Slot* TensorSlots() {
#define TENSORD_OPERATOR(slot, Function)                  \
  {Py_nb_##slot, Pointer(&BinarySlot<Function>)}, {       \
    Py_nb_inplace_##slot, Pointer(&InPlaceSlot<Function>) \
  }
  static PyType_Slot slots[] = {TENSORD_OPERATOR(add, Add),
                                TENSORD_OPERATOR(subtract, Sub),
                                TENSORD_OPERATOR(multiply, Mul),
                                TENSORD_OPERATOR(true_divide, Div),
                                TENSORD_OPERATOR(floor_divide, FloorDivide),
                                TENSORD_OPERATOR(remainder, Remainder),
                                TENSORD_OPERATOR(and, BitwiseAnd),
                                TENSORD_OPERATOR(or, BitwiseOr),
                                TENSORD_OPERATOR(xor, BitwiseXor),
                                TENSORD_OPERATOR(lshift, ShiftLeft),
                                TENSORD_OPERATOR(rshift, ShiftRight),
                                TENSORD_OPERATOR(matrix_multiply, MatmulOf),
                                {Py_nb_power, Pointer(&PowSlot)},
                                {Py_nb_inplace_power, Pointer(&InPlacePowSlot)},
                                {Py_nb_negative, Pointer(&UnarySlot<Neg>)},
                                {Py_nb_positive, Pointer(&UnarySlot<Same>)},
                                {Py_nb_absolute, Pointer(&UnarySlot<Abs>)},
                                {Py_nb_invert, Pointer(&UnarySlot<BitwiseNot>)},
                                {Py_nb_bool, Pointer(&BoolSlot)},
                                {Py_nb_int, Pointer(&IntSlot)},
                                {Py_nb_float, Pointer(&FloatSlot)},
                                {Py_nb_index, Pointer(&IndexSlot)},
                                {Py_tp_richcompare, Pointer(&CompareSlot)},
                                {Py_tp_iter, Pointer(&IterSlot)},
                                {Py_tp_repr, Pointer(&ReprSlot)},
                                {Py_mp_length, Pointer(&LengthSlot)},
                                {Py_mp_subscript, Pointer(&GetItemSlot)},
                                {Py_mp_ass_subscript, Pointer(&SetItemSlot)},
                                {0, nullptr}};
#undef TENSORD_OPERATOR
  return slots;
}

}  // namespace tensord::python
