"""The public names of torch.cuda while as_cuda() is in effect.

Each function is one of torch.tensord, or has a constant result, or does nothing, or raises an error that says that
tensord doesn't have it. See test_as_cuda.py for the names that stay as they are.
"""

import collections
import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _module

# Names of torch.tensord.
OURS = (
    "is_available device_count current_device set_device get_device_name synchronize current_stream default_stream"
    " stream set_stream mem_get_info memory_allocated memory_reserved max_memory_allocated max_memory_reserved"
    " empty_cache reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached memory_stats memory_stats_as_nested_dict memory_summary manual_seed manual_seed_all"
    " initial_seed seed seed_all get_rng_state set_rng_state get_rng_state_all set_rng_state_all is_initialized init"
    " is_bf16_supported get_sync_debug_mode set_sync_debug_mode"
).split()

TENSOR_TYPES = [f"{kind}Tensor" for kind in "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()]


def _get_device_properties(device: Any = None) -> types.SimpleNamespace:
    """Returns the properties of torch.cuda.get_device_properties() that programs read. Waits for the server.

    The server doesn't report `major`, `minor` and `multi_processor_count`, so these are constants.
    """
    properties = _module.get_device_properties(device)
    properties.major, properties.minor = CAPABILITY
    properties.multi_processor_count = 1
    return properties


# Libraries choose kernels by this number. From 7.0 on, they choose kernels in Triton, and from 8.0 on those of flash
# attention, which run in this process. Below 5.3, they take 16-bit dtypes for slow.
CAPABILITY = (6, 0)


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: value


# At the end of as_cuda(), each name that has a replacement gets its former value. So no replacement may be an object
# that other modules use, such as list.
def _no_names() -> list[str]:
    return []


def _no_statistics() -> dict[str, Any]:
    return collections.OrderedDict()


def _nothing(*arguments: Any, **options: Any) -> None:
    """Does nothing."""


@contextlib.contextmanager
def _null_context(*arguments: Any, **options: Any) -> Iterator[None]:
    yield


# Functions of torch.cuda that torch.tensord doesn't have, or has with other results.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "can_device_access_peer": _constant(False),
    "device_memory_used": _module.memory_allocated,
    "get_allocator_backend": _constant("tensord"),
    "get_arch_list": _no_names,
    "get_device_capability": lambda device=None: CAPABILITY,
    "get_device_properties": _get_device_properties,
    "get_gencode_flags": _constant(""),
    "get_per_process_memory_fraction": _constant(1.0),
    "host_memory_stats": _no_statistics,
    "host_memory_stats_as_nested_dict": _no_statistics,
    "ipc_collect": _nothing,
    "is_current_stream_capturing": _constant(False),
    "is_tf32_supported": _constant(False),
    "max_memory_cached": _module.max_memory_reserved,
    "memory_cached": _module.memory_reserved,
    "reset_accumulated_host_memory_stats": _nothing,
    "reset_peak_host_memory_stats": _nothing,
}

_SUBMODULES = "gds graph_annotations graphs green_contexts jiterator memory nccl nvtx profiler sparse streams tunable"
SUBMODULES = ["torch.cuda", *(f"torch.cuda.{name}" for name in _SUBMODULES.split())]

OF_SUBMODULES: dict[str, dict[str, Callable[..., Any]]] = {
    "torch.cuda.gds": {"is_available": _constant(False)},
    "torch.cuda.graph_annotations": {"is_available": _constant(False)},
    "torch.cuda.green_contexts": {"is_localization_supported": _constant(False)},
    "torch.cuda.nccl": {"is_available": _constant(False), "version": _constant((0, 0, 0))},
    "torch.cuda.nvtx": {
        "mark": _nothing,
        "range": _null_context,
        "range_end": _nothing,
        "range_pop": _constant(0),
        "range_push": _constant(0),
        "range_start": _constant(0),
    },
    "torch.cuda.profiler": {"start": _nothing, "stop": _nothing, "profile": _null_context, "init": _nothing},
    "torch.cuda.tunable": {
        name: _constant(False) for name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")
    },
}

# Errors and the names of other types, which need no device.
_KEPT = (
    "AcceleratorError CudaError DeferredCudaCallError OutOfMemoryError cudaStatus check_error classproperty SMPartition"
).split()


def is_public(path: str, name: str, value: Any) -> bool:
    """Returns whether a module of torch.cuda has a function or a class of its own by this name."""
    home = getattr(value, "__module__", None)
    return callable(value) and home == path and not name.startswith("_") and name not in _KEPT


def refuse(path: str, name: str, original: Any) -> Any:
    """Returns a function, or a class, that raises an error at a call."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError(
            f"{path}.{name}: tensord has no such function, because it needs CUDA in this process: leave out the call"
        )

    if inspect.isroutine(original):
        return functools.wraps(original)(fail)
    bases = (original,) if name.endswith("Storage") else ()  # files with checkpoints name these classes
    return type(name, bases, {"__new__": fail, "__module__": path})


# Functions of PyTorch with an option `device`, beside those that torch.device() as a context changes.
FACTORIES = (
    "asarray as_tensor empty_like from_file full_like normal ones_like rand_like randint_like randn_like zeros_like"
).split()

# (owner, name, position and name of the argument, options if it isn't given)
DEVICE_ARGUMENTS: list[tuple[Any, str, int, str, dict[str, str]]] = [
    (torch, "load", 1, "map_location", {}),
    (torch.jit, "load", 1, "map_location", {}),
    (torch, "set_default_device", 0, "device", {}),
    (torch, "is_autocast_enabled", 0, "device_type", {"device_type": "tensord"}),
    (torch, "set_autocast_enabled", 0, "device_type", {}),
    (torch, "get_autocast_dtype", 0, "device_type", {}),
    (torch, "set_autocast_dtype", 0, "device_type", {}),
    (torch.amp, "is_autocast_available", 0, "device_type", {}),
    (torch.amp, "custom_fwd", 1, "device_type", {}),
    (torch.amp, "custom_bwd", 1, "device_type", {}),
    (torch.random, "fork_rng", 4, "device_type", {}),
]

ACCELERATOR = (
    "set_device_index set_device_idx current_stream synchronize device_index get_device_capability get_memory_info"
    " memory_allocated memory_reserved max_memory_allocated max_memory_reserved memory_stats reset_peak_memory_stats"
    " reset_accumulated_memory_stats"
).split()

# Modules that keep their names: those of PyTorch that look up functions by identity, and those of this package.
KEPT_MODULES = (
    *("torch._C", "torch._dynamo", "torch._inductor", "torch._decomp", "torch._refs", "torch.overrides"),
    *("torch_tensord.", "torch.tensord"),
)
