"""Linear layers, embeddings, activations and dropout."""

from __future__ import annotations

import math

from .. import _core
from .._core import Device, Generator, Tensor
from ._module import Module, Parameter


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
    """x times the normal distribution function of x. With approximate="tanh", approximates it by tanh."""

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
