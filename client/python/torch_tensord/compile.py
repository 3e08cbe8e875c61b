"""The backend "tensord" of torch.compile: each graph is a program of the server, and a call sends one message.

torch.compile(model, backend="tensord") finds compile_graph by an entry point. Dynamo captures the graphs and guards
them. AOTAutograd splits a graph that needs gradients into a forward and a backward graph of functional ops. At its
first call, a graph is run op by op on placeholders. The package records the ops as a program, which later calls run.
"""

import ctypes
import functools
import itertools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ops = torch.ops.tensord
_TRACE = ctypes.CFUNCTYPE(ctypes.c_int)


class _Graph:
    """A graph that AOTAutograd has made. Calls take a list of inputs: tensors, and integers of dynamic shapes."""

    def __init__(self, module: Any, examples: Sequence[Any]) -> None:
        self.module = module
        self.runs_op_by_op = False
        self.has_integers = not all(isinstance(each, torch.Tensor) for each in examples)
        self.numbers: dict[tuple[Any, ...], int] = {}  # by the integers among the inputs
        # By the integers: the outputs, with _TENSOR in place of each tensor; None if all are tensors.
        self.shapes: dict[tuple[Any, ...], list[Any] | None] = {}
        self.call = threading.local()  # `inputs` of the call that this thread makes
        self.error: Exception | None = None
        self.trace = _TRACE(self._trace)
        self.address = ctypes.cast(self.trace, ctypes.c_void_p).value

    def __del__(self) -> None:
        for number in self.numbers.values():
            _ops._drop_graph(number)

    def __call__(self, inputs: list[Any]) -> Any:
        if self.runs_op_by_op:
            return self._run_op_by_op(inputs)
        key: tuple[Any, ...] = ()
        tensors = inputs
        if self.has_integers:
            key = tuple(each for each in inputs if not isinstance(each, torch.Tensor))
            tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = _ops._make_graph()
        self.call.inputs = inputs
        with torch.no_grad():
            outputs = _ops._run_graph(number, tensors, self.address)
        self.call.inputs = None
        if outputs is None:
            self._give_up(tensors)
            return self._run_op_by_op(inputs)
        shape = self.shapes[key]
        if shape is not None:
            tensors_out = iter(outputs)
            outputs = [next(tensors_out) if each is _TENSOR else each for each in shape]
        inputs.clear()
        return outputs

    def _run_op_by_op(self, inputs: list[Any]) -> Any:
        given = list(inputs)
        inputs.clear()
        return self.module(*given)

    def _trace(self) -> int:
        """Runs the graph on placeholders, and gives them the results. C++ calls this. Returns 0 for success."""
        try:
            numbers = itertools.count()
            inputs = [
                _ops._graph_input(next(numbers)) if isinstance(each, torch.Tensor) else each
                for each in self.call.inputs
            ]
            outputs = self.module(*inputs)
            key = tuple(each for each in inputs if not isinstance(each, torch.Tensor))
            is_tensor = [isinstance(each, torch.Tensor) for each in outputs]
            self.shapes[key] = None
            if not all(is_tensor):
                self.shapes[key] = [_TENSOR if yes else each for yes, each in zip(is_tensor, outputs)]
            _ops._set_graph_outputs([each for yes, each in zip(is_tensor, outputs) if yes])
            return 0
        except Exception as error:
            self.error = error
            return 1

    def _give_up(self, tensors: list[Any]) -> None:
        self.runs_op_by_op = True
        devices = sorted({str(each.device) for each in tensors})
        if self.error is not None:
            reason = str(self.error).splitlines()[0]
        elif not tensors:
            reason = "it has no tensors as inputs"
        elif devices != [str(tensors[0].device)] or not devices[0].startswith("tensord"):
            reason = f"its inputs are on {', '.join(devices)}"
        else:
            reason = "its inputs have too many different shapes, or it has too many outputs"
        self.error = None
        warnings.warn(f"torch.compile: a graph of {len(self.module.graph.nodes)} nodes runs op by op: {reason}")


_TENSOR = object()


def _compile(module: Any, examples: Sequence[Any]) -> Callable[[list[Any]], Any]:
    graph = _Graph(module, examples)

    def run(inputs: list[Any]) -> Any:
        return graph(inputs)

    boxed: Any = run
    boxed._boxed_call = True  # AOTAutograd then passes one list
    return boxed


def compile_graph(module: Any, examples: Sequence[Any], **options: Any) -> Any:
    """Compiles a graph that Dynamo has captured. torch.compile(backend="tensord") calls this."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if options:
        raise ValueError(f"the backend tensord has no options, but got {', '.join(options)}")
    return aot_autograd(fw_compiler=_compile, partition_fn=min_cut_rematerialization_partition)(module, examples)


@functools.cache
def make_inductor_class(name: str) -> type:
    """Returns a class that replaces inductor's class of this name. If inductor uses it, it raises
    NotImplementedError, whose message names the backend to use."""
    from torch._inductor import scheduler
    from torch._inductor.codegen import common, wrapper

    def refuse(*unused: object) -> None:
        raise NotImplementedError('inductor generates no code for tensord: use torch.compile(model, backend="tensord")')

    common.register_device_op_overrides("tensord", common.DeviceOpOverrides())
    if name == "Scheduling":
        return type(name, (scheduler.BaseScheduling,), {"__init__": refuse})
    return type(name, (wrapper.PythonWrapperCodegen,), {"create": staticmethod(refuse)})
