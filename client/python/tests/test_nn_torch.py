"""The layers of tensord.nn beside PyTorch's: state dicts, results and texts. Skipped where torch is missing."""

from typing import Any

import pytest
import tensord
from tensord import nn

torch = pytest.importorskip("torch", reason="torch isn't installed; tests/run --torch installs it")


def pair(ours, theirs):
    """Gives both modules random parameters and running statistics, the same ones, and puts them into evaluation mode."""
    torch.manual_seed(0)
    state = {}
    for name, value in theirs.state_dict().items():
        if value.is_floating_point():
            value = torch.rand(value.shape) + 0.5 if name.endswith("running_var") else torch.randn(value.shape) * 0.5
        state[name] = value
    theirs.load_state_dict(state)
    ours.load_state_dict(theirs.state_dict())
    return ours.eval(), theirs.eval()


def check(result, expected):
    if isinstance(expected, tuple):
        assert len(result) == len(expected)
        for a, b in zip(result, expected, strict=True):
            check(a, b)
    else:
        torch.testing.assert_close(torch.from_dlpack(result), expected, rtol=1e-4, atol=1e-4)


CASES: dict[str, Any] = {
    "conv1d": (nn.Conv1d, torch.nn.Conv1d, (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 11)),
    "conv2d": (nn.Conv2d, torch.nn.Conv2d, (4, 8, (3, 2)), {"dilation": (1, 2), "bias": False}, (2, 4, 9, 8)),
    "conv2d_same": (nn.Conv2d, torch.nn.Conv2d, (4, 8, 3), {"padding": "same"}, (4, 9, 8)),
    "conv3d": (nn.Conv3d, torch.nn.Conv3d, (2, 3, 2), {"padding": (1, 0, 1)}, (2, 2, 4, 5, 6)),
    "max_pool2d": (nn.MaxPool2d, torch.nn.MaxPool2d, (3, 2, 1), {}, (2, 3, 9, 8)),
    "avg_pool2d": (nn.AvgPool2d, torch.nn.AvgPool2d, (2,), {"ceil_mode": True}, (3, 9, 8)),
    "adaptive": (nn.AdaptiveAvgPool2d, torch.nn.AdaptiveAvgPool2d, ((3, 1),), {}, (2, 3, 9, 8)),
    "batch_norm1d": (nn.BatchNorm1d, torch.nn.BatchNorm1d, (4,), {}, (3, 4, 5)),
    "batch_norm2d": (nn.BatchNorm2d, torch.nn.BatchNorm2d, (4, 1e-3), {"affine": False}, (3, 4, 5, 6)),
    "layer_norm": (nn.LayerNorm, torch.nn.LayerNorm, ((3, 5),), {}, (2, 3, 5)),
    "rms_norm": (nn.RMSNorm, torch.nn.RMSNorm, (5,), {}, (2, 5)),
    "lstm": (nn.LSTM, torch.nn.LSTM, (5, 4, 2), {"batch_first": True, "bidirectional": True}, (3, 6, 5)),
    "lstm_unbatched": (nn.LSTM, torch.nn.LSTM, (5, 4), {"bias": False}, (6, 5)),
    "gru": (nn.GRU, torch.nn.GRU, (5, 4, 2), {"bidirectional": True}, (6, 3, 5)),
    "encoder": (
        nn.TransformerEncoderLayer,
        torch.nn.TransformerEncoderLayer,
        (12, 3, 24),
        {"batch_first": True, "activation": "gelu"},
        (2, 5, 12),
    ),
    "encoder_norm_first": (
        nn.TransformerEncoderLayer,
        torch.nn.TransformerEncoderLayer,
        (12, 3, 24),
        {"norm_first": True},
        (5, 2, 12),
    ),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rms_norm_has_the_epsilon_of_pytorch(dtype):
    x = torch.full((2, 5), 2e-3, dtype=getattr(torch, dtype))
    result = nn.RMSNorm(5, elementwise_affine=False)(tensord.from_dlpack(x))
    expected = torch.nn.RMSNorm(5, elementwise_affine=False)(x)
    torch.testing.assert_close(torch.from_dlpack(result), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_a_layer_gives_the_results_of_pytorch(case):
    ours, theirs, args, options, shape = CASES[case]
    ours, theirs = pair(ours(*args, **options), theirs(*args, **options))
    x = torch.randn(shape)
    with torch.no_grad():
        check(ours(tensord.from_dlpack(x)), theirs(x))


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_takes_the_masks_of_pytorch(batch_first):
    ours, theirs = pair(
        nn.MultiheadAttention(12, 3, batch_first=batch_first),
        torch.nn.MultiheadAttention(12, 3, batch_first=batch_first),
    )
    query, memory = torch.randn(4, 2, 12), torch.randn(5, 2, 12)
    if batch_first:
        query, memory = query.transpose(0, 1), memory.transpose(0, 1)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    excluded = torch.rand(4, 5) < 0.3
    excluded[:, 0] = False
    for masks in (
        {},
        {"key_padding_mask": padding},
        {"attn_mask": excluded},
        {"attn_mask": torch.randn(4, 5)},
        {"attn_mask": excluded, "key_padding_mask": padding},
    ):
        expected = theirs(query, memory, memory, need_weights=False, **masks)[0].detach()
        result = ours(
            *(tensord.from_dlpack(t) for t in (query, memory, memory)),
            **{name: tensord.from_dlpack(mask) for name, mask in masks.items()},
        )
        check(result, expected)


def test_batch_norm_trains_as_pytorch_does():
    ours, theirs = pair(nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4))
    ours.train(), theirs.train()
    for _ in range(3):
        x = torch.randn(3, 4, 5, 6) * 2 + 1
        check(ours(tensord.from_dlpack(x)), theirs(x).detach())
    state = ours.state_dict()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(torch.from_dlpack(state[name]), value, rtol=1e-4, atol=1e-4, check_dtype=False)
