"""Restores pickled tensors and devices."""

from __future__ import annotations

from . import _core
from ._errors import Error


def restore_device(name: str) -> _core.Device:
    """Returns the device with this name of the current connection, or else the default device."""
    default = _core.default_device()
    connection = _core.current_connection()
    if connection is None:
        return default
    try:
        return connection.device(name)
    except Error:
        return default


def restore(data: bytes, dtype: _core.dtype, shape: tuple[int, ...], device: str) -> _core.Tensor:
    """Returns a tensor with these elements, which are row-major, on restore_device(device)."""
    return _core._from_bytes(data, dtype, shape, restore_device(device))
