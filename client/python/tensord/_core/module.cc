// The extension module tensord._core.
#include "tensord/client/python/tensord/_core/core.h"

NB_MODULE(_core, m) {
  namespace python = tensord::python;
  m.doc() = "The compiled part of tensord. Use the package tensord.";
  // Tensors that are alive when the interpreter ends aren't leaks.
  nanobind::set_leak_warnings(false);
  python::InstallWaitHooks();
  python::BindDTypes(m);
  python::BindClient(m);
  auto tensor = python::BindTensor(m);
  python::BindInterchange(m, tensor);
  python::BindDlpack(m, tensor);
  python::BindFunctions(m, tensor);
  python::BindPrograms(m);
  python::BindFiles(m);
  python::BindGroups(m);
  python::BindCApi(m);
}
