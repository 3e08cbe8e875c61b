"""Convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import _core
from .._core import Device, Generator, Tensor
from ._module import Module, Parameter

_Size = int | tuple[int, ...]


def _per_axis(value: _Size, axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else tuple(value)


class _Conv(Module):
    weight: Tensor
    bias: Tensor | None
    _axes: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Size,
        stride: _Size = 1,
        padding: _Size | str = 0,
        dilation: _Size = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
        generator: Generator | int | None = None,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: {in_channels} input and {out_channels} output channels must be multiples of "
                f"the {groups} groups"
            )
        self.kernel_size, self.stride = _per_axis(kernel_size, self._axes), _per_axis(stride, self._axes)
        self.dilation = _per_axis(dilation, self._axes)
        self.padding = padding if isinstance(padding, str) else _per_axis(padding, self._axes)
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        source = Generator(generator) if isinstance(generator, int) else generator

        def draw(*shape: int) -> Tensor:
            return _core.uniform(*shape, low=-bound, high=bound, generator=source, dtype=dtype, device=device)

        self.weight = Parameter(draw(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = Parameter(draw(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        convolve = (_core.conv1d, _core.conv2d, _core.conv3d)[self._axes - 1]
        return convolve(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self._axes:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._axes:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else text + ", bias=False"


class Conv1d(_Conv):
    """The convolution of x with the weight, plus the bias: (N,C,L) or (C,L). Parameters begin uniform in [-1/√n, 1/√n),
    where n elements contribute to a sum."""

    _axes = 1


class Conv2d(_Conv):
    """Does the same as Conv1d for x (N,C,H,W) or (C,H,W)."""

    _axes = 2


class Conv3d(_Conv):
    """Does the same as Conv1d for x (N,C,D,H,W) or (C,D,H,W)."""

    _axes = 3


class MaxPool2d(Module):
    """The largest element of each window: (N,C,H,W) or (C,H,W)."""

    def __init__(
        self,
        kernel_size: _Size,
        stride: _Size | None = None,
        padding: _Size = 0,
        dilation: _Size = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = _per_axis(kernel_size, 2)
        self.stride = self.kernel_size if stride is None else _per_axis(stride, 2)
        self.padding, self.dilation = _per_axis(padding, 2), _per_axis(dilation, 2)
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        return _core.max_pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """The mean of each window: (N,C,H,W) or (C,H,W)."""

    def __init__(
        self,
        kernel_size: _Size,
        stride: _Size | None = None,
        padding: _Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _per_axis(kernel_size, 2)
        self.stride = self.kernel_size if stride is None else _per_axis(stride, 2)
        self.padding = _per_axis(padding, 2)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return _core.avg_pool(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """The means of output_size windows that cover x, (N,C,H,W) or (C,H,W). The sizes of x must be multiples of these."""

    def __init__(self, output_size: int | Sequence[int]) -> None:
        super().__init__()
        self.output_size = _per_axis(output_size if isinstance(output_size, int) else tuple(output_size), 2)

    def forward(self, x: Tensor) -> Tensor:
        sizes = x.shape[-2:]
        if len(sizes) < 2 or any(o < 1 or size % o for size, o in zip(sizes, self.output_size, strict=True)):
            raise NotImplementedError(
                f"AdaptiveAvgPool2d: x has shape {x.shape}, whose last sizes must be multiples of {self.output_size}"
            )
        if self.output_size == (1, 1):
            return _core.mean(x, (-2, -1), keepdims=True)
        return _core.avg_pool(x, [size // o for size, o in zip(sizes, self.output_size, strict=True)])

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
