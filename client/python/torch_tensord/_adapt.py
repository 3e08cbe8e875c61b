"""Changes parts of PyTorch that know devices by name: torch.nn.parallel, DLPack and storages."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _torchvision


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor.to(torch.device("tensord", each)) for each in devices]


def _broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [each.copy_(tensor, non_blocking=True) for each in out]


def _broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    return [[tensor.to(torch.device("tensord", each)) for tensor in tensors] for each in devices]


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> list[torch.Tensor]:
    if chunk_sizes is not None and len(chunk_sizes) != len(devices):
        raise RuntimeError(f"scatter: there are {len(devices)} devices, but {len(chunk_sizes)} sizes of chunks")
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split_with_sizes(chunk_sizes, dim)
    return [chunk.to(torch.device("tensord", each), non_blocking=True) for chunk, each in zip(chunks, devices)]


def _scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Any) -> Sequence[torch.Tensor]:
    for each, chunk in zip(out, tensor.split_with_sizes([each.size(dim) for each in out], dim)):
        each.copy_(chunk, non_blocking=True)
    return out


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    device = torch.device("cpu") if destination == -1 else torch.device("tensord", destination)
    return torch.cat([each.to(device) for each in tensors], dim)


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    return out.copy_(torch.cat([each.to(out.device) for each in tensors], dim))


def _adapt_parallel() -> None:
    """Makes the copies of torch.nn.parallel work between devices of tensord, so that DataParallel does.

    PyTorch names devices by their numbers alone. If all given tensors are on the CPU, and the machine has devices of
    CUDA, the numbers are theirs.
    """

    def choose(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
        original: Any = getattr(torch._C, name, None)  # PyTorch without CUDA doesn't have it

        def call(tensors: Any, *arguments: Any) -> Any:
            given = [tensors] if isinstance(tensors, torch.Tensor) else [*tensors]
            if name.endswith("_out"):
                given += [arguments[0]] if isinstance(arguments[0], torch.Tensor) else [*arguments[0]]
            kinds = {each.device.type for each in given} - {"cpu"}
            is_ours = kinds == {"tensord"} if kinds else torch._utils._get_available_device_type() == "tensord"
            if original is None and not is_ours:
                raise RuntimeError(
                    f"torch.nn.parallel has no copies between these devices: {', '.join(kinds) or 'cpu'}"
                )
            return (ours if is_ours else original)(tensors, *arguments)

        return call

    for ours in (_broadcast, _broadcast_out, _broadcast_coalesced, _scatter, _scatter_out, _gather, _gather_out):
        setattr(torch._C, ours.__name__, choose(ours.__name__, ours))
    # The functions of this module accept a torch.device only if it is one of CUDA.
    module: Any = sys.modules["torch.nn.parallel.parallel_apply"]
    index_of = module._get_device_index

    def get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        is_ours = isinstance(device, (str, torch.device)) and torch.device(device).type == "tensord"
        return (torch._utils._get_device_index if is_ours else index_of)(device, optional, allow_cpu)

    module._get_device_index = get_device_index


def _adapt_dlpack() -> None:
    """Makes DLPack copy tensors of tensord to the CPU, and refuse to share them: their memory isn't in this process."""
    kind, cpu = torch.Tensor, (1, 0)  # (kDLCPU, 0)
    share, get_device, to_dlpack = kind.__dlpack__, kind.__dlpack_device__, torch.utils.dlpack.to_dlpack

    def fail(tensor: torch.Tensor) -> None:
        raise BufferError(
            f"a tensor on {tensor.device} can't be shared by DLPack, because its memory isn't in this process: copy it "
            "with x.cpu() first"
        )

    @functools.wraps(share)
    def share_or_copy(self: torch.Tensor, *, dl_device: Any = None, copy: bool | None = None, **options: Any) -> Any:
        if self.device.type != "tensord":
            return share(self, dl_device=dl_device, copy=copy, **options)
        if dl_device is None or tuple(dl_device) != cpu or copy is False:
            fail(self)
        return share(self.cpu(), dl_device=cpu, **{**options, "stream": None})

    def check(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "tensord":
                fail(tensor)
            return function(tensor, *arguments, **options)

        return call

    kind.__dlpack__ = share_or_copy
    kind.__dlpack_device__ = check(get_device)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = check(to_dlpack)


def _adapt_storages() -> None:
    """Makes the functions of storages that read or write memory use a copy on the CPU.

    The functions of files are for torch.save's older format, which pickle also uses.
    """
    kind = torch.UntypedStorage
    write, read, swap = kind._write_file, kind._set_from_file, kind._byteswap

    def write_file(self: torch.UntypedStorage, *arguments: Any) -> None:
        write(self.cpu() if self.device.type == "tensord" else self, *arguments)

    def set_from_file(self: torch.UntypedStorage, *arguments: Any) -> torch.UntypedStorage:
        if self.device.type != "tensord":
            return read(self, *arguments)
        return self.copy_(read(kind(self.nbytes()), *arguments))

    def byteswap(self: torch.UntypedStorage, element_size: int) -> None:
        on_cpu = self.cpu()  # the same storage, if it is on the CPU
        swap(on_cpu, element_size)
        if on_cpu is not self:
            self.copy_(on_cpu)

    kind._write_file, kind._set_from_file, kind._byteswap = write_file, set_from_file, byteswap


def adapt() -> None:
    """Makes the changes. Call it once."""
    _adapt_parallel()
    _adapt_dlpack()
    _adapt_storages()
    _torchvision.register()
