"""Errors of values, which the server finds. They name PyTorch's function and its rule, and need no extra wait."""

import pytest
import torch
from torch.nn import functional as F

DEVICE = "tensord"
NAN, INFINITY = float("nan"), float("inf")


def on_device(values, **options):
    return torch.tensor(values, device=DEVICE, **options)


def raised(call):
    """Returns the message of the error that the wait for call()'s result raises. The call itself must not wait."""
    torch.tensord.synchronize()
    torch.tensord.set_sync_debug_mode("error")
    try:
        made = call()
    finally:
        torch.tensord.set_sync_debug_mode("default")
    with pytest.raises(RuntimeError) as error:
        made.cpu()
    return str(error.value)


INDEX_ERRORS = [
    (lambda: F.cross_entropy(torch.zeros(3, 4, device=DEVICE), on_device([1, 2, 9])),
     ("cross_entropy", "class 9 at [2] of the target", "4 classes")),
    (lambda: F.cross_entropy(torch.zeros(3, 4, device=DEVICE), on_device([1, -7, 0])),
     ("cross_entropy", "class -7 at [1] of the target")),
    (lambda: F.cross_entropy(torch.zeros(1, 4, 1, 2, device=DEVICE), on_device([[[1, 5]]])), ("class 5 at [0, 0, 1] of the target",)),
    (lambda: F.nll_loss(torch.zeros(2, 4, device=DEVICE), on_device([0, 5])),
     ("nll_loss", "index 5 at [1] of the target")),
    (lambda: F.nll_loss(torch.zeros(2, 4, device=DEVICE), on_device([0, 5]), torch.ones(4, device=DEVICE)),
     ("nll_loss", "index 5 at [1] of the target")),
    (lambda: F.nll_loss(torch.zeros(4, device=DEVICE), on_device(5)), ("nll_loss", "index 5 at [] of the target")),
    (lambda: F.embedding(on_device([1, 9]), torch.zeros(3, 4, device=DEVICE)), ("embedding: index 9 at [1] of the indices",)),
    (lambda: torch.nn.Embedding(3, 4, device=DEVICE)(on_device([[0, 3]])).sum() * 2, ("embedding: index 3 at [0, 1]",)),
    (lambda: F.embedding(on_device([9]), torch.zeros(3, 4, device=DEVICE), max_norm=1.0), ("embedding_renorm_ (of embedding", "index 9")),
    (lambda: F.embedding_bag(on_device([1, 9]), torch.zeros(3, 4, device=DEVICE), on_device([0])), ("embedding_bag: index 9",)),
    (lambda: torch.zeros(3, 4, device=DEVICE)[on_device([7])], ("x[index]: index 7 at [0] of index tensor 1",)),
    (lambda: torch.zeros(3, 4, device=DEVICE)[on_device([1]), on_device([-9])], ("index -9 at [0] of index tensor 2",)),
    (lambda: torch.zeros(3, device=DEVICE).index_put((on_device([7]),), on_device([1.0])), ("x[index] = y", "index 7")),
    (lambda: torch.zeros(3, device=DEVICE).gather(0, on_device([4])), ("gather: index 4 at [0] of the index",)),
    (lambda: torch.zeros(3, device=DEVICE).index_select(0, on_device([4])), ("index_select: index 4",)),
    (lambda: torch.zeros(3, device=DEVICE).index_add(0, on_device([4]), on_device([1.0])), ("index_add: index 4",)),
    (lambda: torch.zeros(3, device=DEVICE).scatter(0, on_device([4]), on_device([1.0])), ("scatter: index 4",)),
    (lambda: torch.zeros(3, device=DEVICE).scatter_add(0, on_device([4]), on_device([1.0])), ("scatter_add: index 4",)),
    (lambda: torch.zeros(3, device=DEVICE).scatter_reduce(0, on_device([4]), on_device([1.0]), "sum"), ("scatter_reduce: index 4",)),
    (lambda: F.one_hot(on_device([7]), 3), ("one_hot", "index 7")),
    (lambda: torch.zeros(3, device=DEVICE).take(on_device([4])), ("take: index 4",)),
    (lambda: torch.zeros(3, device=DEVICE).put_(on_device([4]), on_device([1.0])), ("put_: index 4",)),
    (lambda: F.multi_margin_loss(torch.zeros(2, 3, device=DEVICE), on_device([0, 8])), ("multi_margin_loss: index 8 at [1] of the target",)),
    (lambda: F.max_unpool2d(torch.zeros(1, 1, 1, 1, device=DEVICE), on_device([[[[9]]]]), 2), ("max_unpool: index 9",)),
]  # fmt: skip


@pytest.mark.parametrize("call, words", INDEX_ERRORS, ids=[words[0].split(":")[0] for _, words in INDEX_ERRORS])
def test_an_index_out_of_range_names_the_function(call, words):
    message = raised(call)
    for word in words:
        assert word in message, message
    assert "[tensord: " in message and "(tensor " in message
    assert message.count("TENSORD_DEBUG=tracebacks") == 1


def test_an_error_of_a_compiled_graph_names_the_function():
    weight = torch.zeros(5, 4, device=DEVICE)

    @torch.compile(backend="tensord")
    def loss(indices, target):
        return F.cross_entropy(F.embedding(indices, weight), target)

    good, bad = on_device([1, 2]), on_device([1, 9])
    assert loss(good, good).item() == pytest.approx(torch.log(torch.tensor(4.0)).item())
    for arguments, words in (((bad, good), "embedding: index 9 at [1] of the indices"), ((good, bad), "cross_entropy")):
        with pytest.raises(RuntimeError) as error:
            loss(*arguments).item()
        assert words in str(error.value) and "[tensord: program (tensor" in str(error.value)


def test_an_error_of_a_compiled_graph_names_all_functions_that_have_sent_the_op():
    x = torch.zeros(2, device=DEVICE)

    @torch.compile(backend="tensord")
    def scattered(indices, others):
        return x.scatter(0, indices, 1.0 * x).sum() + x.scatter_add(0, others, x).sum()

    good, bad = on_device([0, 1]), on_device([0, 9])
    assert scattered(good, good).item() == 0
    for arguments in ((bad, good), (good, bad)):
        with pytest.raises(RuntimeError) as error:
            scattered(*arguments).item()
        functions = str(error.value).split(": ")[0]
        assert sorted(functions.split(" or ")) == ["scatter", "scatter_add"], error.value


def test_a_later_error_names_its_own_function():
    rows, bad = torch.zeros(3, 4, device=DEVICE), on_device([9])
    made = []
    for _ in range(40):
        made.append((rows[bad], "x[index]"))
        made.append((F.embedding(bad, rows), "embedding"))
        made.append((rows.index_select(0, bad), "index_select"))
    for value, function in reversed(made):
        with pytest.raises(RuntimeError) as error:
            (value + 1).sum().item()
        assert str(error.value).startswith(f"{function}: index 9 at [0]")


RULES = [
    ("input", lambda: F.binary_cross_entropy(on_device([1.5, 0.2]), on_device([0.0, 1.0])), "elements of input should be between 0 and 1"),
    ("negative input", lambda: F.binary_cross_entropy(on_device([0.5, -1e-10]), on_device([0.0, 1.0]), reduction="none"), "elements of input"),
    ("input without weight", lambda: F.binary_cross_entropy(on_device([2.0, 0.5]), on_device([1.0, 1.0]), on_device([0.0, 1.0])), "elements of input"),
    ("target", lambda: F.binary_cross_entropy(on_device([0.5, 0.2]), on_device([0.0, 1.5]), reduction="sum"), "elements of target"),
    ("negative target", lambda: F.binary_cross_entropy(on_device([0.5, 0.2]), on_device([-1e-20, 0.5])), "elements of target"),
    ("NaN target", lambda: F.binary_cross_entropy(on_device([0.5, 0.2]), on_device([NAN, 0.5])), "elements of target"),
    ("infinite target", lambda: F.binary_cross_entropy(on_device([0.5, 0.2]), on_device([INFINITY, 0.5])), "elements of target"),
    ("BCELoss", lambda: torch.nn.BCELoss()(on_device([0.5, NAN]), on_device([0.0, 1.0])), "elements of input"),
    ("bernoulli", lambda: torch.bernoulli(on_device([0.5, 1.5])), "probabilities should be between 0 and 1"),
    ("bernoulli_", lambda: torch.empty(2, device=DEVICE).bernoulli_(on_device([-0.1, 0.5])), "probabilities should be between 0 and 1"),
    ("normal", lambda: torch.normal(0.0, on_device([1.0, -1.0])), "elements of std"),
    ("poisson", lambda: torch.poisson(on_device([1.0, -1.0])), "all rates should be at least 0"),
    ("normal of means", lambda: torch.normal(on_device([0.0, 1.0]), on_device([1.0, -1.0])), "elements of std"),
    ("repeat", lambda: on_device([1, 2]).repeat_interleave(on_device([2, -1]), output_size=1), "repeats can not be negative"),
]  # fmt: skip
for name, values, words in (
    ("negative", [[0.5, 0.5], [-1.0, 2.0]], "NaN or an element below 0"),
    ("NaN", [NAN, 1.0], "NaN or an element below 0"),
    ("infinite", [INFINITY, 1.0], "0 or infinite"),
    ("zero", [[0.5, 0.5], [0.0, 0.0]], "0 or infinite"),
):
    for replacement in (False, True):
        RULES.append((
            f"{name} {replacement}",
            lambda values=values, replacement=replacement: torch.multinomial(on_device(values), 1, replacement=replacement),
            words,
        ))  # fmt: skip


@pytest.mark.parametrize("call, words", [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_an_invalid_value_has_the_error_of_its_rule(call, words):
    message = raised(call)
    assert words in message.splitlines()[0] and "TENSORD_DEBUG=tracebacks" in message, message
    assert "out of range" not in message


def test_operands_of_another_dtype_are_refused_at_the_call():
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(RuntimeError, match="'indices' to have one of the following .*: Long, Int; but got Float"):
        F.embedding(x, torch.zeros(3, 4, device=DEVICE))
    for a, b in ((x.long(), x), (x, x.long())):
        with pytest.raises(RuntimeError, match="Found dtype .* but expected"):
            F.binary_cross_entropy(a, b)
    with pytest.raises(NotImplementedError, match="\"binary_cross_entropy\" not implemented for 'Long'"):
        F.binary_cross_entropy(x.long(), x.long())
    for call in (lambda: x.gather(0, x), lambda: x.scatter(0, x, x), lambda: x.index_select(0, x), lambda: x.take(x),
                 lambda: x.index_add(0, x, x), lambda: x.index_fill(0, x, 1), lambda: F.nll_loss(x, x[0])):  # fmt: skip
        with pytest.raises((RuntimeError, IndexError)) as error:
            call()
        assert "tensord" not in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("sizes", [(), (3,), (3, 4)], ids=str)
@pytest.mark.parametrize("batch", [0, 2])
def test_classes_must_be_integers_of_64_or_8_bits(batch, sizes, dtype):
    x, target = torch.ones(batch, 5, *sizes, device=DEVICE), torch.zeros(batch, *sizes, device=DEVICE)
    for loss in (F.nll_loss, F.cross_entropy):
        with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte"):
            loss(x, target.to(dtype))
    assert F.nll_loss(x, target.byte(), reduction="sum").item() == -target.numel()


def test_valid_values_give_the_results_of_pytorch():
    x = torch.tensor([0.0, 1.0, 0.25, 0.5])
    y = torch.tensor([0.0, 1.0, 1.0, 0.5])
    for reduction in ("none", "sum", "mean"):
        for weight in (None, torch.tensor([1.0, NAN, 2.0, 0.0])):
            on_cpu = F.binary_cross_entropy(x, y, weight, reduction=reduction)
            moved = None if weight is None else weight.to(DEVICE)
            here = F.binary_cross_entropy(x.to(DEVICE), y.to(DEVICE), moved, reduction=reduction)
            torch.testing.assert_close(here.cpu(), on_cpu, equal_nan=True)
    many = torch.rand(1, 2, 1, 2, 1, 2, 1)
    torch.testing.assert_close(
        F.binary_cross_entropy(many.to(DEVICE), many.to(DEVICE), reduction="none").cpu(),
        F.binary_cross_entropy(many, many, reduction="none"),
    )
    empty = torch.zeros(0)
    assert F.binary_cross_entropy(empty.to(DEVICE), empty.to(DEVICE), reduction="none").shape == (0,)
    assert torch.bernoulli(x.to(DEVICE))[:2].tolist() == [0, 1] and torch.bernoulli(empty.to(DEVICE)).shape == (0,)
    extreme = on_device([[0.0, 3e38, 0.0], [1e-38, 0.0, 0.0]])
    assert torch.multinomial(extreme, 2, replacement=True).tolist() == [[1, 1], [0, 0]]
    assert on_device([1, 2]).repeat_interleave(on_device([0, 2]), output_size=2).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        on_device([1, 2]).repeat_interleave(on_device([1, -1]))
