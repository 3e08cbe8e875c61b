"""Changes parts of PyTorch that know devices by name: torch.nn.DataParallel, DLPack and optimizers."""

import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from . import _torchvision


def _takes(module: torch.nn.Module) -> bool:
    """Returns whether DataParallel(module) uses tensord.

    If the first parameter or buffer is on a device, returns whether this is tensord. Otherwise CUDA comes first, if it
    has a GPU and as_cuda() isn't in effect.
    """
    first = next(itertools.chain(module.parameters(), module.buffers()), None)
    if first is not None and first.device.type != "cpu":
        return first.device.type == "tensord"
    means_cuda = getattr(sys.modules.get("torch_tensord._as_cuda"), "_active", None) is None
    return not (torch.cuda.is_available() and means_cuda) and torch.tensord.is_available()


def _index(device: torch.device | str | int) -> int:
    return device if isinstance(device, int) else torch.device(device).index or 0


def _adapt_data_parallel() -> None:
    """Makes DataParallel of a module on tensord use one device, because PyTorch's copies between devices need CUDA."""
    kind = torch.nn.DataParallel
    original = kind.__init__

    @functools.wraps(original)
    def make(
        self: Any,
        module: torch.nn.Module,
        device_ids: Sequence[torch.device | str | int] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        if not _takes(module):
            original(self, module, device_ids, output_device, dim)
            return
        count = torch.tensord.device_count() if device_ids is None else len(device_ids)
        index = _index(device_ids[0]) if device_ids else 0
        if count > 1:
            warnings.warn(
                f"torch.nn.DataParallel uses tensord:{index} alone. For several devices of tensord, use "
                "torch.nn.parallel.DistributedDataParallel with one process for each device",
                stacklevel=2,
            )
        torch.nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = [index], index
        self.src_device_obj = torch.device("tensord", index)
        if count == 1:
            module.to(self.src_device_obj)

    scatter_of_cuda = kind.scatter

    @functools.wraps(scatter_of_cuda)
    def scatter(self: Any, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        if self.src_device_obj.type != "tensord":
            return scatter_of_cuda(self, inputs, kwargs, device_ids)

        def move(x: Any) -> Any:
            return x.to(self.src_device_obj) if isinstance(x, torch.Tensor) else x

        return (tree_map(move, tuple(inputs)),), (tree_map(move, kwargs or {}),)

    kind.__init__ = make
    kind.scatter = scatter


def _refuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with a check: it refuses tensors on tensord, whose memory is in another process."""

    @functools.wraps(function)
    def call(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "tensord":
            raise BufferError(
                f"a tensor on {tensor.device} can't be shared by DLPack, because its memory isn't in this process: "
                "copy it with x.cpu() first"
            )
        return function(tensor, *arguments, **options)

    return call


def _adapt_optimizers() -> None:
    """Removes a check from the steps of optimizers, which asks whether the accelerator captures a graph. tensord never
    captures one, and the check would connect, even in a program that uses only the CPU."""
    check = "_accelerator_graph_capture_health_check"
    if hasattr(torch.optim.Optimizer, check):
        setattr(torch.optim.Optimizer, check, lambda self: None)


def _adapt_barrier() -> None:
    """Makes dist.barrier() name the accelerator without connecting, even in a program that uses only the CPU."""

    def get_accelerator(check: bool | None = None) -> torch.device:
        return torch.accelerator.current_accelerator(check_available=bool(check)) or torch.device("cpu")

    torch._C._get_accelerator = get_accelerator


def adapt() -> None:
    """Makes the changes. Call it once."""
    _adapt_data_parallel()
    _adapt_optimizers()
    _adapt_barrier()
    _torchvision.register()
    torch.Tensor.__dlpack__ = _refuse(torch.Tensor.__dlpack__)
    torch.Tensor.__dlpack_device__ = _refuse(torch.Tensor.__dlpack_device__)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = _refuse(torch.utils.dlpack.to_dlpack)
