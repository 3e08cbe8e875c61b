"""A PyTorch device on the GPUs of other machines: torch.device("tensord:0").

If this package is installed, `import torch` loads it. On a machine with a GPU for CUDA, TENSORD_SERVERS or
TENSORD_SERVER must also be set (see _autoload). At its first use, the device takes the current connection of the
package tensord. If there is none, it connects as tensord.connect() does.
"""

import ctypes
import functools
import os
import pathlib
import sys
import warnings
from typing import Any

_FOLDER = pathlib.Path(__file__).parent
# For CMAKE_PREFIX_PATH of programs in C++: the folders of the CMake packages torch_tensord and tensord_c.
cmake_prefix_path = f"{_FOLDER};{_FOLDER.parent / 'tensord'}"
_loaded = False


def _has_cuda() -> bool:
    """Returns whether PyTorch is built for CUDA and finds a GPU."""
    import torch

    return torch.version.cuda is not None and torch.cuda.device_count() > 0


def _find_binding() -> str:
    """Returns the path of the binding for this version of PyTorch. If there is none, raises ImportError."""
    import torch

    version = ".".join(torch.__version__.split(".")[:2])
    if not (binding := _FOLDER / f"_binding.{version}.so").exists():
        versions = ", ".join(each.name[9:-3] for each in sorted(_FOLDER.glob("_binding.*.so")))
        raise ImportError(
            f"torch_tensord is compiled for PyTorch {versions}, and PyTorch {torch.__version__} is installed: compile "
            "it again, by `pip install --force-reinstall --no-deps --no-build-isolation ./client/python/torch_tensord`"
        )
    return str(binding)


def _load() -> None:
    """Registers the device with PyTorch."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    import torch
    from tensord import _core

    if _has_cuda():
        warnings.warn(
            "in a process that has loaded torch_tensord, PyTorch can't run backward() of tensors on cuda, because it "
            "takes tensord for the only accelerator (pytorch issue 161129). Use tensord and cuda in separate processes",
            stacklevel=3,
        )

    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "tensord"):
        raise ImportError(
            f"torch_tensord can't be used with the device {name!r} in one process: PyTorch has one such device"
        )
    torch.ops.load_library(_find_binding())
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype = ctypes.c_void_p
    address.argtypes = [ctypes.py_object, ctypes.c_char_p]
    torch.ops.tensord._use_python(address(_core._C_API, b"tensord._core._C_API"))
    torch.utils.rename_privateuse1_backend("tensord")
    from . import _module

    _module.__name__ = "torch.tensord"  # programs take the kind of the device from the end of this name
    torch._register_device_module("tensord", _module)
    sys.modules["torch.tensord.memory"], sys.modules["torch.tensord.random"] = _module.memory, _module.random
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    from . import _adapt

    _adapt.adapt()
    _register_process_groups()


def as_cuda() -> Any:
    """Runs programs that say "cuda" on devices of tensord: from this call on, or in `with torch_tensord.as_cuda():`."""
    from . import _as_cuda

    return _as_cuda.AsCuda()


def _register_process_groups() -> None:
    """Makes the backend "tensord" known to torch.distributed.

    If a program names no backend, its tensors on the CPU use Gloo, as without this package. PyTorch would choose the
    backend of the accelerator alone.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return
    dist.Backend.register_backend("tensord", _create_process_group, extended_api=True, devices=["tensord"])
    config = dist.distributed_c10d.BackendConfig
    choose = config.__init__

    @functools.wraps(choose)
    def choose_for_each_device(self: Any, backend: Any) -> None:
        accelerator = torch.accelerator.current_accelerator()
        if backend == dist.Backend.UNDEFINED and accelerator is not None and accelerator.type == "tensord":
            backend = "cpu:gloo,tensord:tensord" if dist.is_gloo_available() else "tensord"
        choose(self, backend)

    config.__init__ = choose_for_each_device


def _create_process_group(options: Any, _backend_options: Any) -> Any:
    from . import distributed

    return distributed.create_process_group(options)


def resume(addresses: Any = None, **options: Any) -> Any:
    """Connects again, for example after a server was lost, and makes this the connection of the devices tensord:0, ….

    Takes the arguments of tensord.connect(), and returns what it returns. The devices' former connection is closed, so
    its tensors raise torch.AcceleratorError with the reason. Tensors that an op overwrites as a whole live on: after
    model.load_state_dict() and optimizer.load_state_dict() with a checkpoint on the CPU, the same objects can be used.
    """
    import tensord
    import torch

    connection = tensord.connect(addresses, **options)
    torch.ops.tensord._replace_devices()
    return connection


def as_torch(x: Any) -> "torch.Tensor":
    """Returns a tensor of PyTorch with the value of a tensord.Tensor. Copies nothing, and doesn't wait."""
    import torch

    return torch.ops.tensord._from_tensord(id(x))


def as_tensord(x: "torch.Tensor") -> Any:
    """Returns a tensord.Tensor with the value that a tensor on a device of tensord has now. Copies nothing if x is
    contiguous, and doesn't wait."""
    import torch

    made = ctypes.cast(torch.ops.tensord._to_tensord(x.detach()), ctypes.py_object)
    try:
        return made.value
    finally:
        ctypes.pythonapi.Py_DecRef(made)  # the reference that _to_tensord returned


def _autoload() -> None:
    """Loads the device unless this would harm programs for CUDA. `import torch` calls this at its end.

    If CUDA has a GPU, loads the device only if TENSORD_SERVERS or TENSORD_SERVER names a server. With the device,
    PyTorch would fail to run backward() of tensors on cuda. `import torch_tensord` loads the device in any case.
    """
    if os.environ.get("TENSORD_SERVERS") or os.environ.get("TENSORD_SERVER") or not _has_cuda():
        _load()
    elif not getattr(__spec__, "_initializing", False):
        sys.modules.pop(__name__)  # so that a later import runs this file again


import torch  # It may call _autoload, so the functions above come first.

if not getattr(torch.__spec__, "_initializing", False):
    _load()
