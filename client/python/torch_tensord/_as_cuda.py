"""as_cuda(): programs that say "cuda" run on devices of tensord.

as_cuda() replaces the functions, methods and classes of PyTorch that take devices, for all threads of the process. The
replacements translate devices of CUDA. A module that took one of these functions by `from torch.cuda import …` gets
the replacement, too: as_cuda() looks for the functions in all modules.
"""

import functools
import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
import torch.utils._device

from . import _cuda_names, _module

Function: TypeAlias = Callable[..., Any]
Pair: TypeAlias = tuple[Any, Any]  # an original and its replacement

_active: "AsCuda | None" = None
_lock = threading.Lock()
_TYPE = re.compile(r"torch\.cuda\.(\w+)Tensor")


def _translate(device: Any) -> Any:
    """Returns the device of tensord for a device of CUDA. Returns anything else as it is."""
    if isinstance(device, torch.device):
        return torch.device("tensord", device.index) if device.type == "cuda" else device
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        return "tensord" + device[4:]
    return device


def _translate_map(map_location: Any) -> Any:
    if isinstance(map_location, dict):
        return {_translate(key): _translate(value) for key, value in map_location.items()}
    return _translate(map_location)


# ---- functions and methods


def _with_option(function: Function) -> Function:
    """Returns the function with a translated option `device`."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if "device" in options:
            options["device"] = _translate(options["device"])
        return function(*arguments, **options)

    return call


def _with_argument(function: Function, position: int, name: str = "device", **defaults: Any) -> Function:
    """Returns the function with a translated argument. `defaults` are options of a call that gives neither."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if len(arguments) > position:
            arguments = (*arguments[:position], _translate_map(arguments[position]), *arguments[position + 1 :])
        elif name in options:
            options[name] = _translate_map(options[name])
        else:
            options.update(defaults)
        return function(*arguments, **options)

    return call


def _with_all(function: Function) -> Function:
    """Returns the function with all arguments translated."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        translated = [_translate(each) for each in arguments]
        return function(*translated, **{name: _translate(value) for name, value in options.items()})

    return call


def _to_device(
    tensor: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    device = torch.tensord.current_device() if device is None else _translate(device)
    if isinstance(device, int):
        device = torch.device("tensord", device)
    return tensor.to(device, non_blocking=non_blocking, memory_format=memory_format)


def _storage_to_device(
    storage: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> torch.UntypedStorage:
    return _to_device(torch.empty(0, dtype=torch.uint8).set_(storage), device, non_blocking).untyped_storage()


def _to_type(convert: Function) -> Function:
    @functools.wraps(convert)
    def call(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
        if isinstance(dtype, _TensorType):
            return self.to(torch.device("tensord"), dtype.dtype, non_blocking=non_blocking)
        found = _TYPE.fullmatch(dtype) if isinstance(dtype, str) else None
        if found is not None:
            return call(self, getattr(torch.cuda, f"{found[1]}Tensor"), non_blocking)
        return convert(self, *(() if dtype is None else (dtype,)), non_blocking=non_blocking, **options)

    return call


def _set_default_type(function: Function) -> Function:
    @functools.wraps(function)
    def call(kind: Any) -> None:
        found = _TYPE.fullmatch(kind) if isinstance(kind, str) else None
        kind = getattr(torch.cuda, f"{found[1]}Tensor") if found is not None else kind
        if isinstance(kind, _TensorType):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("tensord")
        else:
            function(kind)

    return call


# ---- classes


class _ClassOf(type):
    """The type of a class that makes objects of another class. isinstance() calls the class's `has`."""

    has: Callable[[object], bool]

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.has(instance)


class Stream(metaclass=_ClassOf):
    """A torch.Stream of a device of tensord: the stream of the device."""

    def __new__(cls, device: Any = None, priority: int = 0, **unused: object) -> Any:
        return _module.Stream(_translate(device), priority)

    @staticmethod
    def has(instance: object) -> bool:
        return isinstance(instance, _module.Stream)


class Event(_module.Event):
    """A torch.Event of tensord."""


class StreamContext(_module.StreamContext):
    """Does nothing: a device has one stream."""


class _Device(_module.device):
    def __init__(self, device: Any) -> None:
        super().__init__(_translate(device))


class _DeviceOf(_module.device_of):
    """A context in which tensors are made on the device of a tensor. If that is the CPU, does nothing."""


def _make_generator_class(original: type) -> type:
    class Generator(metaclass=_ClassOf):
        def __new__(cls, device: Any = "cpu") -> Any:
            return original(device=_translate(device))

        @staticmethod
        def has(instance: object) -> bool:
            return isinstance(instance, original)

    return Generator


class _TensorType(_ClassOf):
    """The type of torch.cuda.FloatTensor and of the classes for other dtypes."""

    dtype: torch.dtype


def _make_tensor_class(name: str) -> type:
    on_cpu = getattr(torch, name)

    class Tensor(metaclass=_TensorType):
        dtype = on_cpu.dtype
        is_cuda = True

        def __new__(cls, *arguments: Any) -> Any:
            return on_cpu(*arguments).to("tensord")

        @staticmethod
        def has(instance: object) -> bool:
            if not isinstance(instance, torch.Tensor):
                return False
            return instance.device.type == "tensord" and instance.dtype == on_cpu.dtype

    Tensor.__name__ = Tensor.__qualname__ = name
    return Tensor


# ---- process groups


def _make_backend(original: Function) -> Any:
    @functools.wraps(original)
    def make(cls: type, name: Any) -> Any:
        if isinstance(name, str):
            name = re.sub(r"(?i)\bnccl(2|-legacy|-lazy)?(?![\w-])", "tensord", re.sub(r"(?i)\bcuda:", "tensord:", name))
        return original(cls, name)

    return staticmethod(make)


# ---- the tables of replacements


def _functions_of_cuda() -> Iterator[Pair]:
    """Yields (original, replacement): the functions and classes of torch.cuda and of its submodules."""
    given: dict[str, Any] = {"device": _Device, "device_of": _DeviceOf, "Event": Event, "Stream": Stream}
    given["StreamContext"] = StreamContext
    given |= {name: getattr(_module, name) for name in _cuda_names.OURS}
    given |= {name: _make_tensor_class(name) for name in _cuda_names.TENSOR_TYPES}
    given = {
        name: value if isinstance(value, type) else _with_all(value)
        for name, value in {**given, **_cuda_names.FUNCTIONS}.items()
    }
    for name, value in given.items():
        original = vars(torch.cuda).get(name)
        if original is not None:
            yield original, value
    done = {id(vars(torch.cuda).get(name)) for name in given}
    for path in _cuda_names.SUBMODULES:
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError:  # this version of PyTorch doesn't have it
            continue
        own = _cuda_names.OF_SUBMODULES.get(path, {})
        for name, original in list(vars(module).items()):
            if id(original) in done or not _cuda_names.is_public(path, name, original):
                continue
            yield original, _with_all(own[name]) if name in own else _cuda_names.refuse(path, name, original)


def _functions() -> Iterator[Pair]:
    """Yields (original, replacement): functions that are replaced in all modules."""
    yield from _functions_of_cuda()
    factories = set(torch.utils._device._device_constructors())
    factories |= {getattr(torch, name) for name in _cuda_names.FACTORIES}
    for original in factories:
        yield original, _with_option(original)
    for owner, name, position, argument, defaults in _cuda_names.DEVICE_ARGUMENTS:
        original = getattr(owner, name, None)
        if original is not None:
            yield original, _with_argument(original, position, argument, **defaults)
    yield torch.set_default_tensor_type, _set_default_type(torch.set_default_tensor_type)
    yield torch.get_autocast_gpu_dtype, functools.partial(torch.get_autocast_dtype, "tensord")
    yield torch.set_autocast_gpu_dtype, functools.partial(torch.set_autocast_dtype, "tensord")
    yield torch.Generator, _make_generator_class(torch.Generator)
    yield torch._utils._get_available_device_type, lambda: "tensord"
    for name in _cuda_names.ACCELERATOR:
        original = getattr(torch.accelerator, name, None)
        if original is not None:
            yield original, _with_all(original)
    import torch.distributed as dist

    if dist.is_available():
        yield dist.init_process_group, _with_argument(dist.init_process_group, 8, "device_id")
        yield dist.is_nccl_available, lambda: True


def _attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yields (object, name, value): attributes of classes, and of modules that other modules don't take by name."""
    kind = torch.Tensor
    yield kind, "to", _with_argument(kind.to, 1)
    yield kind, "cuda", _to_device
    yield kind, "type", _to_type(kind.type)
    yield kind, "is_cuda", property(lambda self: self.device.type in ("tensord", "cuda"))
    for name in "new new_empty new_empty_strided new_full new_ones new_tensor new_zeros".split():
        yield kind, name, _with_option(getattr(kind, name))
    for name in ("pin_memory", "is_pinned"):
        yield kind, name, _with_argument(getattr(kind, name), 1)
    yield torch.UntypedStorage, "cuda", _storage_to_device
    yield torch.UntypedStorage, "is_cuda", property(lambda self: self.device.type in ("tensord", "cuda"))
    context = torch.utils._device.DeviceContext
    yield context, "__init__", _with_argument(context.__init__, 1)
    yield torch.autocast, "__init__", _with_argument(torch.autocast.__init__, 1, "device_type")
    scaler = torch.amp.GradScaler
    yield scaler, "__init__", _with_argument(scaler.__init__, 1, device="tensord")
    yield torch.cuda, "_lazy_init", lambda: None
    yield torch.cuda, "_is_in_bad_fork", _module._is_in_bad_fork
    import torch.distributed as dist

    if not dist.is_available():
        return
    yield dist.Backend, "__new__", _make_backend(dist.Backend.__new__)
    mesh = importlib.import_module("torch.distributed.device_mesh")
    yield mesh.DeviceMesh, "__init__", _with_argument(mesh.DeviceMesh.__init__, 1, "device_type")


def _replace_in_modules(pairs: Iterable[Pair]) -> None:
    """For each (original, replacement), sets the replacement in all modules that have the original under some name.

    No two originals have one replacement, so the same function restores the originals.
    """
    wanted = {id(original): (original, replacement) for original, replacement in pairs}
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or not isinstance(name, str) or name.startswith(_cuda_names.KEPT_MODULES):
            continue
        for key, value in list(names.items()):
            found = wanted.get(id(value))
            if found is not None and found[0] is value:
                names[key] = found[1]


def _register_for_script(pairs: Iterable[Pair]) -> None:
    """Makes torch.jit.script take a replacement for the builtin function that it replaces."""
    for original, replacement in pairs:
        builtin = torch.jit._builtins._find_builtin(original)
        if builtin is not None:
            torch.jit._builtins._register_builtin(replacement, builtin)


def _forget_for_script(pairs: Iterable[Pair]) -> None:
    """Ends _register_for_script(). PyTorch's table has functions by address, which another function may get later."""
    table = torch.jit._builtins._get_builtin_table()
    for _original, replacement in pairs:
        table.pop(id(replacement), None)


def _restore(storage: Any, location: str) -> Any:
    """Restores a storage that a program saved on CUDA. PyTorch calls this before its own functions."""
    if _active is None or not location.startswith("cuda"):
        return None
    return torch.serialization.default_restore_location(storage, _translate(location))


torch.serialization.register_package(15, lambda storage: None, _restore)


class AsCuda:
    """The effect of as_cuda(). It ends when a `with` block of this object ends."""

    def __init__(self) -> None:
        global _active
        with _lock:
            if _active is not None:
                raise RuntimeError("torch_tensord.as_cuda() is in effect already")
            if torch.cuda.is_available():
                raise RuntimeError("torch_tensord.as_cuda(): this machine has devices of CUDA")
            self._saved: list[tuple[Any, str, Any]] = []
            self._pairs: list[Pair] = []
            try:
                self._replace()
            except BaseException:
                self._restore()
                raise
            _active = self

    def _replace(self) -> None:
        pairs = list(_functions())
        _register_for_script(pairs)
        for owner, name, value in list(_attributes()):
            self._saved.append((owner, name, owner.__dict__.get(name)))
            setattr(owner, name, value)
        self._pairs = pairs
        _replace_in_modules(pairs)

    def _restore(self) -> None:
        _forget_for_script(self._pairs)
        _replace_in_modules((replacement, original) for original, replacement in self._pairs)
        for owner, name, value in reversed(self._saved):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self._saved, self._pairs = [], []

    def __enter__(self) -> "AsCuda":
        if _active is not self:
            raise RuntimeError("torch_tensord.as_cuda(): this object's effect has ended: call as_cuda() again")
        return self

    def __exit__(self, *unused: object) -> None:
        global _active
        with _lock:
            self._restore()
            _active = None
