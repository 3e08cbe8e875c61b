// What the PyTorch device needs of Python: the functions of the package tensord, and its exceptions.
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include "api.h"

TORCH_LIBRARY_FRAGMENT(tensord, m) {
  m.def("_use_python(int table) -> ()", [](int64_t table) {
    // PyTorch catches python_error, and leaves the exception of Python set.
    torch_tensord::UsePython(reinterpret_cast<const TensordApi*>(table),
                             [] { throw python_error(); });
  });
}
