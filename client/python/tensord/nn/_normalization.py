"""Layer, RMS and batch normalization."""

from __future__ import annotations

from .. import _core
from .._core import Device, Tensor
from ._module import Module, Parameter

# The machine epsilons of the dtypes in which RMSNorm is computed.
_EPSILON_FLOAT32, _EPSILON_FLOAT64 = 2.0**-23, 2.0**-52


def _shape(normalized_shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def _check(module: Module, x: Tensor, normalized: tuple[int, ...]) -> None:
    if tuple(x.shape[-len(normalized) :]) != normalized:
        raise ValueError(f"{type(module).__name__}: x has shape {x.shape}, which must end with {normalized}")


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
        self.normalized_shape, self.eps = _shape(normalized_shape), eps
        affine, shape = elementwise_affine, self.normalized_shape
        self.weight = Parameter(_core.ones(shape, dtype=dtype, device=device)) if affine else None
        self.bias = Parameter(_core.zeros(shape, dtype=dtype, device=device)) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        _check(self, x, self.normalized_shape)
        return _core.layer_norm(x, self.weight, self.bias, len(self.normalized_shape), self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class RMSNorm(Module):
    """x / √(mean of x² + eps) over the last axes, times the weight. By default, eps is the machine epsilon of
    float64 for a float64 x, and of float32 for other dtypes."""

    weight: Tensor | None

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _shape(normalized_shape), eps
        shape = self.normalized_shape
        self.weight = Parameter(_core.ones(shape, dtype=dtype, device=device)) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        _check(self, x, self.normalized_shape)
        default = _EPSILON_FLOAT64 if x.dtype == _core.float64 else _EPSILON_FLOAT32
        eps = default if self.eps is None else self.eps
        return _core.rms_norm(x, self.weight, None, len(self.normalized_shape), eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class _BatchNorm(Module):
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    _ranks: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = Parameter(_core.ones(num_features, dtype=dtype, device=device)) if affine else None
        self.bias = Parameter(_core.zeros(num_features, dtype=dtype, device=device)) if affine else None
        self.register_buffer("running_mean", _core.zeros(num_features, dtype=dtype, device=device))
        self.register_buffer("running_var", _core.ones(num_features, dtype=dtype, device=device))
        self.register_buffer("num_batches_tracked", _core.zeros((), dtype=_core.int64, device=device))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in self._ranks:
            ranks = " or ".join(map(str, self._ranks))
            raise ValueError(f"{type(self).__name__}: x has shape {x.shape}, and must have {ranks} dimensions")
        if not self.training:
            return _core.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.eps)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        count = x.size // x.shape[1] if x.shape[1] else 0
        if count < 2:
            raise ValueError(f"{type(self).__name__}: training needs two or more elements of each channel")
        var, mean = _core.var_mean(x, axes, correction=0.0)
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_var += self.momentum * (var * (count / (count - 1)) - self.running_var)
        self.num_batches_tracked += 1
        return _core.batch_norm(x, mean, var, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = self.weight is not None
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={affine}"


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel of x (N,C) or (N,C,L), then multiplies by the weight and adds the bias. In training, uses
    the mean and variance of x, and updates the running ones. In evaluation, uses the running ones."""

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Does the same as BatchNorm1d for x (N,C,H,W)."""

    _ranks = (4,)
