"""Multi-head attention, and the layer of a transformer's encoder."""

from __future__ import annotations

import math

from .. import _core
from .._core import Device, Generator, Tensor
from ._layers import Dropout, Linear
from ._module import Module, Parameter
from ._normalization import LayerNorm


class MultiheadAttention(Module):
    """Attention with num_heads heads. Inputs are (L,N,E), (N,L,E) with batch_first, or (L,E).

    In attn_mask and key_padding_mask, True leaves a key out, as in PyTorch's module. A floating mask is added.
    is_causal excludes both masks.
    Returns the output alone: there are no weights to return, and there is no dropout.
    """

    in_proj_weight: Tensor
    in_proj_bias: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        batch_first: bool = False,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
        generator: Generator | int | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim is {embed_dim}, and must be a positive multiple of {num_heads} heads"
            )
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        source = Generator(generator) if isinstance(generator, int) else generator
        bound = math.sqrt(6 / (4 * embed_dim))
        self.in_proj_weight = Parameter(
            _core.uniform(
                3 * embed_dim, embed_dim, low=-bound, high=bound, generator=source, dtype=dtype, device=device
            )
        )
        self.in_proj_bias = Parameter(_core.zeros(3 * embed_dim, dtype=dtype, device=device)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype, generator=source)
        if bias:  # as in PyTorch, both biases begin with zeros
            self.out_proj.bias = Parameter(_core.zeros(embed_dim, dtype=dtype, device=device))

    def _split_heads(self, x: Tensor) -> Tensor:
        """(N,L,E) -> (N,H,L,E/H)"""
        batch, length = x.shape[:2]
        return x.reshape(batch, length, self.num_heads, self.embed_dim // self.num_heads).permute(0, 2, 1, 3)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        key = query if key is None else key
        value = key if value is None else value
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.ndim not in (2, 3) or x.ndim != query.ndim or x.shape[-1] != self.embed_dim:
                raise ValueError(
                    f"MultiheadAttention: the {name} has shape {x.shape}, and must have 2 or 3 dimensions, the last of "
                    f"which is {self.embed_dim}"
                )
        batched = query.ndim == 3

        def batch_first(x: Tensor) -> Tensor:
            if not batched:
                return x.unsqueeze(0)
            return x if self.batch_first else x.permute(1, 0, 2)

        size = self.embed_dim
        heads = [
            self._split_heads(
                _core.linear(
                    batch_first(x),
                    self.in_proj_weight[i * size : (i + 1) * size],
                    None if self.in_proj_bias is None else self.in_proj_bias[i * size : (i + 1) * size],
                )
            )
            for i, x in enumerate((query, key, value))
        ]
        self._check_sizes(heads[0], heads[1], heads[2], key_padding_mask, batched)
        mask = self._join_masks(attn_mask, key_padding_mask, heads[1].shape[0], query.dtype)
        y = _core.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask, is_causal=is_causal)
        batch, _, length, _ = y.shape
        y = self.out_proj.forward(y.permute(0, 2, 1, 3).reshape(batch, length, size))
        if not batched:
            return y.reshape(length, size)
        return y if self.batch_first else y.permute(1, 0, 2)

    @staticmethod
    def _check_sizes(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, batched: bool) -> None:
        """Checks the query (N,H,L,E/H), key and value (N,H,S,E/H), and the padding (N,S), or (S) without a batch."""
        batch, _, length, _ = key.shape
        if query.shape[0] != batch or value.shape[0] != batch or value.shape[2] != length:
            raise ValueError(
                f"MultiheadAttention: the query has a batch of {query.shape[0]}, the key a batch of {batch} and {length} "
                f"rows, and the value a batch of {value.shape[0]} and {value.shape[2]} rows. All batches must be equal, "
                "and key and value must have the same number of rows"
            )
        expected = (batch, length) if batched else (length,)
        if padding is not None and padding.shape not in (expected, (batch, length)):
            raise ValueError(
                f"MultiheadAttention: key_padding_mask has shape {padding.shape}, and must have shape {expected}"
            )

    def _join_masks(
        self, attn_mask: Tensor | None, padding: Tensor | None, batch: int, dtype: _core.dtype
    ) -> Tensor | None:
        mask = attn_mask
        if padding is not None:
            padding = padding.reshape(batch, 1, 1, padding.shape[-1])
            boolean = _core.dtype("bool")
            if mask is None:
                mask = padding
            elif mask.dtype == boolean and padding.dtype == boolean:
                mask = _core.logical_or(mask, padding)
            elif padding.dtype == boolean:
                mask = _core.where(padding, -math.inf, mask)
            elif mask.dtype == boolean:
                mask = _core.where(mask, -math.inf, padding)
            else:
                mask = mask + padding
        if mask is None:
            return None
        return _core.logical_not(mask) if mask.dtype == _core.dtype("bool") else mask.to(dtype)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and normalization. x is (L,N,d_model),
    or (N,L,d_model) with batch_first. The weights of the attention have no dropout."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        device: Device | str | None = None,
        dtype: _core.DTypeLike | None = None,
        generator: Generator | int | None = None,
    ) -> None:
        super().__init__()
        source = Generator(generator) if isinstance(generator, int) else generator
        self.activation, self.norm_first = activation, norm_first
        self.self_attn = MultiheadAttention(
            d_model, nhead, bias, batch_first, device=device, dtype=dtype, generator=source
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device=device, dtype=dtype, generator=source)
        self.dropout = Dropout(dropout, generator=source)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device=device, dtype=dtype, generator=source)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.dropout1 = Dropout(dropout, generator=source)
        self.dropout2 = Dropout(dropout, generator=source)

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = _core.linear(x, self.linear1.weight, self.linear1.bias, self.activation)
        return self.dropout2.forward(self.linear2.forward(self.dropout.forward(hidden)))

    def forward(
        self,
        x: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(y: Tensor) -> Tensor:
            return self.dropout1.forward(
                self.self_attn.forward(
                    y, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, is_causal=is_causal
                )
            )

        if self.norm_first:
            x = x + attend(self.norm1.forward(x))
            return x + self._feed_forward(self.norm2.forward(x))
        x = self.norm1.forward(x + attend(x))
        return self.norm2.forward(x + self._feed_forward(x))
