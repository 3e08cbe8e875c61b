"""The backend "tensord" of torch.distributed: collective operations between the devices of several processes.

torch.distributed.init_process_group("tensord") makes one member for each process. Each process has a connection of its
own and a device of its own, which is the current device: torch.tensord.set_device(int(os.environ["RANK"])). The servers
exchange the elements directly, by Gloo between CPUs and by NCCL between GPUs. The store of torch.distributed only
carries the members' addresses, and the names of messages. If a tensor is on the CPU, it is copied to the device, and
the result is copied back. This waits for the server.

init_process_group() without a backend means "cpu:gloo,tensord:tensord": PyTorch's Gloo takes the tensors on the CPU.
The process connects to a server only when an operation gets a tensor on tensord.

The servers' groups have all-reduce by sum, mean and maximum, all-gather, reduce-scatter and broadcast. The other
collective operations consist of these. _messages.py has send() and recv().
"""

import atexit
import datetime
import functools
import inspect
import json
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensord
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from . import as_tensord, as_torch
from ._messages import POLL_SECONDS, Messages, await_keys

Tensors: TypeAlias = Sequence[torch.Tensor]
Run: TypeAlias = Callable[[torch.Tensor, str], torch.Tensor]

_REDUCTIONS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "mean", dist.ReduceOp.MAX: "max"}
# These functions combine the gathered tensors of all members, (members, …) → (…).
_COMBINATIONS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    dist.ReduceOp.PRODUCT: lambda x: x.prod(0).to(x.dtype),
    dist.ReduceOp.BAND: lambda x: functools.reduce(torch.bitwise_and, x.unbind(0)),
    dist.ReduceOp.BOR: lambda x: functools.reduce(torch.bitwise_or, x.unbind(0)),
    dist.ReduceOp.BXOR: lambda x: functools.reduce(torch.bitwise_xor, x.unbind(0)),
}
_MAX_DELIVERY_SECONDS = 30.0  # the longest time that the end of a program waits for other members
_MAX_TIMEOUT_SECONDS = 3600.0  # the longest timeout that servers accept


class ProcessGroupTensord(dist.ProcessGroup):
    """A process group whose tensors are on devices of tensord. Operations return at once, and run in the order of the
    calls. An error of the servers is raised at the next wait for a result."""

    supports_splitting = False  # PyTorch then makes subgroups by new_group, and split_group raises its error

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: datetime.timedelta,
        host: dist.ProcessGroup | None = None,
        device: torch.device | None = None,
    ) -> None:
        """`host` is a process group for the tensors on the CPU. If it is None, the servers' group takes them. `device`
        is init_process_group's device_id. If it is None, it is the current device at the first operation."""
        super().__init__(rank, size)
        self._member_rank, self._member_count = rank, size
        self._store, self._exchanges = store, 0
        self._timeout = max(1.0, min(timeout.total_seconds(), _MAX_TIMEOUT_SECONDS))
        self._host = host
        if host is not None:  # PyTorch's hooks of a process group need a backend of the base class
            gloo = dist.ProcessGroup.BackendType.GLOO
            self._set_default_backend(gloo)
            self._register_backend(torch.device("cpu"), gloo, host._get_backend(torch.device("cpu")))
        self._name = self._description = ""
        self._destroyed = False
        self._member: Any = None
        self._device: torch.device | None = None  # the member's
        self._given_device = device  # not bound_device_id, for which PyTorch demands groups that can be split
        self._messages = Messages(store, rank, size, self._timeout)
        _groups.add(self)

    # ---- methods that torch.distributed calls

    def getBackendName(self) -> str:
        return "tensord"

    def _get_backend(self, device: torch.device | str) -> Any:
        if self._host is not None and torch.device(device).type == "cpu":
            return self._host._get_backend(torch.device("cpu"))
        return self  # PyTorch reads properties of the backend

    @property
    def _device_types(self) -> list[torch.device]:
        return [] if self._host is None else [torch.device("cpu"), torch.device("tensord")]

    # PyTorch reads these by group_name and group_desc, and calls the setters by _set_group_name and _set_group_desc.

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name
        if self._host is not None:
            self._host._set_group_name(name)

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description
        if self._host is not None:
            self._host._set_group_desc(description)

    def _start_coalescing(self, device: torch.device) -> None:
        """Does nothing: each operation is sent at its call."""

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        return _done([])

    def size(self) -> int:
        return self._member_count

    def rank(self) -> int:
        return self._member_rank

    def __repr__(self) -> str:
        return f"ProcessGroupTensord(rank={self._member_rank}, size={self._member_count}, device={self._device})"

    # ---- the members

    def _exchange(self, own: bytes) -> list[bytes]:
        """Returns the bytes of all members by rank. The store carries them."""
        self._exchanges += 1
        name = f"tensord/{self._exchanges}"
        self._store.set(f"{name}/{self._member_rank}", own)
        keys = [f"{name}/{rank}" for rank in range(self._member_count)]
        await_keys(self._store, keys, time.monotonic() + self._store.timeout.total_seconds())
        made = [bytes(self._store.get(key)) for key in keys]
        if self._exchanges > 1:  # all members have begun this exchange, so they have read the last one
            self._store.delete_key(f"tensord/{self._exchanges - 1}/{self._member_rank}")
        return made

    def _join(self, device: torch.device) -> Any:
        """Joins the group with the device of the first operation's tensor. All processes do so at the same time."""
        if self._member is None:
            owner = as_tensord(torch.zeros(1, device=device)).device
            self._member = tensord.GroupMember(
                owner, self._member_rank, self._member_count, self._exchange, self._timeout
            )
            self._device = device
        if device != self._device:
            raise RuntimeError(
                f"torch.distributed: this process takes part with {self._device}, and the tensor is on {device}: "
                f"copy it with x.to('{self._device}')"
            )
        return self._member

    def _own_device(self) -> torch.device:
        return self._device or self._given_device or torch.device("tensord", torch.tensord.current_device())

    def _prepare(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the tensor on this member's device: PyTorch gives objects, such as pickled ones, on the CPU."""
        if tensor.device.type == "cpu":
            tensor = tensor.to(self._own_device())
        if tensor.device.type != "tensord":
            raise RuntimeError(
                f"torch.distributed: {name}: the tensor is on {tensor.device}, and the backend tensord takes tensors"
                " on tensord: copy it with x.to('tensord')"
            )
        self._join(tensor.device)
        return tensor

    def _check_rank(self, name: str, rank: int) -> None:
        if not 0 <= rank < self._member_count:
            raise ValueError(
                f"torch.distributed: {name}: the group has no member {rank}: ranks are from 0 to"
                f" {self._member_count - 1}"
            )

    def _own_part(self, gathered: torch.Tensor) -> torch.Tensor:
        """Returns this member's part of the first axis of each tensor of (members, …)."""
        return gathered.unflatten(1, (self._member_count, -1))[:, self._member_rank]

    def _reduce(self, name: str, tensor: torch.Tensor, options: Any, run: Run) -> torch.Tensor:
        """Calls run(tensor, reduction) for the reduction of `options`."""
        tensor = self._prepare(name, tensor)
        op = options.reduceOp
        if op == dist.ReduceOp.MIN:
            # Unlike -x, ~x reverses the order of all integers.
            reverse = torch.neg if tensor.is_floating_point() else torch.bitwise_not
            return reverse(self._reduce_by(reverse(tensor), "max", run))
        for known, reduction in _REDUCTIONS.items():
            if op == known:
                return self._reduce_by(tensor, reduction, run)
        for known, combine in _COMBINATIONS.items():
            if op == known:
                gathered = self._gather(name, tensor)
                return combine(self._own_part(gathered) if run == self._reduce_scatter else gathered)
        raise NotImplementedError(
            f"torch.distributed: {name} by {op} isn't implemented by the backend tensord: it has SUM, AVG, MAX, MIN,"
            " PRODUCT, BAND, BOR and BXOR"
        )

    def _reduce_by(self, tensor: torch.Tensor, reduction: str, run: Run) -> torch.Tensor:
        # Gloo and NCCL have no bool: a sum or a maximum of bytes is the same.
        return run(tensor.byte(), "max").bool() if tensor.dtype == torch.bool else run(tensor, reduction)

    def _all_reduce(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        return as_torch(self._member.all_reduce(as_tensord(tensor), reduction))

    def _reduce_scatter(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        return as_torch(self._member.reduce_scatter(as_tensord(tensor), reduction))

    def _check_parts(self, name: str, parts: Tensors) -> None:
        if len(parts) != self._member_count:
            raise ValueError(
                f"torch.distributed: {name}: the list has {len(parts)} tensors, and must have one for each of the"
                f" {self._member_count} members"
            )

    # ---- the operations

    def allreduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        opts = opts or dist.AllreduceOptions()
        for tensor in tensors:
            _write("all_reduce", tensor, self._reduce("all_reduce", tensor, opts, self._all_reduce))
        return _done(tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        return self.allreduce(tensors, opts or dist.AllreduceCoalescedOptions())

    def broadcast(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        root = opts.rootRank if opts is not None else 0
        self._check_rank("broadcast", root)
        for tensor in tensors:
            given = as_tensord(self._prepare("broadcast", tensor))
            _write("broadcast", tensor, as_torch(self._member.broadcast(given, root)))
        return _done(tensors)

    def allgather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any = None) -> dist.Work:
        for outputs, tensor in zip(output_tensors, input_tensors):
            self._check_parts("all_gather", outputs)
            for output in outputs:
                _check_output("all_gather", output, tensor.numel(), tensor.dtype)
            gathered = self._gather("all_gather", tensor)
            for output, part in zip(outputs, gathered):
                _write("all_gather", output, part)
        return _done([each for outputs in output_tensors for each in outputs], output_tensors)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        _check_output("all_gather_into_tensor", output, input.numel() * self._member_count, input.dtype)
        _write("all_gather_into_tensor", output, self._gather("all_gather_into_tensor", input))
        return _done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        for output, tensor in zip(outputs, inputs):
            self.all_gather_single(output, tensor)
        return _done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any = None) -> dist.Work:
        for output, parts in zip(output_tensors, input_tensors):
            self._check_parts("reduce_scatter", parts)
            self.reduce_scatter_single(output, torch.cat([part.reshape(-1) for part in parts]), opts)
        return _done(output_tensors)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        opts = opts or dist.ReduceScatterOptions()
        if input.numel() != output.numel() * self._member_count:
            raise ValueError(
                f"torch.distributed: reduce_scatter: the input has {input.numel()} elements, and must have"
                f" {self._member_count} times the {output.numel()} elements of the output"
            )
        _check_output("reduce_scatter", output, output.numel(), input.dtype)
        made = self._reduce("reduce_scatter", input.reshape(self._member_count, -1), opts, self._reduce_scatter)
        _write("reduce_scatter", output, made)
        return _done([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        for output, tensor in zip(outputs, inputs):
            self.reduce_scatter_single(output, tensor, opts)
        return _done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        self._check_rank("reduce", opts.rootRank)
        # All members compute it, and the root keeps it.
        for tensor in tensors:
            made = self._reduce("reduce", tensor, opts, self._all_reduce)
            if self._member_rank == opts.rootRank:
                _write("reduce", tensor, made)
        return _done(tensors)

    def gather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any) -> dist.Work:
        self._check_rank("gather", opts.rootRank)
        is_root = self._member_rank == opts.rootRank
        for i, tensor in enumerate(input_tensors):
            if is_root:
                self._check_parts("gather", output_tensors[i])
                for output in output_tensors[i]:
                    _check_output("gather", output, tensor.numel(), tensor.dtype)
            gathered = self._gather("gather", tensor)
            if is_root:
                for output, part in zip(output_tensors[i], gathered):
                    _write("gather", output, part)
        return _done(input_tensors)

    def scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any) -> dist.Work:
        self._check_rank("scatter", opts.rootRank)
        for i, output in enumerate(output_tensors):
            here = self._prepare("scatter", output)
            if self._member_rank == opts.rootRank:
                self._check_parts("scatter", input_tensors[i])
                for part in input_tensors[i]:
                    _check_output("scatter", output, part.numel(), part.dtype)
                parts = torch.stack([self._prepare("scatter", part.reshape(output.shape)) for part in input_tensors[i]])
            else:
                parts = torch.zeros(self._member_count, *here.shape, dtype=here.dtype, device=here.device)
            made = as_torch(self._member.broadcast(as_tensord(parts), opts.rootRank))
            _write("scatter", output, made[self._member_rank])
        return _done(output_tensors)

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> dist.Work:
        self._check_parts("all_to_all", input_tensors)
        self._check_parts("all_to_all", output_tensors)
        parts = [self._prepare("all_to_all", each).reshape(-1) for each in input_tensors]
        made = self._all_to_all(torch.cat(parts), [part.numel() for part in parts])
        for output, part in zip(output_tensors, made):
            _write("all_to_all", output, part)
        return _done(output_tensors)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
    ) -> dist.Work:
        count = self._member_count
        if not output_split_sizes and not input_split_sizes:
            if input.shape[0] % count != 0 or output.numel() != input.numel():
                raise ValueError(
                    f"torch.distributed: all_to_all_single: the first axes of the input {tuple(input.shape)} and of"
                    f" the output {tuple(output.shape)} must be the same multiple of the {count} members"
                )
            made = self._own_part(self._gather("all_to_all_single", input))
            _write("all_to_all_single", output, made)
            return _done([output])
        sizes = list(input_split_sizes or [input.shape[0] // count] * count)
        made = self._all_to_all(self._prepare("all_to_all_single", input), sizes)
        _write("all_to_all_single", output, torch.cat(made))
        return _done([output])

    alltoall_base = all_to_all_single

    def _all_to_all(self, x: torch.Tensor, sizes: Sequence[int]) -> Tensors:
        """Splits the first axis of x into a part for each member. Returns the parts of all members for this member."""
        if sum(sizes) != x.shape[0]:
            raise ValueError(
                f"torch.distributed: all_to_all: the sizes of the parts, {sizes}, must have the sum {x.shape[0]}, which"
                " is the size of the input's first axis"
            )
        sizes_of = [json.loads(each) for each in self._exchange(json.dumps(sizes).encode())]
        longest = max(map(sum, sizes_of))
        padded = torch.cat([x, x.new_zeros(longest - x.shape[0], *x.shape[1:])])
        gathered = self._gather("all_to_all", padded)
        made = []
        for rank, each in enumerate(sizes_of):
            start = sum(each[: self._member_rank])
            made.append(gathered[rank, start : start + each[self._member_rank]])
        return made

    def barrier(self, opts: Any = None) -> dist.Work:
        ids = opts.device_ids if opts is not None else []
        self._join(torch.device("tensord", ids[0]) if ids else self._own_device()).barrier()
        return _done([])

    def _gather(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        tensor = self._prepare(name, tensor)
        return as_torch(self._member.all_gather(as_tensord(tensor.reshape(1, *tensor.shape))))

    # ---- messages between two members

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> dist.Work:
        """Waits until the device has computed the tensors, but doesn't wait for the receiver."""
        self._check_rank("send", dst)
        for tensor in tensors:
            self._messages.send(tensor.to(self._own_device()) if tensor.device.type == "cpu" else tensor, dst, tag)
        return _done(tensors)

    def recv(self, tensors: Tensors, src: int | None, tag: int = 0) -> dist.Work:
        """Returns a work. Its wait() blocks until the messages are in the store, and copies the tensors."""
        if src is not None:
            self._check_rank("recv", src)
        return self._messages.receive(tensors, src, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        if len(tensors) != 1:
            raise NotImplementedError("torch.distributed: recv from any member takes one tensor")
        return self.recv(tensors, None, tag)

    # ---- the end

    def shutdown(self) -> None:
        """Ends the group, after the other members have got what they need. destroy_process_group() calls this."""
        self._leave(self._timeout)
        if self._host is not None:
            self._host.shutdown()

    def _leave(self, seconds: float) -> None:
        """Waits for this member's part of all operations, and for the receivers of its messages. Then leaves.

        The end of this process's session would take the results from the other members. Waits for `seconds` at most.
        """
        self._destroyed = True
        if self._member is not None:
            self._await_operations(time.monotonic() + seconds)
            self._member = None
        self._messages.await_delivery(time.monotonic() + min(seconds, _MAX_DELIVERY_SECONDS))

    def _await_operations(self, deadline: float) -> None:
        try:
            last = torch.tensord.Event()
            last.record(torch.tensord.current_stream(self._device))
            while not last.query() and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        except RuntimeError:  # the session has ended
            pass


def _check_output(name: str, output: torch.Tensor, count: int, dtype: torch.dtype) -> None:
    """Raises an error if the output can't get `count` elements of `dtype`, before the operation begins."""
    if output.dtype != dtype:
        raise TypeError(f"torch.distributed: {name}: the output has the dtype {output.dtype}, and the result {dtype}")
    if output.numel() != count:
        raise ValueError(
            f"torch.distributed: {name}: the output has the shape {tuple(output.shape)}, and the result has {count}"
            " elements"
        )


def _write(name: str, output: torch.Tensor, value: torch.Tensor) -> None:
    """Writes the elements. As with PyTorch's backends, this doesn't count as a change that backward() would refuse."""
    _check_output(name, output, value.numel(), value.dtype)
    output.data.copy_(value.reshape(output.shape))


def _is_on_cpu(arguments: Iterable[Any]) -> bool | None:
    """Returns whether the first tensor of an operation's arguments is on the CPU; None if there is no tensor."""
    for each in arguments:
        found = each.device.type == "cpu" if isinstance(each, torch.Tensor) else None
        if found is None and isinstance(each, (list, tuple)):
            found = _is_on_cpu(each)
        if found is not None:
            return found
    return None


def _operation(name: str) -> Callable[..., Any]:
    """Returns the method of ProcessGroupTensord with its checks.

    torch.compile breaks its graph at an operation, and doesn't look into it. Autograd doesn't record the operations:
    they may write to parameters.
    """
    method = torch.no_grad()(getattr(ProcessGroupTensord, name))

    @functools.wraps(method)
    def call(self: ProcessGroupTensord, *arguments: Any, **options: Any) -> Any:
        if self._destroyed:
            raise RuntimeError(f"torch.distributed: {name}: the process group was destroyed")
        if self._host is not None:
            on_cpu = _is_on_cpu((*arguments, *options.values()))
            if on_cpu or on_cpu is None and self._member is None:  # a barrier of a program without tensors on tensord
                return getattr(self._host, name)(*arguments, **options)
        return method(self, *arguments, **options)

    return torch.compiler.disable(call)


for _name in (
    "allreduce allreduce_coalesced broadcast allgather all_gather_single _allgather_base all_gather_single_coalesced"
    " allgather_into_tensor_coalesced reduce_scatter reduce_scatter_single _reduce_scatter_base"
    " reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced reduce gather scatter alltoall alltoall_base"
    " all_to_all_single send recv recv_anysource barrier"
).split():
    setattr(ProcessGroupTensord, _name, _operation(_name))


def _done(tensors: Tensors, value: Any = None) -> dist.Work:
    """Returns the work of operations that have been sent. Later ops on the tensors come after them."""
    future = torch.futures.Future()
    future.set_result(tensors if value is None else value)
    return _create_work_from_future(future)


_groups: weakref.WeakSet[ProcessGroupTensord] = weakref.WeakSet()


@atexit.register
def _leave_groups() -> None:
    """Leaves all groups, because programs may end without destroy_process_group()."""
    for group in list(_groups):
        group._leave(_MAX_DELIVERY_SECONDS)


def _unfinished_group(options: Any) -> dist.ProcessGroup:
    """Returns the process group to which PyTorch adds backends.

    PyTorch 2.11 doesn't pass it: it is a local variable of PyTorch's function that makes the group.
    """
    if hasattr(options, "process_group"):
        return options.process_group
    frame: Any = inspect.currentframe()
    while frame is not None and frame.f_code is not dist.distributed_c10d._new_process_group_helper.__code__:
        frame = frame.f_back
    if frame is None:
        raise RuntimeError(
            f"PyTorch {torch.__version__} doesn't pass the process group to the backend tensord: update PyTorch, or "
            "create groups only by torch.distributed.init_process_group() and new_group()"
        )
    return frame.f_locals["pg"]


def create_process_group(options: Any) -> ProcessGroupTensord:
    """Makes the process group. torch.distributed.init_process_group calls this. `options` are those of PyTorch."""
    made_first = _unfinished_group(options)  # has the backends of the device types that come before tensord
    host = made_first if torch.device("cpu") in made_first._device_types else None
    device = made_first.bound_device_id or getattr(dist.group.WORLD, "_given_device", None)
    return ProcessGroupTensord(options.store, options.group_rank, options.group_size, options.timeout, host, device)
