"""Every op on lists of tensors (torch._foreach_...) agrees with the CPU, whatever the lists hold."""

from typing import Any

import pytest
import torch

DEVICE = "tensord"
NAMES = sorted(name for name in dir(torch._C._VariableFunctions) if name.startswith("_foreach_"))

# Each function makes a list of tensors of `new(shape, dtype)`, whose elements are from 0.1 to 0.9.
LISTS = {
    "float32": lambda new: [new((3,)), new((2, 4)), new(())],
    "float64": lambda new: [new((3,), torch.float64), new((2, 4), torch.float64)],
    "float16": lambda new: [new((3,), torch.float16), new((2, 4), torch.float16)],
    "bfloat16": lambda new: [new((3,), torch.bfloat16), new((2, 4), torch.bfloat16)],
    "mixed dtypes": lambda new: [new((3,)), new((3,), torch.float64), new((2,), torch.bfloat16)],
    "integers": lambda new: [new((3,), torch.int64), new((2, 2), torch.int32)],
    "without elements": lambda new: [new((0,)), new((3,)), new((2, 0, 3))],
    "only without elements": lambda new: [new((0,)), new((0,), torch.float64)],
    "views": lambda new: [new((4, 6))[1:3, ::2], new((3, 5)).t(), new((8,))[2:5], new((2, 3)).view(6)],
    "views of one tensor": lambda new: [*new((4, 3)).unbind(0)],
    "matrices": lambda new: [new((2, 2)), new((3, 3)), new((0, 0))],
    "no tensor": lambda new: [],
}


def maker(device, seed):
    generator = torch.Generator().manual_seed(seed)

    def new(shape, dtype=torch.float32):
        x = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.8 + 0.1
        return (x if dtype.is_floating_point else x * 10).to(dtype).to(device)

    return new


def arguments(schema, kind, device, repeat, same):
    """Returns the arguments of a call, and its first list of tensors. If `same` is true, all lists are one list."""
    made: list[Any] = []
    lists: list[Any] = []
    # PyTorch refuses to write fractions to integers.
    numbers = (2, 3, 5, 2) if kind == "integers" else (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
    for argument in schema.arguments:
        text = str(argument.type)
        if text == "List[Tensor]":
            if not (same and lists):
                tensors = LISTS[kind](maker(device, len(lists)))
                lists.append(tensors + tensors[:1] if repeat else tensors)
            made.append(lists[-1])
        elif text == "List[number]":
            made.append(list(numbers[: len(lists[0])]))
        elif text == "Tensor":
            # PyTorch takes the numbers of addcmul and addcdiv as a tensor on the CPU.
            several = argument.name == "scalars"
            made.append(torch.tensor(numbers[: len(lists[0])]) if several else torch.tensor(numbers[1], device=device))
        elif text == "number":
            made.append(argument.default_value if argument.has_default_value() else numbers[1])
        else:
            break  # further arguments have defaults
    return made, lists[0]


def run(op, given, tensors):
    """Returns the results and the tensors after the call, or the exception."""
    try:
        results = op(*given)
    except Exception as e:
        return e
    return [*(results or []), *tensors]


def check(op, schema, kind, repeat, same):
    expected = run(op, *arguments(schema, kind, "cpu", repeat, same))
    got = run(op, *arguments(schema, kind, DEVICE, repeat, same))
    if isinstance(expected, NotImplementedError):
        return  # the CPU has fewer dtypes
    if isinstance(expected, Exception):
        assert isinstance(got, type(expected)), got
        return
    assert not isinstance(got, Exception), got
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert a.device.type == DEVICE
        torch.testing.assert_close(a.cpu(), b, equal_nan=True)
        torch.testing.assert_close((a + 1).cpu(), a.cpu() + 1, equal_nan=True)  # it can be used again


@pytest.mark.parametrize("name", NAMES)
def test_an_op_on_lists_agrees_with_the_cpu(name):
    wrong, compared = {}, 0
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        overload = schema.overload_name or "default"
        if "out" in overload.lower():
            continue
        op = getattr(getattr(torch.ops.aten, name), overload)
        for kind in LISTS:
            for repeat, same in ((False, False), (True, False), (False, True)):
                try:
                    check(op, schema, kind, repeat, same)
                except AssertionError as e:
                    wrong[overload, kind, repeat, same] = str(e)[:300]
                compared += 1
    assert not wrong
    assert compared >= len(LISTS)
