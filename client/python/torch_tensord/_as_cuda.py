"""as_cuda(): programs that say "cuda" run on devices of tensord."""

import functools

import torch
from torch.overrides import TorchFunctionMode

from . import _module

_active = None
_IS_CUDA = torch.Tensor.is_cuda.__get__


def _translate(device):
    """Returns the device of tensord for a device of CUDA. Returns anything else as it is."""
    if isinstance(device, torch.device):
        return torch.device("tensord", device.index) if device.type == "cuda" else device
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        return "tensord" + device[4:]
    return device


def _translate_map(map_location):
    if isinstance(map_location, dict):
        return {_translate(key): _translate(value) for key, value in map_location.items()}
    return _translate(map_location)


class _Mode(TorchFunctionMode):
    """Translates the devices among the arguments of PyTorch's functions and methods."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function is torch.Tensor.cuda:
            return _to_device(*arguments, **options)
        if function == _IS_CUDA:
            return arguments[0].device.type in ("tensord", "cuda")
        if "device" in options:
            options = {**options, "device": _translate(options["device"])}
        # Only `to` takes the name of a device as an argument without a keyword.
        names = (str, torch.device) if function is torch.Tensor.to else torch.device
        if any(isinstance(each, names) for each in arguments):
            arguments = tuple(_translate(each) if isinstance(each, names) else each for each in arguments)
        return function(*arguments, **options)


def _to_device(tensor, device=None, non_blocking=False, memory_format=torch.preserve_format):
    device = torch.tensord.current_device() if device is None else _translate(device)
    if isinstance(device, int):
        device = torch.device("tensord", device)
    return tensor.to(device, non_blocking=non_blocking, memory_format=memory_format)


def _storage_to_device(storage, device=None, non_blocking=False):
    return _to_device(torch.empty(0, dtype=torch.uint8).set_(storage), device, non_blocking).untyped_storage()


def _with_device(function, position, name="device"):
    """Returns the function with a translated argument."""

    @functools.wraps(function)
    def call(*arguments, **options):
        if len(arguments) > position:
            arguments = (*arguments[:position], _translate_map(arguments[position]), *arguments[position + 1:])
        if name in options:
            options = {**options, name: _translate_map(options[name])}
        return function(*arguments, **options)

    return call


def _of_cuda(function):
    """Returns a function of torch.tensord that takes devices of CUDA."""

    @functools.wraps(function)
    def call(*arguments, **options):
        arguments = [_translate(each) for each in arguments]
        return function(*arguments, **{name: _translate(value) for name, value in options.items()})

    return call


def _properties(device=None):
    """Returns the properties of torch.cuda.get_device_properties() that programs read. Waits for the server, which
    doesn't report `major`, `minor` and `multi_processor_count`: these are constants."""
    properties = _module.get_device_properties(_translate(device))
    properties.major, properties.minor, properties.multi_processor_count = 8, 0, 1
    return properties


class _Device(_module.device):
    def __init__(self, device):
        super().__init__(_translate(device))


_FUNCTIONS = (
    "is_available device_count current_device set_device get_device_name synchronize current_stream default_stream"
    " stream set_stream Stream Event mem_get_info memory_allocated memory_reserved max_memory_allocated"
    " max_memory_reserved empty_cache reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated"
    " reset_max_memory_cached memory_stats memory_stats_as_nested_dict memory_summary manual_seed manual_seed_all"
    " initial_seed seed seed_all get_rng_state set_rng_state get_rng_state_all set_rng_state_all is_initialized"
    " is_bf16_supported"
).split()


def _replacements():
    """Yields (object, name, value): the attributes that are replaced."""
    for name in _FUNCTIONS:
        ours = getattr(_module, name, None)
        if ours is not None:
            yield torch.cuda, name, ours if isinstance(ours, type) else _of_cuda(ours)
    yield torch.cuda, "device", _Device
    yield torch.cuda, "is_bf16_supported", lambda including_emulation=True: True
    yield torch.cuda, "get_device_properties", _properties
    yield torch.cuda, "get_device_capability", lambda device=None: (8, 0)
    yield torch.cuda, "is_current_stream_capturing", lambda: False
    yield torch.cuda, "_lazy_init", lambda: None
    yield torch.autocast, "__init__", _with_device(torch.autocast.__init__, 1, "device_type")
    scaler = torch.amp.GradScaler.__init__

    @functools.wraps(scaler)
    def make_scaler(self, device="cuda", *arguments, **options):
        scaler(self, _translate(device), *arguments, **options)

    yield torch.amp.GradScaler, "__init__", make_scaler
    yield torch, "load", _with_device(torch.load, 1, "map_location")
    yield torch.UntypedStorage, "cuda", _storage_to_device
    yield torch, "set_default_device", _with_device(torch.set_default_device, 0)


def _restore(storage, location):
    """Restores a storage that a program saved on CUDA. PyTorch calls this before its own functions."""
    if _active is None or not location.startswith("cuda"):
        return None
    return torch.serialization.default_restore_location(storage, _translate(location))


torch.serialization.register_package(15, lambda storage: None, _restore)


class AsCuda:
    """The effect of as_cuda(). It ends when the object is left as a context manager."""

    def __init__(self):
        global _active
        if _active is not None:
            raise RuntimeError("torch_tensord.as_cuda() is in effect already")
        if torch.cuda.is_available():
            raise RuntimeError("torch_tensord.as_cuda(): this machine has devices of CUDA")
        _active = self
        self._mode = _Mode()
        self._saved = []
        for owner, name, value in _replacements():
            self._saved.append((owner, name, owner.__dict__.get(name)))
            setattr(owner, name, value)
        self._mode.__enter__()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        global _active
        self._mode.__exit__(None, None, None)
        for owner, name, value in reversed(self._saved):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        _active = None
        return False
