"""Recurrent layers."""

from __future__ import annotations

import math

from .. import _core
from .._core import Device, Generator, Tensor
from ._layers import Dropout
from ._module import Module, Parameter

Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of the input, of the state, and their biases


class _Recurrent(Module):
    """The base of LSTM and GRU. A state is a tuple of tensors (N,hidden_size), the first of which is the output."""

    _gates: int
    _parts: int

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
        generator: Generator | int | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.bidirectional = batch_first, bidirectional
        source = Generator(generator) if isinstance(generator, int) else generator
        self._dropout = Dropout(dropout, generator=source)
        self._suffixes = [
            f"l{layer}{reverse}" for layer in range(num_layers) for reverse in ("", "_reverse")[: 1 + bidirectional]
        ]
        self._has_bias = bias
        bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
        rows = self._gates * hidden_size
        for i, suffix in enumerate(self._suffixes):
            inputs = input_size if i < 1 + bidirectional else hidden_size * (1 + bidirectional)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, hidden_size)}
            if bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            for name, shape in shapes.items():
                drawn = _core.uniform(*shape, low=-bound, high=bound, generator=source, dtype=dtype, device=device)
                setattr(self, f"{name}_{suffix}", Parameter(drawn))

    def _layer(self, x: Tensor, state: tuple[Tensor, ...], weights: Weights, reverse: bool) -> tuple[Tensor, ...]:
        """Returns the outputs of one layer in one direction, and its last state."""
        raise NotImplementedError

    def _run(self, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        name = type(self).__name__
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size or x.size == 0:
            raise ValueError(f"{name}: x has shape {x.shape}, and must have 2 or 3 dimensions, the last of which is "
                             f"{self.input_size}, and none of size 0")  # fmt: skip
        batched = x.ndim == 3
        y = x if batched else x.unsqueeze(1)
        if batched and self.batch_first:
            y = y.permute(1, 0, 2)
        batch = y.shape[1]
        if state is None:
            zeros = _core.zeros((batch, self.hidden_size), dtype=x.dtype, device=x.device)
            parts = [[zeros] * len(self._suffixes)] * self._parts
        else:
            wanted = (
                (len(self._suffixes), batch, self.hidden_size) if batched else (len(self._suffixes), self.hidden_size)
            )
            for part in state:
                if tuple(part.shape) != wanted:
                    raise ValueError(f"{name}: a state has shape {part.shape}, and must have {wanted}")
            parts = [[part[i].reshape(batch, self.hidden_size) for i in range(len(self._suffixes))] for part in state]
        last: list[tuple[Tensor, ...]] = []
        directions = 1 + self.bidirectional
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                suffix = self._suffixes[index]
                weight_ih, weight_hh = (getattr(self, f"weight_{which}_{suffix}") for which in ("ih", "hh"))
                biases = [getattr(self, f"bias_{which}_{suffix}") if self._has_bias else None for which in ("ih", "hh")]
                weights = weight_ih, weight_hh, biases[0], biases[1]
                output, *state_after = self._layer(y, tuple(part[index] for part in parts), weights, direction == 1)
                outputs.append(output)
                last.append(tuple(state_after))
            y = outputs[0] if directions == 1 else _core.concat(outputs, 2)
            if layer + 1 < self.num_layers and self._dropout.p > 0:
                y = self._dropout(y)
        if not batched:
            y = y.squeeze(1)
        elif self.batch_first:
            y = y.permute(1, 0, 2)
        final = tuple(_core.stack([own[part] for own in last]) for part in range(self._parts))
        return y, final if batched else tuple(part.squeeze(1) for part in final)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self._has_bias:
            text += ", bias=False"
        if self.batch_first:
            text += ", batch_first=True"
        if self._dropout.p:
            text += f", dropout={self._dropout.p}"
        return text + ", bidirectional=True" if self.bidirectional else text


class LSTM(_Recurrent):
    """Long short-term memory over x (L,N,in), (N,L,in) with batch_first, or (L,in). Returns (output, (h, c))."""

    _gates, _parts = 4, 2

    def _layer(self, x: Tensor, state: tuple[Tensor, ...], weights: Weights, reverse: bool) -> tuple[Tensor, ...]:
        return _core.lstm_layer(x, state[0], state[1], *weights, reverse)[:3]

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self._run(x, state)


class GRU(_Recurrent):
    """Gated recurrent units over x (L,N,in), (N,L,in) with batch_first, or (L,in). Returns (output, h)."""

    _gates, _parts = 3, 1

    def _layer(self, x: Tensor, state: tuple[Tensor, ...], weights: Weights, reverse: bool) -> tuple[Tensor, ...]:
        return _core.gru_layer(x, state[0], *weights, reverse)[:2]

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, state = self._run(x, None if h is None else (h,))
        return y, state[0]
