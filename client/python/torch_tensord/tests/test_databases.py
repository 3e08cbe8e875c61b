"""PyTorch's samples of modules and of optimizers give what they give on the CPU, and gradients those of differences.

TENSORD_TEST_LONG=1 takes all samples in place of a few.
"""

import copy
import importlib.util
import itertools
import os

import pytest
import torch
from test_op_database import DEVICE, flat, to_device, walk

LONG = os.environ.get("TENSORD_TEST_LONG", "0") not in ("", "0")
MODULE_SAMPLES = 1000 if LONG else 4
OPTIMIZER_SAMPLES = 1000 if LONG else 6
# Ops with a kernel, whose gradients are compared with differences in float64.
DIFFERENTIATED = [
    "nn.functional.interpolate", "nn.functional.grid_sample", "nn.functional.pad", "nn.functional.unfold",
    "nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_max_pool2d", "nn.functional.conv2d",
    "nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.batch_norm", "nn.functional.gelu",
    "nn.functional.ctc_loss", "nn.functional.embedding_bag", "nn.functional.huber_loss", "nn.functional.max_pool3d",
    "cdist", "logcumsumexp", "cummax", "median", "lgamma", "digamma", "logsumexp", "softmax", "matmul", "bmm",
    "addmm", "index_add", "scatter_add", "scatter_reduce", "gather", "cumprod", "var", "renorm", "logit", "prod",
]  # fmt: skip
# These need a kernel that doesn't exist, or have several right results.
MODULES_SKIPPED = {
    "nn.FractionalMaxPool2d": "no kernel",
    "nn.FractionalMaxPool3d": "no kernel",
}
OPTIMIZERS_SKIPPED = {"SparseAdam": "sparse gradients"}
FUSED = ("Adagrad", "Adam", "AdamW", "SGD")

needs_expecttest = pytest.mark.skipif(
    importlib.util.find_spec("expecttest") is None, reason="torch.testing needs expecttest"
)
pytestmark = [needs_expecttest, pytest.mark.filterwarnings("ignore")]


def spread(samples, count):
    """Returns up to `count` of the samples, from all parts of the list."""
    samples = list(samples)
    return samples[:: max(1, -(-len(samples) // count))] if samples else []


# ---- modules


def outputs_of(x):
    return flat(x if isinstance(x, (list, tuple, torch.Tensor)) else list(x))


def compare_module(info, sample, training):
    """Compares the results, gradients and buffers. Returns False if the CPU refuses the sample."""
    constructor, forward = sample.constructor_input, sample.forward_input
    torch.manual_seed(0)
    try:
        module = info.module_cls(*constructor.args, **constructor.kwargs).train(training)
        if info.name.startswith("nn.Lazy"):
            module(*forward.args, **forward.kwargs)  # makes the parameters
        copied = copy.deepcopy(module)
        expected = outputs_of(module(*forward.args, **forward.kwargs))
    except Exception:
        return False
    here = copied.to(DEVICE)
    moved = []
    arguments, options = walk((forward.args, forward.kwargs), lambda x: to_device(x, moved))
    got = outputs_of(here(*arguments, **options))
    assert len(expected) == len(got)
    for a, b in zip(expected, got):
        torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)
    pairs = [(a, b) for a, b in zip(expected, got) if a.requires_grad]
    gradients = [torch.randn_like(a) for a, _ in pairs]
    if pairs:
        torch.autograd.backward([a for a, _ in pairs], gradients)
        torch.autograd.backward([b for _, b in pairs], [g.to(DEVICE) for g in gradients])
    for a, b in itertools.chain(zip(module.parameters(), here.parameters()), moved):
        if a.grad is not None:
            torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-3, atol=1e-4, equal_nan=True)
            a.grad = None
    for a, b in zip(module.buffers(), here.buffers()):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-5)
    return True


@pytest.mark.parametrize("training", [True, False])
def test_modules_agree_with_the_cpu(training):
    from torch.testing._internal.common_modules import module_db

    wrong, compared = {}, 0
    for info in module_db:
        if info.name in MODULES_SKIPPED:
            continue
        torch.manual_seed(0)
        options = {"device": "cpu", "dtype": torch.float32, "requires_grad": True, "training": training}
        samples = [s for s in info.module_inputs_func(info, **options) if s.forward_input is not None]
        for i, sample in enumerate(spread(samples, MODULE_SAMPLES)):
            try:
                compared += compare_module(info, sample, training)
            except Exception as e:
                wrong.setdefault(info.name, f"sample {i}: {type(e).__name__}: {str(e)[:300]}")
    assert not wrong
    assert compared >= 300


# ---- optimizers


def make_parameters(device, dtype):
    torch.manual_seed(1)
    return [torch.randn(s).to(device, dtype).requires_grad_() for s in ((3, 4), (4,), (), (2, 1, 3))]


def optimized(cls, options, device, steps=3):
    """Returns the parameters after some steps on a function of them."""
    # The many steps of LBFGS magnify roundings.
    parameters = make_parameters(device, torch.float64 if cls is torch.optim.LBFGS else torch.float32)
    options = {k: v.to(device) if isinstance(v, torch.Tensor) and v.dim() > 0 else v for k, v in options.items()}
    optimizer = cls(parameters, **options)

    def closure():
        optimizer.zero_grad()
        loss = sum((torch.sin(p) + 0.1 * torch.cos(3 * p)).sum() for p in parameters)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return [p.detach().cpu() for p in parameters]


def test_optimizers_agree_with_the_cpu():
    from torch.testing._internal.common_optimizers import optim_db

    wrong, compared = {}, 0
    for info in optim_db:
        name = info.optim_cls.__name__
        if name in OPTIMIZERS_SKIPPED:
            continue
        for sample in spread(info.optim_inputs_func(device="cpu"), OPTIMIZER_SAMPLES):
            kinds = [{}]
            if "foreach" in info.supported_impls:
                kinds += [{"foreach": False}, {"foreach": True}]
            if name in FUSED:
                kinds.append({"fused": True})
            for kind in kinds:
                if "fused" in kind and sample.kwargs.get("differentiable") or "capturable" in sample.kwargs:
                    continue
                options = {**sample.kwargs, **kind}
                # Without a line search, LBFGS has no direction to a maximum, and magnifies roundings.
                if name == "LBFGS" and options.get("maximize") and "line_search_fn" not in options:
                    continue
                # Muon takes matrices only.
                try:
                    expected = optimized(info.optim_cls, options, "cpu")
                except Exception:
                    continue
                compared += 1
                try:
                    for a, b in zip(expected, optimized(info.optim_cls, options, DEVICE)):
                        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
                except Exception as e:
                    wrong[f"{name} {options}"] = f"{type(e).__name__}: {str(e)[:300]}"
    assert not wrong
    assert compared >= 150


# ---- gradients of ops


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_are_those_of_differences(name):
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    for info in op_db:
        if info.name != name:
            continue
        for sample in spread(info.sample_inputs("cpu", torch.float64, requires_grad=True), 3 if LONG else 1):
            moved = []
            arguments, args, kwargs = walk((sample.input, sample.args, sample.kwargs), lambda x: to_device(x, moved))
            inputs = [b for _, b in moved if b.requires_grad and 0 < b.numel() < (200 if LONG else 30)]
            if not inputs:
                continue

            def f(*_, args=args, kwargs=kwargs, arguments=arguments, info=info, sample=sample):
                results = flat(info(arguments, *args, **kwargs))
                results = [sample.output_process_fn_grad(x) for x in results]
                return tuple(x for x in results if x.requires_grad)

            if f():
                assert torch.autograd.gradcheck(f, inputs, fast_mode=True, check_undefined_grad=False, nondet_tol=1e-9)
