"""Makes inspect.signature() work for the functions of the extension."""

from __future__ import annotations

import inspect


def of(declaration: str) -> inspect.Signature:
    """Returns the signature of "def name(parameters) -> type". The extension calls this function."""
    namespace: dict[str, object] = {}
    exec(compile(f"from __future__ import annotations\n{declaration}: ...", "<tensord>", "exec"), namespace)
    functions = [value for value in namespace.values() if inspect.isfunction(value)]
    return inspect.signature(functions[0])
