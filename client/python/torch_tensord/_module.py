"""The module torch.tensord: devices, memory, random numbers and waits. See torch.cuda for the names."""

import collections
import contextlib
import time
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import tensord
import torch

_Device: TypeAlias = "torch.device | str | int | None"

_ops = torch.ops.tensord
_MODES = ("default", "warn", "error")
_RETRY_SECONDS = 10.0
_next_try = 0.0  # the earliest time at which is_available() connects, by time.monotonic()


def _index(device: _Device) -> int:
    """Returns the number of a device, which may be None, an int, a name or a torch.device."""
    if device is None:
        return _ops._current_device()
    if isinstance(device, int):
        return device
    named = torch.device(device)
    if named.type != "tensord":
        raise ValueError(f"expected a device of tensord, but got {named}")
    return _ops._current_device() if named.index is None else named.index


# ---- devices


def is_available() -> bool:
    """Returns True if there is a device. Connects, if the process has no connection.

    If connecting failed in the last ten seconds, returns False at once, because torch.compile calls this for each op.
    """
    global _next_try
    if not is_initialized() and tensord.current_connection() is None and time.monotonic() < _next_try:
        return False
    if device_count() > 0:
        return True
    _next_try = time.monotonic() + _RETRY_SECONDS
    return False


def device_count() -> int:
    """Returns the number of devices of all servers. Connects. If that fails, warns, and returns 0."""
    count, reason = _ops._device_count()
    if reason:
        warnings.warn(f"tensord has no devices: {reason}", stacklevel=2)
    return count


def current_device() -> int:
    return _ops._current_device()


def set_device(device: _Device) -> None:
    _ops._set_device(_index(device))


def get_device_name(device: _Device = None) -> str:
    """Returns the name of a device at its server, such as "cuda:0" or "gpu-a/cuda:0"."""
    return _ops._device_name(_index(device))


def get_device_server(device: _Device = None) -> str:
    """Returns the address of the device's server."""
    return _ops._device_server(_index(device))


def get_device_kind(device: _Device = None) -> str:
    """Returns "cuda" or "cpu"."""
    return _ops._device_kind(_index(device))


def get_device_properties(device: _Device = None) -> types.SimpleNamespace:
    """Returns an object with `name`, `kind`, `server` and `total_memory`, in bytes. Asks the server, and waits."""
    return types.SimpleNamespace(
        name=get_device_name(device),
        kind=get_device_kind(device),
        server=get_device_server(device),
        total_memory=mem_get_info(device)[1],
    )


def device_of(name: str) -> torch.device:
    """Returns the torch.device of a name such as "gpu-a/cuda:1"."""
    names = [get_device_name(i) for i in range(_ops._connect())]
    if name not in names:
        raise ValueError(f"no device has the name {name!r}; there are {', '.join(names)}")
    return torch.device("tensord", names.index(name))


class device:
    """A context in which tensors are made on this device."""

    def __init__(self, device: _Device) -> None:
        self.idx = -1 if device is None else _index(device)
        self.previous = -1

    def __enter__(self) -> "device":
        self.previous = _ops._exchange_device(self.idx)
        return self

    def __exit__(self, *unused: object) -> None:
        _ops._exchange_device(self.previous)


def init() -> None:
    """Connects, if the process has no connection."""
    _ops._connect()


def _lazy_init() -> None:
    _ops._connect()


def is_initialized() -> bool:
    return _ops._is_initialized()


def _is_in_bad_fork() -> bool:
    return _ops._in_bad_fork()


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


# ---- waits


def synchronize(device: _Device = None) -> None:
    """Waits until the device's server has run all ops of this process, and raises the first error."""
    _ops._synchronize(_index(device))


def set_sync_debug_mode(mode: int | str) -> None:
    """Warns ("warn") about each wait for a device, or raises an error ("error"), or does neither ("default")."""
    _ops._set_sync_debug_mode(mode if isinstance(mode, int) else _MODES.index(mode))


def get_sync_debug_mode() -> int:
    return _ops._get_sync_debug_mode()


_WAIT_KINDS = ("waits", "reads", "uploads", "tensor_waits", "synchronizes", "info_calls", "full_queue_waits")


def wait_stats(device: _Device = None) -> dict[str, float]:
    """Returns how often this process has waited for the device's server, by the kind of the wait, and the seconds.

    "waits" is the sum of the kinds. Only the difference between two calls is of interest. Doesn't wait.
    """
    *counts, nanoseconds = _ops._wait_stats(_index(device))
    return {**dict(zip(_WAIT_KINDS, counts, strict=True)), "seconds": nanoseconds / 1e9}


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tensord"


class Event(metaclass=_EventType):
    """A moment in the order of the ops of a device: a torch.Event.

    record() marks it, and doesn't wait. It happens when the device's server has run all earlier ops: query() asks for
    that, and synchronize() waits for it. wait() does nothing, because the server orders ops by what they depend on.
    elapsed_time(end) returns the milliseconds between the moments at which this process heard of the two events.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        # A subclass of torch.Event would not do: elapsed_time() refuses its objects.
        return torch.Event("tensord", enable_timing=enable_timing, blocking=blocking, interprocess=False)


def Stream(device: _Device = None, priority: int = 0) -> torch.Stream:
    """Returns the stream of a device. A device has one: the server orders ops by what they depend on."""
    return torch.Stream(torch.device("tensord", _index(device)))


def current_stream(device: _Device = None) -> torch.Stream:
    return Stream(device)


default_stream = current_stream


@contextlib.contextmanager
def stream(stream: torch.Stream | None) -> Iterator[torch.Stream | None]:
    """Does nothing: a device has one stream."""
    yield stream


def set_stream(stream: torch.Stream) -> None:
    """Does nothing: a device has one stream."""


# ---- memory


def mem_get_info(device: _Device = None) -> tuple[int, int]:
    """Returns the free and the total bytes of the device. Waits for the server."""
    _, limit, used, _ = _ops._memory(_index(device))
    return limit - used, limit


def memory_allocated(device: _Device = None) -> int:
    """Returns the bytes in use on the device, by all its clients. Waits for the server."""
    return _ops._memory(_index(device))[2]


memory_reserved = memory_allocated


def max_memory_allocated(device: _Device = None) -> int:
    """Returns the maximum of memory_allocated() since the server started."""
    return _ops._memory(_index(device))[3]


max_memory_reserved = max_memory_allocated


def empty_cache() -> None:
    """Does nothing: the server manages memory."""


def reset_peak_memory_stats(device: _Device = None) -> None:
    """Does nothing: the maximum is the server's."""


def reset_accumulated_memory_stats(device: _Device = None) -> None:
    """Does nothing: there are no accumulated statistics."""


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def memory_stats_as_nested_dict(device: _Device = None) -> dict[str, Any]:
    """Returns the statistics of memory_stats() as nested dictionaries. Waits for the server."""
    _ops._connect()
    return torch._C._accelerator_getDeviceStats(_index(device))


def memory_stats(device: _Device = None) -> dict[str, int]:
    """Returns a dictionary with the keys of torch.cuda.memory_stats(). Waits for the server.

    "allocated_bytes.all.current" is memory_allocated(), and "allocated_bytes.all.peak" is max_memory_allocated().
    "active_bytes" and "reserved_bytes" have the same numbers. All other statistics are 0, because the server doesn't
    count them: allocations, segments, retries, pools, and the sums of the allocated and of the freed bytes.
    """

    def flatten(prefix: str, value: Any) -> list[tuple[str, int]]:
        if not isinstance(value, dict):
            return [(prefix, value)]
        return [each for key in value for each in flatten(f"{prefix}.{key}" if prefix else key, value[key])]

    return collections.OrderedDict(sorted(flatten("", memory_stats_as_nested_dict(device))))


def memory_summary(device: _Device = None, abbreviated: bool = False) -> str:
    """Returns a text with the memory of the device. Waits for the server."""
    index = _index(device)
    total, limit, used, peak = _ops._memory(index)
    rows = [("in use, by all clients", used), ("maximum since the server started", peak)]
    rows += [("free", max(limit - used, 0))]
    if not abbreviated:
        rows += [("limit for all tensors", limit), ("memory of the device", total)]
    lines = [f"tensord:{index} ({get_device_name(index)} of {get_device_server(index)})"]
    return "\n".join(lines + [f"{name:<34}{value / 2**20:>12.1f} MiB" for name, value in rows])


# ---- random numbers


def manual_seed(seed: int) -> None:
    """Sets the seed of the current device's generator."""
    _ops._manual_seed(_ops._current_device(), _signed(seed))


def manual_seed_all(seed: int) -> None:
    """Sets the seeds of all devices. Doesn't connect."""
    for i in range(max(1, device_count() if is_initialized() else 127)):
        _ops._manual_seed(i, _signed(seed))


def _signed(seed: int) -> int:
    seed = int(seed) & 0xFFFFFFFFFFFFFFFF
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def initial_seed() -> int:
    return _ops._initial_seed(_ops._current_device())


def seed() -> None:
    """Sets a random seed for the current device."""
    manual_seed(torch.Generator().seed())


def seed_all() -> None:
    manual_seed_all(torch.Generator().seed())


def get_rng_state(device: _Device = "tensord") -> torch.Tensor:
    return _ops._get_rng_state(_index(device))


def set_rng_state(new_state: torch.Tensor, device: _Device = "tensord") -> None:
    _ops._set_rng_state(_index(device), new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


# ---- torch.compile


def __getattr__(name: str) -> Any:
    """Returns a class that inductor asks for by its name before it compiles."""
    if name not in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import compile

    return compile.make_inductor_class(name)


# ---- ops


def supported_ops() -> list[str]:
    """Returns the names of PyTorch's ops that have a kernel here. Other ops may consist of them."""
    return sorted(_ops._supported_ops())


def fallbacks() -> dict[str, int]:
    """With TENSORD_CPU_FALLBACK=1, returns how often this machine's CPU computed each op."""
    return {name: int(count) for name, count in (line.rsplit(" ", 1) for line in _ops._fallbacks())}
