"""x[key] and x[key] = value with random keys, compared with the CPU."""

import random
from typing import Any

import pytest
import torch

DEVICE = "tensord"
SHAPES = [(3,), (1, 3), (2, 3, 4), (2, 0, 3), (4, 1, 2, 3), ()]


def random_slice(choose, size):
    bounds = [None, *range(-size - 2, size + 3)]
    return slice(choose.choice(bounds), choose.choice(bounds), choose.choice([None, 1, 2, 3]))


def random_indices(choose, size):
    shape = choose.choice([(), (1,), (2,), (2,), (2, 1), (1, 2), (0,)] if size > 0 else [(0,), (2, 0)])
    count = torch.Size(shape).numel()
    made = torch.tensor([choose.randrange(-size, size) for _ in range(count)], dtype=torch.int64).reshape(shape)
    return made.tolist() if made.dim() > 0 and count > 0 and choose.random() < 0.3 else made


def random_mask(choose, shape):
    made = [choose.random() < 0.5 for _ in range(torch.Size(shape).numel())]
    return torch.tensor(made, dtype=torch.bool).reshape(shape)


def random_key(choose, shape):
    parts: list[Any] = []
    axis, rest = 0, choose.random() < 0.3
    while axis < len(shape) and choose.random() < 0.9:
        size = shape[axis]
        kinds = ["slice"] * 4 + ["indices"] * 2 + ["mask", "none"] + ["int"] * (size > 0)
        kind = choose.choice(kinds + ["mask of two"] * (axis + 1 < len(shape)))
        if rest and choose.random() < 0.3:
            parts.append(Ellipsis)
            rest = False
            axis = choose.randrange(axis, len(shape))
            continue
        if kind == "slice":
            parts.append(random_slice(choose, size))
        elif kind == "indices":
            parts.append(random_indices(choose, size))
        elif kind == "int":
            parts.append(choose.randrange(-size, size))
        elif kind == "none":
            parts.append(None)
            continue
        else:
            axes = 2 if kind == "mask of two" else 1
            parts.append(random_mask(choose, shape[axis : axis + axes]))
            axis += axes - 1
        axis += 1
    if choose.random() < 0.1:
        parts.insert(choose.randrange(len(parts) + 1), choose.choice([True, False]))
    return tuple(parts)


def on_device(key):
    return tuple(part.to(DEVICE) if isinstance(part, torch.Tensor) else part for part in key)


def outcome(function):
    try:
        return function()
    except (IndexError, RuntimeError) as e:
        return e


@pytest.mark.parametrize("seed", range(8))
def test_random_keys_agree_with_the_cpu(seed):
    choose = random.Random(seed)
    selected = 0
    for _ in range(150):
        shape = choose.choice(SHAPES)
        x = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
        if x.dim() == 3 and choose.random() < 0.3:
            x = x.transpose(0, 2).contiguous().transpose(0, 2)
        key = random_key(choose, shape)
        here = on_device(key) if choose.random() < 0.8 else key  # PyTorch takes indices of the CPU
        expected = outcome(lambda: x[key])
        got = outcome(lambda: x.to(DEVICE)[here].cpu())
        if isinstance(expected, Exception):
            assert isinstance(got, Exception), (shape, key)
            continue
        assert not isinstance(got, Exception), (shape, key, got)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, msg=lambda text: f"{shape} {key}: {text}")
        selected += expected.numel() > 0
        value = -1 - torch.arange(expected.numel(), dtype=torch.float32).reshape(expected.shape)
        if choose.random() < 0.5:
            value = torch.tensor(-5.0) if choose.random() < 0.5 or value.dim() == 0 else value[..., :1]
        changed, written = x.clone(), x.to(DEVICE)
        other = written.view(shape)
        outcomes = [
            outcome(lambda: changed.__setitem__(key, value)),
            outcome(lambda: written.__setitem__(here, value.to(DEVICE))),
        ]
        assert [type(each) for each in outcomes] == [type(outcomes[0])] * 2, (shape, key, outcomes)
        for result in (written, other):
            torch.testing.assert_close(result.cpu(), changed, rtol=0, atol=0, msg=lambda text: f"{shape} {key}: {text}")
    assert selected > 50
