"""Each op in PyTorch's database of samples gives what it gives on the CPU: in each dtype, and in each form of a call.

missing_ops.txt lists what has no kernel. If an op lacks more than the list says, its test fails. If it lacks less, its
test fails until the line is removed. TENSORD_TEST_LONG=1 takes more samples. TENSORD_WRITE_MISSING_OPS=FILE writes
the list of the run to FILE.
"""

import atexit
import collections
import functools
import importlib.util
import itertools
import os
import pathlib
import warnings

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("expecttest") is None, reason="torch.testing needs expecttest"),
    pytest.mark.filterwarnings("ignore"),
]
DEVICE = "tensord"
LONG = os.environ.get("TENSORD_TEST_LONG", "0") not in ("", "0")
DTYPES = {
    torch.float32: (12 if LONG else 3),  # dtype -> samples
    torch.float64: (4 if LONG else 1),
    torch.float16: (4 if LONG else 1),
    torch.bfloat16: (4 if LONG else 1),
    torch.uint8: (4 if LONG else 1),
    torch.int32: (4 if LONG else 1),
    torch.int64: (4 if LONG else 2),
    torch.bool: (4 if LONG else 1),
}
MAX_LISTED = 60  # samples that are made for a dtype, before some are chosen
# (relative, absolute) error of one op. Sums of 16-bit numbers are rounded in another order.
TOLERANCES = {
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-6, 1e-7),  # random numbers of PyTorch's samples are of float32
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
GRADIENT_TOLERANCE = (1e-3, 1e-4)

# Values are random, undefined, or unspecified where elements are equal.
RANDOM = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
    "log_normal", "multinomial", "native_dropout_backward", "new_empty", "new_empty_strided",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "resize_", "resize_as_", "topk", "uniform",
}  # fmt: skip
# Results that PyTorch doesn't define, and arguments that it wants on the CPU.
SKIPPED = {
    "argsort": "the order of equal elements",
    "sort": "the order of equal elements",
    "tensor_split": "PyTorch wants sections on the CPU",
    "to": "a gradient of a copy to the CPU",
}
# Samples of integers and of 16-bit numbers have equal elements, whose order is unspecified.
TIES = {"kthvalue"}
# Differences of large numbers: float32 rounds them to few digits.
LOOSE = {"logcumsumexp"}
# Ops whose sums cancel: errors are relative to the largest element. The error of PyTorch's result on the CPU depends on
# the processor, so they are compared with the result of float64 operands.
CANCELLING = {"nn_functional_conv_transpose2d", "nn_functional_conv_transpose3d"}
# Ops that differ from the CPU in a form, and ops that don't refuse all that the CPU refuses. These lists may only get
# shorter: a test that passes although its op is listed fails.
DIFFERENT = {
    "_native_batch_norm_legit": "with 16 bits, the statistics are of float32",
    "_unsafe_masked_index_put_accumulate": "sums of 16-bit numbers are rounded once",
    "addbmm": "in place, a batch that broadcasts the operand isn't refused as on the CPU; sums of bfloat16",
    "grid_sampler_2d": "coordinates of 16 bits are computed with float32",
    "native_batch_norm": "with 16 bits, the statistics are of float32",
    "native_group_norm": "with 16 bits, the statistics are of float32",
    "native_layer_norm": "with 16 bits, the statistics are of float32",
    "nn_functional_multi_margin_loss": "the mean over no rows is NaN",
    "nonzero": "the strides of out= for one element",
}
# Ops whose results differ from the CPU's with PyTorch 2.11.
OLDER = {
    "_unsafe_masked_index_put_accumulate": "the CPU rounds sums of 16-bit numbers once",
    "cholesky": "the op needs a kernel of the device",
    "nn_functional_batch_norm": "the CPU rounds bfloat16 more often",
    "nn_functional_multilabel_margin_loss": "on the CPU, the mean over no rows is 0",
    "polar": "the CPU has no kernel for float16",
    "qr": "the op needs a kernel of the device",
}
LENIENT = {"masked_fill": "NotImplementedError for a complex number", "narrow_copy": "IndexError for the dimension"}
# Whole families that have no kernels, and PyTorch's own references of ops.
MODULES = ("linalg.", "fft.", "sparse", "torch.ops", "_refs")
FORMS = ("call", "gradient", "apart", "negative", "empty", "out", "in place")


# ---- trees of arguments


def walk(x, f):
    """Returns the arguments x with each tensor t replaced by f(t)."""
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, torch.Size):
        return x
    if isinstance(x, (list, tuple)):
        return (list if isinstance(x, list) else tuple)(walk(each, f) for each in x)
    if isinstance(x, dict):
        return {name: walk(each, f) for name, each in x.items()}
    return x


def flat(x):
    if isinstance(x, torch.Tensor):
        return [x]
    return [t for each in x for t in flat(each)] if isinstance(x, (list, tuple)) else []


def to_device(x, here=None, storages=None):
    """Moves a tensor, with its strides and offset, and appends (tensor, moved) to `here`.

    Tensors share memory as on the CPU if they are moved with one dictionary `storages`.
    """
    storage = x.untyped_storage()
    count = storage.nbytes() // x.element_size()
    if count == 0:
        moved = torch.empty(x.shape, dtype=x.dtype, device=DEVICE)
    else:
        key, storages = (storage.data_ptr(), x.dtype), {} if storages is None else storages
        if key not in storages:
            storages[key] = torch.empty(0, dtype=x.dtype).set_(storage, 0, (count,)).to(DEVICE)
        moved = storages[key].as_strided(x.shape, x.stride(), x.storage_offset())
    if x.is_neg():
        moved = moved._neg_view()
    moved = moved.detach().requires_grad_(x.requires_grad)
    if here is not None:
        here.append((x, moved))
    return moved


def move(arguments, here=None):
    """Returns (input, args, kwargs) on the device."""
    storages = {}
    made = walk(arguments, lambda x: to_device(x, here, storages))
    if "device" in made[2]:
        made[2]["device"] = DEVICE
    return made


def call(function, arguments, **options):
    return function(arguments[0], *arguments[1], **arguments[2], **options)


def is_real(arguments):
    """Returns whether all tensors of the arguments are dense, real and on the CPU: others have no kernels."""
    real = []
    walk(arguments, lambda x: real.append(x.layout == torch.strided and x.is_cpu and not x.is_complex()))
    return all(real)


# ---- the forms of a call. Each takes an op, its arguments on the CPU, and the result there


def check_close(got, expected, tolerance=None):
    pairs = list(zip(flat(got), flat(expected), strict=True))
    for a, b in pairs:
        rtol, atol = tolerance or TOLERANCES.get(b.dtype, (0, 0))
        torch.testing.assert_close(
            a.detach().cpu().resolve_neg(), b.detach().resolve_neg(), rtol=rtol, atol=atol, equal_nan=True
        )


def check_call(op, arguments, expected):
    tolerance = None
    if op.formatted_name in CANCELLING and expected.is_floating_point():
        wide = walk(arguments, lambda x: x.detach().double() if x.is_floating_point() else x)
        expected = call(op, wide).to(expected.dtype)
        if expected.numel() > 0:
            rtol, atol = TOLERANCES[expected.dtype]
            eps = torch.finfo(expected.dtype).eps * (1 if expected.dtype.itemsize == 2 else 8)
            tolerance = rtol, max(atol, float(eps * expected.abs().max()))
    check_close(call(op, move(arguments)), expected, tolerance)


def check_gradient(op, arguments, expected):
    here = []
    got = call(op, move(arguments, here))
    outputs = [(a, b) for a, b in zip(flat(expected), flat(got)) if a.requires_grad]
    inputs = [pair for pair in here if pair[0].requires_grad]
    if not outputs or not inputs:
        return
    ones = [torch.randn_like(a) for a, _ in outputs]
    wanted = torch.autograd.grad(
        [a for a, _ in outputs], [a for a, _ in inputs], ones, allow_unused=True, retain_graph=True
    )
    moved = [each.to(DEVICE) for each in ones]
    found = torch.autograd.grad([b for _, b in outputs], [b for _, b in inputs], moved, allow_unused=True)
    for a, b in zip(wanted, found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            check_close(b, a, (1e-2, 1e-2) if op.name in LOOSE else GRADIENT_TOLERANCE)


def apart(x):
    """Returns an equal tensor whose elements aren't neighbors."""
    if x.dim() == 0 or x.numel() < 2:
        return x
    wide = torch.zeros(*x.shape, 2, dtype=x.dtype)
    wide[..., 0] = x.detach()
    return wide[..., 0]


def negative(x):
    """Returns an equal tensor that is a negated view."""
    return x.detach() if x.dtype in (torch.bool, torch.uint8) or x.is_neg() else x.detach().neg()._neg_view()


def check_with(change, op, arguments):
    """Compares a call with changed operands, if the CPU accepts them."""
    try:
        changed = walk(arguments, change)
        expected = call(op, changed)
    except Exception:
        return
    check_call(op, changed, expected)


def check_apart(op, arguments, expected):
    check_with(apart, op, arguments)


def check_negative(op, arguments, expected):
    check_with(negative, op, arguments)


def check_empty(op, arguments, expected):
    """Compares a call with operands of no elements: the first axis of the input has size 0 in all operands."""
    given = arguments[0]
    if not isinstance(given, torch.Tensor) or given.dim() == 0:
        return
    length = given.shape[0]
    check_with(lambda x: x.detach()[:0] if x.dim() > 0 and x.shape[0] == length else x.detach(), op, arguments)


def empty_out(x, device):
    return torch.empty(0, dtype=x.dtype, device=device)


def strided_out(x, device):
    return torch.zeros(*x.shape, 2, dtype=x.dtype, device=device)[..., 1]


def call_into(op, arguments, make, results, device):
    """Returns the tensors that the op has written."""
    given = [make(x, device) for x in flat(results)]
    call(op, arguments, out=given[0] if isinstance(results, torch.Tensor) else tuple(given))
    return given


def check_out(op, arguments, expected):
    """Empty results are resized. Others of the right shape keep their strides."""
    if not op.supports_out or not flat(expected) or not isinstance(expected, (torch.Tensor, tuple)):
        return
    plain = walk(arguments, torch.Tensor.detach)
    for make in (empty_out, strided_out):
        try:
            wanted = call_into(op, plain, make, expected, "cpu")
            check_close(wanted, flat(expected))
        except Exception:
            continue  # the CPU refuses it, or is wrong
        got = call_into(op, move(plain), make, expected, DEVICE)
        check_close(got, wanted)
        assert [x.stride() for x in got] == [x.stride() for x in wanted]


def check_in_place(op, arguments, expected):
    """The elements around a view that is written stay."""
    variant = op.get_inplace()
    plain = walk(arguments, torch.Tensor.detach)
    if variant is None or not isinstance(plain[0], torch.Tensor) or not isinstance(expected, torch.Tensor):
        return

    def changed(wide, rest):
        variant(wide[..., 1], *rest[1], **rest[2])
        return wide

    def pair():
        return torch.stack([plain[0], plain[0]], -1)

    try:
        wanted = changed(pair(), plain)
    except Exception:
        return
    check_close(changed(to_device(pair()), move(plain)), wanted)


CHECKS = {
    "call": check_call,
    "gradient": check_gradient,
    "apart": check_apart,
    "negative": check_negative,
    "empty": check_empty,
    "out": check_out,
    "in place": check_in_place,
}
assert tuple(CHECKS) == FORMS


# ---- the database


def infos():
    """Returns the ops whose results are defined."""
    if importlib.util.find_spec("expecttest") is None:
        return []
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not op.name.startswith(MODULES) and op.name not in RANDOM and op.name not in SKIPPED]


def samples_of(op, dtype):
    """Returns some of the op's samples for the dtype, from all parts of the list."""
    gradients = dtype == torch.float32 and op.supports_autograd
    torch.manual_seed(0)
    try:
        limit = MAX_LISTED if DTYPES[dtype] > 1 else 1
        made = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), limit))
    except Exception:
        return []  # the op has no samples of this dtype
    samples = made[:: max(1, -(-len(made) // DTYPES[dtype]))]
    return [each for each in ((s.input, s.args, s.kwargs) for s in samples) if is_real(each)]


def parameters(ops, listed):
    """Returns parameters for tests. Those of listed ops must fail."""
    mark = pytest.mark.xfail(strict=True)
    return [pytest.param(op, id=op.formatted_name, marks=[mark] if op.formatted_name in listed else []) for op in ops]


@functools.cache
def listed():
    """Returns what missing_ops.txt lists: {op: {"form dtype"}}."""
    made = collections.defaultdict(set)
    for line in (pathlib.Path(__file__).parent / "missing_ops.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, form, dtypes = line.rsplit(" | ", 2)
            made[name] |= {f"{form} {dtype}" for dtype in dtypes.split()}
    return made


_written = {}


def _write_missing():
    with pathlib.Path(os.environ["TENSORD_WRITE_MISSING_OPS"]).open("w") as output:
        for name, missing in sorted(_written.items()):
            for form in FORMS:
                dtypes = [str(dtype)[6:] for dtype in DTYPES if f"{form} {str(dtype)[6:]}" in missing]
                if dtypes:
                    print(f"{name} | {form} | {' '.join(dtypes)}", file=output)


if os.environ.get("TENSORD_WRITE_MISSING_OPS"):
    atexit.register(_write_missing)


def run_forms(op, dtype, wrong, missing):
    """Compares all forms of the calls. Adds errors to `wrong`, and the forms that have no kernel to `missing`."""
    name = str(dtype)[6:]
    for number, arguments in enumerate(samples_of(op, dtype)):
        try:
            torch.manual_seed(0)
            expected = call(op, arguments)
        except Exception:
            continue  # the CPU refuses the sample
        for form, check in CHECKS.items():
            if f"call {name}" in missing or f"{form} {name}" in missing:
                continue
            try:
                check(op, arguments, expected)
            except NotImplementedError:
                missing.add(f"{form} {name}")
            except Exception as e:
                wrong[f"{form} {name}"] = f"sample {number}: {type(e).__name__}: {str(e)[:300]}"


@pytest.mark.parametrize("op", parameters(infos(), DIFFERENT))
def test_op_agrees_with_the_cpu(op):
    if torch.__version__ < (2, 12) and op.formatted_name in OLDER:
        pytest.skip(f"PyTorch {torch.__version__}: {OLDER[op.formatted_name]}")
    wrong, missing = {}, set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            if dtype in op.dtypes and not (op.name in TIES and dtype != torch.float32):
                run_forms(op, dtype, wrong, missing)
    _written[op.formatted_name] = missing
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
    assert missing == listed()[op.formatted_name], "missing_ops.txt must list exactly what has no kernel"


def raised(op, arguments):
    """Returns the type of the exception of a call and of a wait for its results, or None."""
    try:
        walk(call(op, arguments), lambda x: x.cpu())
    except Exception as e:
        return type(e)
    return None


@pytest.mark.parametrize("op", parameters([op for op in infos() if op.error_inputs_func is not None], LENIENT))
def test_op_refuses_what_the_cpu_refuses(op):
    wrong = []
    for number, each in enumerate(op.error_inputs("cpu")):
        sample = each.sample_input
        arguments = (sample.input, sample.args, sample.kwargs)
        if not is_real(arguments) or (expected := raised(op, arguments)) is None:
            continue
        got = raised(op, move(arguments))
        if got is NotImplementedError and listed()[op.formatted_name]:
            continue  # the op has no kernel
        if got is not expected:
            wrong.append(f"sample {number}: {got} in place of {expected}: {each.error_regex[:100]}")
    assert not wrong, "\n".join(wrong)
