"""The strides of results are those of the CPU, for operands in any order of memory."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "tensord"

LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d),
    "permuted": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "reversed": lambda x: x.permute(*range(x.dim() - 1, -1, -1)).contiguous().permute(*range(x.dim() - 1, -1, -1)),
    "sliced": lambda x: torch.cat([x, x], -1)[..., : x.size(-1)],
    "every_second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:, :1].expand_as(x),
}  # fmt: skip


def places(x, *rows):
    return torch.tensor(rows or [1, 0], device=x.device)


FUNCTIONS = {
    "where": lambda x: torch.where(x > 0, x, x),
    "where_number": lambda x: torch.where(x > 0, x, 0.0),
    "relu": torch.relu,
    "abs": torch.abs,
    "isnan": torch.isnan,
    "logical_not": torch.logical_not,
    "logical_and": lambda x: torch.logical_and(x, x > 0),
    "logical_or_row": lambda x: torch.logical_or(x, x[0, 0, 0]),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 3),
    "unique": lambda x: x.unique(dim=1),
    "gradient_of_nansum": lambda x: torch.func.grad(torch.nansum)(x),
    "gradient_of_hardswish": lambda x: torch.func.grad(lambda y: F.hardswish(y).sum())(x),
    "add": lambda x: x + x,
    "add_bias": lambda x: x + torch.ones(1, x.size(1), *[1] * (x.dim() - 2), device=x.device),
    "floor_divide": lambda x: x.floor_divide(2),
    "clamp": lambda x: x.clamp(0, 1),
    "dropout": lambda x: F.dropout(x, 0.5),
    "prelu": lambda x: F.prelu(x, torch.ones(3, device=x.device)),
    "hardtanh": F.hardtanh,
    "gelu": F.gelu,
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "roll_two": lambda x: x.roll((1, 1), (0, 1)),
    "cat": lambda x: torch.cat([x, x], 1),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(0),
    "sum": lambda x: x.sum(1, keepdim=True),
    "sort": lambda x: x.sort(1)[0],
    "clone": torch.clone,
    "zeros_like": torch.zeros_like,
    "double": lambda x: x.double(),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "nonzero": torch.nonzero,
    "index": lambda x: x[places(x)],
    "index_the_second_axis": lambda x: x[:, places(x)],
    "index_the_last_axis": lambda x: x[..., places(x)],
    "index_by_a_matrix": lambda x: x[:, places(x, [1, 0], [0, 1], [1, 1])],
    "index_two_axes": lambda x: x[:, places(x), places(x)],
    "index_two_axes_apart": lambda x: x[places(x), :, places(x)],
    "index_with_two_ranks": lambda x: x[:, places(x, [1, 0], [0, 1]), places(x)],
    "cat_out": lambda x: torch.cat([x, x], 1, out=x.new_empty(0)),
    "exp_out": lambda x: torch.exp(x, out=x.new_empty(0)),
    "sum_out": lambda x: torch.sum(x, 1, out=x.new_empty(0)),
    "cumsum_out": lambda x: torch.cumsum(x, 1, out=x.new_empty(0)),
    "softmax_out": lambda x: torch.softmax(x, 1, out=x.new_empty(0)),
}

LAYERS = {
    "batch_norm": lambda: nn.BatchNorm2d(3),
    "batch_norm_eval": lambda: nn.BatchNorm2d(3).eval(),
    "group_norm": lambda: nn.GroupNorm(3, 3),
    "instance_norm": lambda: nn.InstanceNorm2d(3),
    "layer_norm": lambda: nn.LayerNorm(8),
    "prelu": lambda: nn.PReLU(3),
    "conv": lambda: nn.Conv2d(3, 4, 3),
    "conv_channels_last": lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
    "conv_transpose": lambda: nn.ConvTranspose2d(3, 4, 3),
    "reflection_pad": lambda: nn.ReflectionPad2d(1),
    "replication_pad": lambda: nn.ReplicationPad2d(1),
    "zero_pad": lambda: nn.ZeroPad2d(1),
    "max_pool": lambda: nn.MaxPool2d(2),
    "avg_pool": lambda: nn.AvgPool2d(2),
    "adaptive_avg_pool": lambda: nn.AdaptiveAvgPool2d(2),
    "adaptive_max_pool": lambda: nn.AdaptiveMaxPool2d(2),
    "upsample_nearest": lambda: nn.Upsample(scale_factor=2),
    "upsample_bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "pixel_shuffle": lambda: nn.PixelUnshuffle(2),
    "dropout": lambda: nn.Dropout(0.5),
}


def to_device(x):
    """Copies a tensor with its strides."""
    made = torch.empty_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), dtype=x.dtype, device=DEVICE)
    made.copy_(torch.as_strided(x, made.shape, (1,), 0))
    return torch.as_strided(made, x.shape, x.stride(), x.storage_offset())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_of_functions(name, layout):
    for shape in ((2, 3, 4, 6), (2, 3, 2, 4, 4)):
        x = LAYOUTS[layout](torch.randn(shape))
        expected, got = FUNCTIONS[name](x), FUNCTIONS[name](to_device(x))
        assert got.stride() == expected.stride()
        if name != "dropout":
            torch.testing.assert_close(got.cpu(), expected, check_stride=False)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "sliced"])
@pytest.mark.parametrize("name", LAYERS)
def test_strides_of_layers_and_of_their_gradients(name, layout):
    layer = LAYERS[name]()
    x = LAYOUTS[layout](torch.randn(2, 3, 8, 8)).detach().requires_grad_()
    expected = layer(x)
    here = to_device(x.detach()).requires_grad_()
    got = copy.deepcopy(layer).to(DEVICE)(here)
    assert got.stride() == expected.stride()
    if name != "dropout":
        torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5, check_stride=False)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    (gradient_here,) = torch.autograd.grad(got.sum(), here)
    assert gradient_here.shape == gradient.shape, layout
