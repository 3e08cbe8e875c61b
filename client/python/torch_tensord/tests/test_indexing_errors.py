"""The exceptions of indexing that are known at the call are those of the CPU."""

import warnings

import pytest
import torch

DEVICE = "tensord"


def ints(*values, device):
    return torch.tensor(values, dtype=torch.long, device=device)


CALLS = [
    lambda d, x: torch.zeros(10, 0, device=d)[:, [0, 1]],
    lambda d, x: x[False, [0, 1]],
    lambda d, x: x[ints(0, 1, device=d), ints(0, 1, 0, device=d)],
    lambda d, x: x[0, 0, 0, 0],
    lambda d, x: x[ints(0, device=d), ints(0, device=d), ints(0, device=d), ints(0, device=d)],
    lambda d, x: x[5],
    lambda d, x: x[torch.tensor([0.5], device=d)],
    lambda d, x: x[torch.ones(3, dtype=torch.bool, device=d)],
    lambda d, x: x[torch.ones(2, 5, dtype=torch.bool, device=d)],
    lambda d, x: x.__setitem__((ints(0, 1, device=d), ints(0, 1, 0, device=d)), 1.0),
    lambda d, x: x.__setitem__(ints(0, 1, device=d), torch.ones(5, device=d)),
    lambda d, x: x.index_put_((ints(0, device=d),), torch.ones(1, dtype=torch.int32, device=d)),
    lambda d, x: torch.repeat_interleave(torch.ones(2, device=d)),
    lambda d, x: torch.bincount(torch.ones(2, device=d)),
    lambda d, x: torch.searchsorted(x[0], x),
    lambda d, x: torch.searchsorted(x[0, 0], x, side="middle"),
    lambda d, x: torch.searchsorted(x[0, 0], x, right=True, side="left"),
    lambda d, x: torch.searchsorted(x[0, 0], x, sorter=ints(0, 1, 2, 4, device=d)),
    lambda d, x: torch.bucketize(x[0, 0], x),
    lambda d, x: x.select(5, 0),
    lambda d, x: x.select(0, 2),
    lambda d, x: x.narrow(0, 1, 5),
    lambda d, x: x.unbind(4),
    lambda d, x: x.squeeze(4),
    lambda d, x: x.gather(5, ints(0, device=d)),
    lambda d, x: x.gather(0, ints(0, device=d)),
    lambda d, x: x.gather(0, torch.zeros(1, 1, 1, device=d)),
    lambda d, x: x.scatter(0, ints(0, device=d), 1.0),
    lambda d, x: x.scatter(7, torch.zeros(1, 1, 1, dtype=torch.long, device=d), 1.0),
    lambda d, x: x.scatter_add(0, torch.zeros(1, 1, 1, device=d), x),
    lambda d, x: x.index_select(0, ints(0, device=d)[None, None]),
    lambda d, x: x.index_select(5, ints(0, device=d)),
    lambda d, x: x.index_select(0, torch.zeros(1, device=d)),
    lambda d, x: x.index_add(0, torch.zeros(1, device=d), x[:1]),
    lambda d, x: x.index_add(0, ints(0, 1, device=d), x[:1]),
    lambda d, x: x.index_add(5, ints(0, device=d), x[:1]),
    lambda d, x: x.index_copy(0, ints(0, 1, device=d), x[:1]),
    lambda d, x: x.index_copy(0, torch.zeros(1, device=d), x[:1]),
    lambda d, x: x.index_fill(0, torch.zeros(1, device=d), 1.0),
    lambda d, x: x.index_fill(5, ints(0, device=d), 1.0),
    lambda d, x: x.index_fill(0, ints(0, device=d)[None], 1.0),
    lambda d, x: x.take(torch.zeros(1, device=d)),
    lambda d, x: torch.zeros(0, device=d).take(ints(0, device=d)),
    lambda d, x: x.put_(torch.zeros(1, device=d), torch.ones(1, device=d)),
    lambda d, x: torch.zeros(0, device=d).put_(ints(0, device=d), torch.ones(1, device=d)),
    lambda d, x: torch.zeros(3, device=d).put_(ints(0, 1, device=d), torch.ones(1, device=d)),
    lambda d, x: x[ints(0, 1, device=d).to(torch.int16)],
    lambda d, x: x.__setitem__(ints(0, 1, device=d).to(torch.int8), 1.0),
    lambda d, x: x[5:].__setitem__(ints(0, device=d)[:0], torch.ones(0, 3, 4, dtype=torch.int32, device=d)),
    lambda d, x: x.flip(5),
    lambda d, x: x.roll(1, 5),
    lambda d, x: x.sum(5),
    lambda d, x: x.sort(5),
    lambda d, x: x.topk(9),
    lambda d, x: x.kthvalue(9),
    lambda d, x: x.cumsum(4),
    lambda d, x: torch.cat([x, x], 4),
    lambda d, x: x.take_along_dim(torch.zeros(2, 3, 4, device=d), 0),
    lambda d, x: x.masked_select(torch.zeros(2, 3, 4, device=d)),
    lambda d, x: x.max(4),
    lambda d, x: torch.zeros(0, device=d).max(0),
    lambda d, x: torch.zeros(0, device=d).argmax(),
]


def exception_of(call, device):
    try:
        call(device, torch.ones(2, 3, 4, device=device))
    except Exception as e:
        return type(e).__name__
    return None


@pytest.mark.parametrize("call", CALLS)
def test_the_exception_is_that_of_the_cpu(call):
    expected = exception_of(call, "cpu")
    assert expected is not None and exception_of(call, DEVICE) == expected


MESSAGES = {
    "for dimension with size 0": lambda d: torch.zeros(10, 0, device=d)[:, [0, 1]],
    "shape mismatch: value tensor": lambda d: torch.zeros(4, device=d).__setitem__(
        torch.ones(4, dtype=torch.bool, device=d), torch.ones(3, dtype=torch.long, device=d)
    ),
    "first N-1 dimensions": lambda d: torch.searchsorted(torch.ones(2, 3, device=d), torch.ones(3, device=d)),
    "max must be larger than min": lambda d: torch.histc(torch.ones(2, device=d), min=5, max=1),
    "scalar type Long": lambda d: torch.nonzero(torch.ones(2, device=d), out=torch.zeros(2, device=d)),
    "only supports bool tensor": lambda d: torch.all(torch.ones(2, device=d), out=torch.zeros(2, device=d)),
    "uniform_ expects to-from": lambda d: torch.zeros(2, device=d).uniform_(-3e38, 3e38),
}


@pytest.mark.parametrize("text", MESSAGES)
def test_the_message_has_the_words_of_the_cpu(text):
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, IndexError), match=text):
            MESSAGES[text](device)


def test_a_mask_takes_a_number_of_another_dtype():
    def written(device):
        x = torch.zeros(4, device=device)
        return x.index_put_((torch.arange(4, device=device) > 2,), torch.tensor(1.5, dtype=torch.float64)).tolist()

    assert written(DEVICE) == written("cpu") == [0, 0, 0, 1.5]


VALUES = [torch.tensor(1.5, dtype=torch.float64), torch.tensor([[7]], dtype=torch.int32), torch.tensor(True)]
MASKED = {
    "rows": lambda x: x[:, 0, 0] > 0,
    "all axes": lambda x: x > 0,
    "the last axis": lambda x: (..., x[0, 0] > 0),
    "the middle axis and a slice": lambda x: (slice(1), x[0, :, 0] > 5),
}


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("name", MASKED)
def test_one_mask_takes_one_value_of_another_dtype(name, value):
    def written(device, dtype):
        x = (torch.arange(24).view(2, 3, 4) - 7).to(device, dtype)
        x[MASKED[name](x)] = value.to(device)
        return x.cpu()

    for dtype in (torch.float32, torch.int64, torch.float16):
        torch.testing.assert_close(written(DEVICE, dtype), written("cpu", dtype), rtol=0, atol=0)


def test_an_index_of_uint8_gives_the_warning_of_the_cpu():
    def texts(device):
        mask = torch.tensor([1, 0, 1], dtype=torch.uint8, device=device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = torch.arange(3.0, device=device)
            assert x[mask].tolist() == [0, 2]
        return [str(w.message).split("(Triggered")[0] for w in caught]

    assert texts(DEVICE) == texts("cpu") != []
