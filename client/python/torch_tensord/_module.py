"""The module torch.tensord: devices, memory, random numbers and waits. See torch.cuda for the names."""

from typing import Any

import torch

from . import _devices, _generators, _memory
from ._devices import (
    current_device as current_device,
    device as device,
    device_count as device_count,
    device_of as device_of,
    get_device_kind as get_device_kind,
    get_device_name as get_device_name,
    get_device_properties as get_device_properties,
    get_device_server as get_device_server,
    index_of,
    init as init,
    is_available as is_available,
    is_initialized as is_initialized,
    set_device as set_device,
)
from ._generators import (
    get_rng_state as get_rng_state,
    get_rng_state_all as get_rng_state_all,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    manual_seed_all as manual_seed_all,
    seed as seed,
    seed_all as seed_all,
    set_rng_state as set_rng_state,
    set_rng_state_all as set_rng_state_all,
)
from ._memory import (
    empty_cache as empty_cache,
    max_memory_allocated as max_memory_allocated,
    max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    memory_stats as memory_stats,
    memory_stats_as_nested_dict as memory_stats_as_nested_dict,
    memory_summary as memory_summary,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_max_memory_allocated as reset_max_memory_allocated,
    reset_max_memory_cached as reset_max_memory_cached,
    reset_peak_memory_stats as reset_peak_memory_stats,
)

memory, random = _memory, _generators  # torch.tensord.memory and torch.tensord.random

_ops = torch.ops.tensord
_MODES = ("default", "warn", "error")


# ---- what PyTorch asks for by name


def _lazy_init() -> None:
    """Does nothing, because PyTorch also calls this if a program asks for the current stream. An op connects."""


def _is_in_bad_fork() -> bool:
    return _ops._in_bad_fork()


def _get_generator(device: _devices.Device) -> torch.Generator:
    return _ops._default_generator(index_of(device))


def is_current_stream_capturing() -> bool:
    """Returns False: there are no graphs that record ops."""
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


# ---- waits


def synchronize(device: _devices.Device = None) -> None:
    """Waits until the device's server has run all ops of this process, and raises the first error."""
    _ops._synchronize(index_of(device))


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Warns ("warn") about each wait for a device, or raises an error ("error"), or does neither ("default")."""
    _ops._set_sync_debug_mode(debug_mode if isinstance(debug_mode, int) else _MODES.index(debug_mode))


def get_sync_debug_mode() -> int:
    return _ops._get_sync_debug_mode()


_WAIT_KINDS = ("waits", "reads", "uploads", "tensor_waits", "synchronizes", "info_calls", "full_queue_waits")


def wait_stats(device: _devices.Device = None) -> dict[str, float]:
    """Returns how often this process has waited for the device's server, by the kind of the wait, and the seconds.

    "waits" is the sum of the kinds. Only the difference between two calls is of interest. Doesn't wait.
    """
    *counts, nanoseconds = _ops._wait_stats(index_of(device))
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
        if interprocess:
            raise NotImplementedError(
                "an event of tensord can't be shared with another process: leave out interprocess=True, and let each "
                "process record an event of its own"
            )
        # A subclass of torch.Event would not do: elapsed_time() refuses its objects.
        return torch.Event("tensord", enable_timing=enable_timing, blocking=blocking)


class _StreamType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Stream) and instance.device.type == "tensord"


class Stream(torch.Stream, metaclass=_StreamType):
    """The stream of a device. A device has one: the server orders ops by what they depend on."""

    def __new__(cls, device: _devices.Device = None, priority: int = 0) -> "Stream":
        return super().__new__(cls, torch.device("tensord", index_of(device)))


def current_stream(device: _devices.Device = None) -> Stream:
    return Stream(device)


default_stream = current_stream


class StreamContext:
    """Does nothing: a device has one stream."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        return self.stream

    def __exit__(self, *unused: object) -> None:
        pass


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream: torch.Stream) -> None:
    """Does nothing: a device has one stream."""


# ---- names that PyTorch looks up


def __getattr__(name: str) -> Any:
    """Returns what changes when the process connects, or a class that inductor asks for before it compiles."""
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return tuple(_get_generator(i) for i in range(_ops._num_known_devices()))
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
