"""Layers of neural networks, named and composed as in PyTorch. There is no autograd: these are for inference, and for
training with gradients of your own.

    from tensord import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(64, 128)
            self.output = nn.Linear(128, 10)

        def forward(self, x):
            return self.output(self.hidden(x).relu())

    net = Net()
    net.load_state_dict(tensord.load_safetensors("model.safetensors"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from . import _core
from ._core import Device, Generator, Tensor

__all__ = [
    "GELU", "Dropout", "Embedding", "Flatten", "Identity", "LayerNorm", "Linear", "LogSoftmax", "Module", "ModuleList",
    "Parameter", "ReLU", "Sequential", "SiLU", "Sigmoid", "Softmax", "Tanh",
]  # fmt: skip


class _Parameter:
    def __init__(self, value: Tensor) -> None:
        self.value = value


def Parameter(value: Tensor) -> Any:  # noqa: N802
    """Marks a tensor as a parameter for a module that gets it as an attribute: self.scale = nn.Parameter(tensor)."""
    return _Parameter(value)


class Module:
    """The base of all layers. A subclass calls super().__init__(), sets parameters and modules as attributes, and
    defines forward()."""

    training: bool
    _parameters: dict[str, Tensor]
    _modules: dict[str, Module]

    def __init__(self) -> None:
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "training", True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} doesn't define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        if "_modules" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} must call super().__init__() before it sets {name}")
        if isinstance(value, _Parameter):
            self._modules.pop(name, None)
            self._parameters[name] = value.value
        elif isinstance(value, Module):
            self._parameters.pop(name, None)
            self._modules[name] = value
        elif name in self._parameters and isinstance(value, Tensor):
            self._parameters[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for registry in ("_parameters", "_modules"):
            found = self.__dict__.get(registry, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if self._parameters.pop(name, None) is None and self._modules.pop(name, None) is None:
            object.__delattr__(self, name)

    def children(self) -> Iterator[Module]:
        """Yields the modules that are attributes of this one."""
        yield from self._modules.values()

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yields this module and all modules in it, with their names."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """Yields this module and all modules in it."""
        for _, module in self.named_modules():
            yield module

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all parameters with their names, in PyTorch's order. A parameter that two modules share comes once."""
        seen: set[int] = set()
        for name, value in self._all_parameters():
            if id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def parameters(self) -> Iterator[Tensor]:
        """Yields all parameters."""
        for _, value in self.named_parameters():
            yield value

    def _all_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for prefix, module in self.named_modules():
            for name, value in module._parameters.items():
                yield f"{prefix}.{name}" if prefix else name, value

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the parameters by name. Later changes of the module don't change them."""
        return {name: value.clone() for name, value in self._all_parameters()}

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        """Sets the parameters by name. Values are converted to the dtype and the device of the parameter.

        If a shape differs, or with `strict` if a parameter is missing or a name is unknown, raises a ValueError with all
        these names, and changes nothing.
        """
        own = dict(self._all_parameters())
        problems = [f"{name} is missing" for name in own if strict and name not in state]
        problems += [f"{name} is unknown" for name in state if strict and name not in own]
        problems += [
            f"{name} has shape {state[name].shape} in place of {value.shape}"
            for name, value in own.items()
            if name in state and state[name].shape != value.shape
        ]
        if problems:
            raise ValueError(f"load_state_dict of {type(self).__name__}: " + "; ".join(problems))
        values = {name: state[name].to(value.device, value.dtype) for name, value in own.items() if name in state}
        for name, value in values.items():
            own[name]._assign(value)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Moves or converts all parameters, as Tensor.to does. Returns this module."""
        for value in self.parameters():
            value._assign(value.to(*args, **kwargs))
        return self

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Calls the function with every module in this one, then with this one."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Makes all modules in this one behave as in training. Only Dropout differs. Returns this module."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Self:
        """The same as train(False)."""
        return self.train(False)

    def extra_repr(self) -> str:
        """Returns what stands in the brackets of the text of this module."""
        return ""

    def __repr__(self) -> str:
        lines = []
        for name, module in self._modules.items():
            lines.append(f"  ({name}): " + repr(module).replace("\n", "\n  "))
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"


class Linear(Module):
    """x·Wᵀ + b: (…,in) -> (…,out). Weight and bias begin uniform in [-1/√in, 1/√in)."""

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
        generator: Generator | int | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        source = Generator(generator) if isinstance(generator, int) else generator

        def draw(*shape: int) -> Tensor:
            return _core.uniform(*shape, low=-bound, high=bound, generator=source, dtype=dtype, device=device)

        self.weight = Parameter(draw(out_features, in_features))
        self.bias = Parameter(draw(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return _core.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """The rows of the weight at the indices: (…) -> (…,dim). The weight begins normally distributed."""

    weight: Tensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
        generator: Generator | int | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(
            _core.normal(num_embeddings, embedding_dim, generator=generator, dtype=dtype, device=device)
        )

    def forward(self, x: Tensor) -> Tensor:
        return _core.embedding(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Module):
    """(x - mean) / √(var + eps) over the last axes, times the weight, plus the bias."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        affine = elementwise_affine
        self.weight = Parameter(_core.ones(shape, dtype=dtype, device=device)) if affine else None
        self.bias = Parameter(_core.zeros(shape, dtype=dtype, device=device)) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        axes = tuple(range(-len(self.normalized_shape), 0))
        var, mean = _core.var_mean(x, axes, keepdims=True, correction=0.0)
        y = (x - mean) * _core.rsqrt(var + self.eps)
        if self.weight is not None:
            y = y * self.weight
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class Dropout(Module):
    """In training, sets each element to 0 with probability p and divides the others by 1 - p. In evaluation, returns
    its input."""

    def __init__(self, p: float = 0.5, *, generator: Generator | int | None = None) -> None:
        super().__init__()
        self.p = p
        self.generator = Generator(generator) if isinstance(generator, int) else generator

    def forward(self, x: Tensor) -> Tensor:
        return _core.dropout(x, self.p, training=self.training, generator=self.generator)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return _core.relu(x)


class SiLU(Module):
    """x times sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return _core.silu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return _core.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return _core.tanh(x)


class Identity(Module):
    """x."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class GELU(Module):
    """x times the normal distribution function of x. approximate="tanh": an approximation by tanh."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return _core.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    """exp(x) divided by its sum along the axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return _core.softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class LogSoftmax(Softmax):
    """The logarithm of softmax."""

    def forward(self, x: Tensor) -> Tensor:
        return _core.log_softmax(x, self.axis)


class Flatten(Module):
    """Joins the axes from start_axis to end_axis into one."""

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        super().__init__()
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        return _core.flatten(x, self.start_axis, self.end_axis)

    def extra_repr(self) -> str:
        return f"start_axis={self.start_axis}, end_axis={self.end_axis}"


class ModuleList(Module):
    """A list of modules, named "0", "1", …."""

    def __init__(self, modules: Iterator[Module] | list[Module] | tuple[Module, ...] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        setattr(self, str(len(self._modules)), module)
        return self

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class Sequential(ModuleList):
    """Modules applied one after the other, named "0", "1", …."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x
