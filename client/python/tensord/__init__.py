"""Tensors on the GPUs of other machines.

    import tensord

    with tensord.connect("127.0.0.1:50051"):
        x = tensord.asarray([[1.0, 2.0], [3.0, 4.0]])
        print(tensord.relu(x @ x - 8))

Names and meanings are those of PyTorch and NumPy. Ops return at once; reading a tensor waits for its values.
"""

from __future__ import annotations

try:
    from . import _core
    from ._core import *  # noqa: F403
except ImportError as error:
    if "_core" not in str(error):
        raise
    raise ImportError(
        "the compiled part of tensord is missing: install the package with `pip install ./client/python/tensord`,"
        " and don't import it from the source tree"
    ) from error
from ._connect import connect as connect  # "as" exports the name to type checkers
from ._errors import (
    AbortedError as AbortedError,
    AlreadyExistsError as AlreadyExistsError,
    CancelledError as CancelledError,
    DataLossError as DataLossError,
    DeadlineExceededError as DeadlineExceededError,
    Error as Error,
    FailedPreconditionError as FailedPreconditionError,
    InternalError as InternalError,
    InvalidArgumentError as InvalidArgumentError,
    NotFoundError as NotFoundError,
    OutOfMemoryError as OutOfMemoryError,
    OutOfRangeError as OutOfRangeError,
    PermissionDeniedError as PermissionDeniedError,
    ResourceExhaustedError as ResourceExhaustedError,
    UnauthenticatedError as UnauthenticatedError,
    UnavailableError as UnavailableError,
    UnimplementedError as UnimplementedError,
)
from ._version import __version__ as __version__

bool = _core.dtype("bool")
pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import aio as aio, nn as nn


def __getattr__(name: str) -> object:
    """Imports a submodule when a program first uses it."""
    if name in ("aio", "nn"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "TYPE_CHECKING")]
