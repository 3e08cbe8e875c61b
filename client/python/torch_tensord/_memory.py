"""The memory of devices: torch.tensord.memory. See torch.cuda.memory for the names."""

import collections
from typing import Any

import torch

from ._devices import Device, get_device_name, get_device_server, index_of

_ops = torch.ops.tensord


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Returns the free and the total bytes of the device. Waits for the server."""
    _, limit, used, _ = _ops._memory(index_of(device))
    return limit - used, limit


def memory_allocated(device: Device = None) -> int:
    """Returns the bytes in use on the device, by all its clients. Waits for the server."""
    return _ops._memory(index_of(device))[2]


memory_reserved = memory_allocated


def max_memory_allocated(device: Device = None) -> int:
    """Returns the maximum of memory_allocated() since the server started."""
    return _ops._memory(index_of(device))[3]


max_memory_reserved = max_memory_allocated


def empty_cache() -> None:
    """Does nothing: the server manages memory."""


def reset_peak_memory_stats(device: Device = None) -> None:
    """Does nothing: the maximum is the server's."""


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Does nothing: there are no accumulated statistics."""


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Returns the statistics of memory_stats() as nested dictionaries. Waits for the server."""
    _ops._connect()
    return torch._C._accelerator_getDeviceStats(index_of(device))


def memory_stats(device: Device = None) -> dict[str, int]:
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


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Returns a text with the memory of the device. Waits for the server."""
    index = index_of(device)
    total, limit, used, peak = _ops._memory(index)
    rows = [("in use, by all clients", used), ("maximum since the server started", peak)]
    rows += [("free", max(limit - used, 0))]
    if not abbreviated:
        rows += [("limit for all tensors", limit), ("memory of the device", total)]
    lines = [f"tensord:{index} ({get_device_name(index)} of {get_device_server(index)})"]
    return "\n".join(lines + [f"{name:<34}{value / 2**20:>12.1f} MiB" for name, value in rows])
