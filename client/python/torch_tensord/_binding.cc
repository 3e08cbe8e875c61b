// What the PyTorch device needs of Python: the functions of the package tensord, and its exceptions.
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include "api.h"

TORCH_LIBRARY_FRAGMENT(tensord, m) {
  m.def("_use_python(int table) -> ()", [](int64_t table) {
    // PyTorch passes on the exception of Python that is set, and a python_error that has none
    // itself leaves it set.
    torch_tensord::UsePython(reinterpret_cast<const TensordApi*>(table),
                             [] { throw python_error(); });
  });
}
