"""The devices of torch.tensord: how many there are, their names, and the current one."""

import types
import warnings
from typing import Any, TypeAlias

import tensord
import torch

from . import _availability

Device: TypeAlias = "torch.device | str | int | None"

_ops = torch.ops.tensord


def index_of(device: Device) -> int:
    """Returns the number of a device, which may be None, an int, a name or a torch.device."""
    if device is None:
        return _ops._current_device()
    if isinstance(device, int):
        return device
    named = torch.device(device)
    if named.type != "tensord":
        raise ValueError(f"expected a device of tensord, but got {named}")
    return _ops._current_device() if named.index is None else named.index


def _num_connected() -> int:
    """Returns the number of devices of the process's connection. If there is none, returns 0."""
    known: int = _ops._num_known_devices()
    connection = None if known else tensord.current_connection()
    return known if connection is None else len(connection.devices)


def is_available() -> bool:
    """Returns True if there is a device. Doesn't connect, and starts no server.

    At the first call, another process connects to the servers and ends. If there is no server, returns True if a
    private server could be started. The result False is kept for at least ten seconds. Then a call asks again.
    """
    if _num_connected() or _availability.starts_private_server():
        return True
    answer = _availability.count_devices()
    return device_count() > 0 if answer is None else answer[0] > 0


def device_count() -> int:
    """Returns the number of devices of all servers. If there is none, warns, and returns 0.

    Until this process has connected, another process connects, counts the devices and ends: once for the same servers.
    """
    count = _num_connected()
    if count:
        return count
    answer = _availability.count_devices()
    if answer is None:
        try:
            answer = _ops._connect(), ""
        except RuntimeError as e:
            answer = 0, str(e)
    count, reason = answer
    if reason:
        warnings.warn(f"tensord has no devices: {reason}", stacklevel=2)
    return count


def current_device() -> int:
    return _ops._current_device()


def set_device(device: Device) -> None:
    _ops._set_device(index_of(device))


def get_device_name(device: Device = None) -> str:
    """Returns the name of a device at its server, such as "cuda:0" or "gpu-a/cuda:0"."""
    return _ops._device_name(index_of(device))


def get_device_server(device: Device = None) -> str:
    """Returns the address of the device's server."""
    return _ops._device_server(index_of(device))


def get_device_kind(device: Device = None) -> str:
    """Returns "cuda" or "cpu"."""
    return _ops._device_kind(index_of(device))


def get_device_properties(device: Device = None) -> types.SimpleNamespace:
    """Returns an object with `name`, `kind`, `server` and `total_memory`, in bytes. Asks the server, and waits."""
    return types.SimpleNamespace(
        name=get_device_name(device),
        kind=get_device_kind(device),
        server=get_device_server(device),
        total_memory=_ops._memory(index_of(device))[1],
    )


class device:
    """A context in which tensors are made on this device."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.previous = -1

    def __enter__(self) -> "device":
        self.previous = _ops._exchange_device(self.idx)
        return self

    def __exit__(self, *unused: object) -> None:
        _ops._exchange_device(self.previous)


class device_of(device):
    """device_of(x) is a context in which tensors are made on the device of a tensor or storage. If that isn't a device
    of tensord, the context does nothing. device_of("gpu-a/cuda:1") returns the torch.device of this name."""

    def __new__(cls, obj: Any) -> Any:
        return _device_with_name(obj) if isinstance(obj, str) else super().__new__(cls)

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "tensord" else None)


def _device_with_name(name: str) -> torch.device:
    names = [get_device_name(i) for i in range(_ops._connect())]
    if name not in names:
        raise ValueError(f"no device has the name {name!r}; there are {', '.join(names)}")
    return torch.device("tensord", names.index(name))


def init() -> None:
    """Connects, if the process has no connection."""
    _ops._connect()


def is_initialized() -> bool:
    """Returns whether the process has connected. In a forked child of a process that had connected, returns False."""
    return _ops._is_initialized()
