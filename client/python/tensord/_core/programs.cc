// Program: ops that are recorded once and run many times.
#include "tensord/client/program.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {
namespace {

// A program, and what its function returned: one tensor, or a sequence.
struct RecordedProgram {
  Program program;
  bool returns_one = false;
};

// Calls the Python function with placeholders.
class Recording {
 public:
  explicit Recording(nb::handle function) : function_(function) {}

  std::vector<Tensor> operator()(absl::Span<const Tensor> inputs) {
    try {
      const nb::list arguments = WrapAll({inputs.begin(), inputs.end()});
      const nb::object result =
          nb::steal(PyObject_CallObject(function_.ptr(), nb::tuple(arguments).ptr()));
      if (!result.is_valid()) throw nb::python_error();
      if (const Tensor* one = TensorOrNull(result.ptr())) {
        returns_one_ = true;
        return {*one};
      }
      return ReadTensors(result.ptr(), "the result of the function");
    } catch (nb::python_error& e) {
      error_.emplace(
          std::move(e));  // the library has no exceptions, so it must not pass through it
      return {};
    }
  }
  void RaiseIfFailed() {
    if (error_.has_value()) throw nb::python_error(std::move(*error_));
  }
  bool returns_one() const { return returns_one_; }

 private:
  const nb::handle function_;
  std::optional<nb::python_error> error_;
  bool returns_one_ = false;
};

RecordedProgram Record(nb::handle function, const nb::args& examples) {
  const std::vector<Tensor> inputs = ReadTensors(examples.ptr(), "examples");
  if (inputs.empty())
    RaiseValueError("Program() needs the function and an example of each of its inputs");
  std::vector<TensorSpec> specs;
  for (const Tensor& input : inputs) specs.push_back(input.spec());
  Recording recording(function);
  absl::StatusOr<Program> program = Program::Record(inputs[0].device(), std::move(specs),
                                                    [&](auto span) { return recording(span); });
  recording.RaiseIfFailed();
  return {Unwrap(std::move(program)), recording.returns_one()};
}

nb::object Run(const RecordedProgram& self, const nb::args& arguments) {
  const std::vector<Tensor> inputs = ReadTensors(arguments.ptr(), "inputs");
  std::vector<Tensor> outputs = self.program.Run(inputs);
  if (self.returns_one) return Wrap(std::move(outputs[0]));
  return nb::tuple(WrapAll(std::move(outputs)));
}

nb::tuple ToSpecs(const std::vector<TensorSpec>& specs) {
  nb::list list;
  for (const TensorSpec& spec : specs)
    list.append(nb::make_tuple(ToTuple(spec.shape), ToPython(spec.dtype)));
  return nb::tuple(list);
}

}  // namespace

void BindPrograms(nb::module_& m) {
  nb::class_<RecordedProgram>(m, "Program",
                              "A function of tensors, recorded as the sequence of its ops. A run "
                              "sends one small message, regardless of\n"
                              "the number of ops.\n\n"
                              "    step = tensord.Program(lambda x: tensord.relu(x @ w + b), x)\n"
                              "    y = step(x)\n\n"
                              "The function is called once, with placeholders that have the "
                              "shapes, dtypes and device of the examples. It\n"
                              "can't read their values. Other tensors that it uses, such as w, "
                              "become constants of the program. Everything\n"
                              "else that it does, such as printing, happens only in this call.")
      .def(
          "__init__",
          [](RecordedProgram* self, nb::handle function, const nb::args& examples) {
            new (self) RecordedProgram(Record(function, examples));
          },
          nb::sig("def __init__(self, function: Callable[..., Tensor | Sequence[Tensor]], /, "
                  "*examples: Tensor) -> "
                  "None"))
      .def("__call__", &Run, nb::sig("def __call__(self, *inputs: Tensor) -> Any"),
           "Runs the program. Returns a tensor or a tuple of tensors, as the function did.")
      .def_prop_ro(
          "inputs", [](const RecordedProgram& p) { return ToSpecs(p.program.inputs()); },
          nb::sig("def inputs(self) -> tuple[tuple[tuple[int, ...], dtype], ...]"),
          "The shape and the dtype of each input.")
      .def_prop_ro(
          "outputs", [](const RecordedProgram& p) { return ToSpecs(p.program.outputs()); },
          nb::sig("def outputs(self) -> tuple[tuple[tuple[int, ...], dtype], ...]"),
          "The shape and the dtype of each output.")
      .def_prop_ro("num_ops", [](const RecordedProgram& p) { return p.program.num_ops(); })
      .def(
          "__reduce__",
          [](nb::handle) -> nb::object {
            RaiseTypeError("can't pickle a Program: record it in the process that needs it");
          },
          nb::sig("def __reduce__(self) -> NoReturn"));
}

}  // namespace tensord::python
