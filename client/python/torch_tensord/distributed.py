"""The backend "tensord" of torch.distributed: collective operations between the devices of several processes.

torch.distributed.init_process_group("tensord") makes one member for each process. Each process has a connection of its
own and a device of its own, which is the current device: torch.tensord.set_device(int(os.environ["RANK"])). The servers
exchange the elements directly, by Gloo between CPUs and by NCCL between GPUs. The store of torch.distributed only
carries the members' addresses. A tensor on the CPU is copied to the device, and the result back, which waits.
"""

import datetime

import tensord
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from . import as_tensord, as_torch

_REDUCTIONS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "mean", dist.ReduceOp.MAX: "max"}
_MAX_TIMEOUT_SECONDS = 30.0  # for an operation that waits for its last member


class ProcessGroupTensord(dist.ProcessGroup):
    """A process group whose tensors are on devices of tensord. Operations return at once, and run in the order of the
    calls. An error of the servers is raised at the next wait for a result."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._member_rank, self._member_count = rank, size
        self._store, self._exchanges = store, 0
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
        self._timeout = max(1.0, min(seconds, 3600.0))
        self._member = None
        self._device = None

    # ---- methods that torch.distributed calls

    def getBackendName(self):
        return "tensord"

    def size(self):
        return self._member_count

    def rank(self):
        return self._member_rank

    def __repr__(self):
        return f"ProcessGroupTensord(rank={self._member_rank}, size={self._member_count}, device={self._device})"

    # ---- the members

    def _exchange(self, own):
        """Returns the bytes of all members by rank. The store carries them."""
        self._exchanges += 1
        name = f"tensord/{self._exchanges}"
        self._store.set(f"{name}/{self._member_rank}", own)
        return [bytes(self._store.get(f"{name}/{rank}")) for rank in range(self._member_count)]

    def _join(self, device):
        """Joins the group with the device of the first operation's tensor. All processes do so at the same time."""
        if self._member is None:
            owner = as_tensord(torch.zeros(1, device=device)).device
            self._member = tensord.GroupMember(
                owner, self._member_rank, self._member_count, self._exchange, min(self._timeout, _MAX_TIMEOUT_SECONDS)
            )
            self._device = device
        if device != self._device:
            raise RuntimeError(
                f"torch.distributed: this process takes part with {self._device}, and the tensor is on {device}: "
                f"copy it with x.to('{self._device}')"
            )
        return self._member

    def _prepare(self, name, tensor):
        """Returns the tensor on this member's device: PyTorch gives objects, such as pickled ones, on the CPU."""
        if tensor.device.type == "cpu":
            tensor = tensor.to(self._device or torch.device("tensord", torch.tensord.current_device()))
        if tensor.device.type != "tensord":
            raise RuntimeError(
                f"torch.distributed: {name}: the tensor is on {tensor.device}, and the backend tensord takes tensors"
                " on tensord: copy it with x.to('tensord')"
            )
        self._join(tensor.device)
        return tensor

    def _reduce(self, name, tensor, options, run):
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
        names = [each for each in ("PRODUCT", "BAND", "BOR", "BXOR") if op == getattr(dist.ReduceOp, each)]
        raise NotImplementedError(
            f"torch.distributed: {name} by {', '.join(names) or op} isn't implemented by the backend tensord: it has"
            " SUM, AVG, MAX and MIN"
        )

    def _reduce_by(self, tensor, reduction, run):
        # Gloo and NCCL have no bool: a sum or a maximum of bytes is the same.
        return run(tensor.byte(), "max").bool() if tensor.dtype == torch.bool else run(tensor, reduction)

    def _all_reduce(self, tensor, reduction):
        return as_torch(self._member.all_reduce(as_tensord(tensor), reduction))

    def _reduce_scatter(self, tensor, reduction):
        return as_torch(self._member.reduce_scatter(as_tensord(tensor), reduction))

    # ---- the operations

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        for tensor in tensors:
            tensor.copy_(self._reduce("all_reduce", tensor, opts, self._all_reduce))
        return _done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts or dist.AllreduceCoalescedOptions())

    def broadcast(self, tensors, opts=None):
        root = opts.rootRank if opts is not None else 0
        for tensor in tensors:
            given = as_tensord(self._prepare("broadcast", tensor))
            tensor.copy_(as_torch(self._member.broadcast(given, root)))
        return _done(tensors)

    def allgather(self, output_tensors, input_tensors, opts=None):
        for outputs, tensor in zip(output_tensors, input_tensors):
            gathered = self._gather("all_gather", tensor)
            for output, part in zip(outputs, gathered):
                output.copy_(part)
        return _done([each for outputs in output_tensors for each in outputs], output_tensors)

    def all_gather_single(self, output, input, opts=None):
        output.view(-1).copy_(self._gather("all_gather", input).reshape(-1))
        return _done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        for output, tensor in zip(outputs, inputs):
            self.all_gather_single(output, tensor)
        return _done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        for output, parts in zip(output_tensors, input_tensors):
            self.reduce_scatter_single(output, torch.cat([part.reshape(-1) for part in parts]), opts)
        return _done(output_tensors)

    def reduce_scatter_single(self, output, input, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        made = self._reduce("reduce_scatter", input.reshape(self._member_count, -1), opts, self._reduce_scatter)
        output.view(-1).copy_(made.reshape(-1))
        return _done([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        for output, tensor in zip(outputs, inputs):
            self.reduce_scatter_single(output, tensor, opts)
        return _done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce(self, tensors, opts):
        # All members compute it, and the root keeps it.
        for tensor in tensors:
            made = self._reduce("reduce", tensor, opts, self._all_reduce)
            if self._member_rank == opts.rootRank:
                tensor.copy_(made)
        return _done(tensors)

    def gather(self, output_tensors, input_tensors, opts):
        for i, tensor in enumerate(input_tensors):
            gathered = self._gather("gather", tensor)
            if self._member_rank == opts.rootRank:
                for output, part in zip(output_tensors[i], gathered):
                    output.copy_(part)
        return _done(input_tensors)

    def scatter(self, output_tensors, input_tensors, opts):
        for i, output in enumerate(output_tensors):
            here = self._prepare("scatter", output)
            if self._member_rank == opts.rootRank:
                parts = torch.stack([self._prepare("scatter", part) for part in input_tensors[i]])
            else:
                parts = torch.zeros(self._member_count, *here.shape, dtype=here.dtype, device=here.device)
            made = as_torch(self._member.broadcast(as_tensord(parts), opts.rootRank))
            output.copy_(made[self._member_rank])
        return _done(output_tensors)

    def barrier(self, opts=None):
        self._join(torch.device("tensord", torch.tensord.current_device())).barrier()
        return _done([])

    def _gather(self, name, tensor):
        tensor = self._prepare(name, tensor)
        return as_torch(self._member.all_gather(as_tensord(tensor.reshape(1, *tensor.shape))))


# torch.compile breaks its graph at an operation, and doesn't look into it.
for _name in (
    "allreduce allreduce_coalesced broadcast allgather all_gather_single _allgather_base all_gather_single_coalesced"
    " allgather_into_tensor_coalesced reduce_scatter reduce_scatter_single _reduce_scatter_base"
    " reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced reduce gather scatter barrier"
).split():
    setattr(ProcessGroupTensord, _name, torch.compiler.disable(getattr(ProcessGroupTensord, _name)))


def _done(tensors, value=None):
    """Returns the work of operations that have been sent. Later ops on the tensors come after them."""
    future = torch.futures.Future()
    future.set_result(tensors if value is None else value)
    return _create_work_from_future(future)


def create_process_group(store, rank, size, timeout):
    """Makes the process group. torch.distributed.init_process_group calls this."""
    return ProcessGroupTensord(store, rank, size, timeout)
