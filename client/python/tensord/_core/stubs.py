"""Writes the stub file of the extension.

usage: stubs.py EXTENSION OUTPUT
"""

import importlib.machinery
import importlib.util
import pathlib
import sys

from nanobind.stubgen import StubGen

# The types of arguments. They exist only in stubs.
ALIASES = """\
from collections.abc import Callable, Coroutine, Iterator, Sequence
import os
from typing import Any, NoReturn, Self, TypeAlias
import numpy
from numpy.typing import NDArray

Scalar: TypeAlias = bool | int | float
DTypeLike: TypeAlias = dtype | str | type | numpy.dtype[Any]
DeviceLike: TypeAlias = Device | str
ArrayLike: TypeAlias = Any
Progress: TypeAlias = bool | Callable[[int, int], object] | None

"""

OPERAND = "other: Tensor | Scalar, /"
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]
METHODS = {f"__{prefix}{name}__": f"(self, {OPERAND}) -> Tensor" for name in BINARY for prefix in ("", "r", "i")}
METHODS |= {f"__{prefix}matmul__": "(self, other: Tensor, /) -> Tensor" for prefix in ("", "r", "i")}
METHODS |= {f"__{name}__": f"(self, {OPERAND}) -> Tensor" for name in ("lt", "le", "gt", "ge")}
METHODS |= {f"__{name}__": f"(self, {OPERAND}) -> Tensor" for name in ("eq", "ne")}
METHODS |= {f"__{name}__": "(self) -> Tensor" for name in ("neg", "pos", "abs", "invert")}
METHODS |= {f"__{name}__": f"(self) -> {name}" for name in ("bool", "int", "float")}
METHODS |= {
    "__index__": "(self) -> int",
    "__len__": "(self) -> int",
    "__iter__": "(self) -> Iterator[Tensor]",
    "__repr__": "(self) -> str",
    "__getitem__": "(self, key: Any, /) -> Tensor",
    "__setitem__": "(self, key: Any, value: Any, /) -> None",
}
# Private values of the module. The type of a capsule has no name.
VALUES = {"_op_names": "tuple[str, ...]", "_C_API": "object"}
# Slots that Python adds beside the ones above.
HIDDEN = {"__delitem__", "__array_ufunc__", "__hash__"}


class Stubs(StubGen):
    """Adds annotations to the operators, which have no signature of their own."""

    def put(self, value, name=None, parent=None):
        if name in VALUES:
            self.write_ln(f"{name}: {VALUES[name]}\n")
            return
        if getattr(parent, "__name__", None) == "Tensor":
            if name in HIDDEN:
                return
            if name in METHODS:
                # object's methods of these names return bool.
                note = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
                self.write_ln(f"def {name}{METHODS[name]}: ...{note}")
                self.write("\n")
                return
        super().put(value, name, parent)


def load(path):
    """Returns the extension. It imports nothing of the package."""
    loader = importlib.machinery.ExtensionFileLoader("_core", path)
    spec = importlib.util.spec_from_file_location("_core", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["_core"] = module
    loader.exec_module(module)
    return module


def main():
    module = load(sys.argv[1])
    generator = Stubs(module=module, include_private=True, quiet=True)
    generator.put(module)
    text = generator.get()
    head, _, rest = text.partition("\n\n") if text.startswith('"""') else ("", "", text)
    imports = [line for line in rest.splitlines() if line.startswith(("import ", "from "))]
    body = "\n".join(line for line in rest.splitlines() if line not in imports)
    imports = [line for line in imports if line not in ALIASES]
    pathlib.Path(sys.argv[2]).write_text(f"{head}\n\n" + "\n".join(imports) + "\n" + ALIASES + body + "\n")


if __name__ == "__main__":
    main()
