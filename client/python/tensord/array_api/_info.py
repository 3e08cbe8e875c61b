"""The standard's section "Inspection"."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._core import Device, dtype
from . import _data_types as dt

_MAX_RANK = 32  # kMaxRank of the C++ library


class NamespaceInfo:
    """What the namespace supports. The methods that name devices connect if there is no connection yet."""

    def capabilities(self) -> dict[str, Any]:
        """Returns what the standard asks for: boolean indexing and shapes that depend on values work; they wait."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MAX_RANK}

    def extensions(self) -> tuple[str, ...]:
        """Returns the names of the standard's extensions that the namespace has: neither linalg nor fft."""
        return ()

    def default_device(self) -> Device:
        """Returns the device on which functions make tensors if the call names none."""
        return _core.default_device()

    def devices(self) -> tuple[Device, ...]:
        """Returns the devices of the current connection."""
        default = _core.default_device()  # connects
        connection = _core.current_connection()
        devices = () if connection is None else tuple(connection.devices)
        return devices if default in devices else (*devices, default)

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        """Returns the dtypes that functions choose if neither the call nor the values determine one."""
        return {
            "real floating": dt.DEFAULT_FLOAT,
            "complex floating": dt.DEFAULT_COMPLEX,
            "integral": dt.DEFAULT_INT,
            "indexing": _core.int64,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, dtype]:
        """Returns the dtypes of this kind that have all of the standard's functions, so no complex ones.

        kind: as in isdtype(); default: all.
        """
        kinds = tuple(dt._KINDS) if kind is None else kind
        if not isinstance(kinds, (str, tuple)):
            raise TypeError(f"dtypes(): kind must be a str or a tuple of them, not {type(kind).__name__}")
        return {one.name: one for one in dt.ARITHMETIC_DTYPES if dt.isdtype(one, kinds)}


def __array_namespace_info__() -> NamespaceInfo:
    """Returns what the namespace supports: capabilities, devices, dtypes, extensions."""
    return NamespaceInfo()
