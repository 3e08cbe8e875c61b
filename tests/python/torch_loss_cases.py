"""The cases of compare_with_torch.py for losses and their gradients."""

import functools
import itertools

import torch
from torch.nn import functional as F
from torch_case import Case, Configurations, gradients, leaves, statistics_dtype

LOSSES = [{}, {"label_smoothing": 0.1}, {"ignore_index": 3}]


def cross_entropy_inputs(inputs):
    """Yields x, the target, the weight or None, and the options."""
    for options, has_weight, shape in itertools.product(LOSSES, (False, True), ((30, 11), (8, 3000), (4, 9, 25))):
        x = inputs.real(-8, 8, *shape)
        rows = shape[:1] + shape[2:]
        target = torch.randint(0, shape[1], rows, generator=inputs.generator)
        weight = inputs.real(1 / 64, 2, shape[1]) if has_weight else None
        yield x, target, weight, options
    draw = Configurations(7)
    for _ in range(30):
        shape = draw.numbers(draw.number(2, 4), 1, 9)
        target = torch.randint(0, shape[1], shape[:1] + shape[2:], generator=inputs.generator)
        weight = inputs.real(1 / 64, 2, shape[1]) if draw.flag() else None
        yield (
            inputs.real(-8, 8, *shape),
            target,
            weight,
            {"label_smoothing": draw.number(0, 4) / 4, "ignore_index": draw.number(-1, 4)},
        )


def cross_entropy(inputs):
    for x, target, weight, options in cross_entropy_inputs(inputs):
        wide = x.to(statistics_dtype(x.dtype))
        factor = None if weight is None else weight.to(wide.dtype)
        lse = torch.logsumexp(wide, 1)
        scale = (lse.double().abs() + 10) * (1 if weight is None else 2)

        def want(wide=wide, target=target, factor=factor, options=options, lse=lse):
            loss = F.cross_entropy(wide, target, factor, reduction="none", **options)
            return loss, lse

        yield Case([x, target] + ([] if weight is None else [weight]), want, (scale, scale), axis=1, **options)


def cross_entropy_backward(inputs):
    for x, target, weight, options in cross_entropy_inputs(inputs):
        wide = x.to(statistics_dtype(x.dtype))
        factor = None if weight is None else weight.to(wide.dtype)
        lse = torch.logsumexp(wide, 1)
        g = inputs.real(-4, 4, *target.shape).to(wide.dtype)
        p = torch.softmax(wide.double(), 1)
        one = torch.zeros_like(p).scatter_(1, target.unsqueeze(1), 1)
        below = 1 + (wide - lse.unsqueeze(1)).double().abs()
        scale = 2 * g.double().abs().unsqueeze(1) * (p * below + one + 1 / x.shape[1])

        def want(x=x, wide=wide, target=target, factor=factor, options=options, g=g):
            (wide,) = leaves(wide)
            loss = F.cross_entropy(wide, target, factor, reduction="none", **options)
            return gradients(loss, g, [wide])[0].to(x.dtype)

        yield Case([g, x, lse, target] + ([] if weight is None else [weight]), want, scale, axis=1, **options)


def cross_entropy_loss(inputs):
    for x, target, weight, options in cross_entropy_inputs(inputs):
        wide = x.to(statistics_dtype(x.dtype))
        factor = None if weight is None else weight.to(wide.dtype)
        lse = torch.logsumexp(wide, 1)
        ones = torch.ones(x.shape[1], dtype=wide.dtype) if factor is None else factor
        counts = target != options.get("ignore_index", -100)
        total = (ones[target] * counts).sum()
        scale = (lse.double().abs() + 10) * (1 if weight is None else 2)
        for reduction in ("none", "mean", "sum"):

            def want(
                wide=wide, target=target, factor=factor, options=options, lse=lse, total=total, reduction=reduction
            ):
                return F.cross_entropy(wide, target, factor, reduction=reduction, **options), lse, total

            whole = scale if reduction == "none" else scale.sum() / (total if reduction == "mean" else 1)
            yield Case(
                [x, target] + ([] if weight is None else [weight]),
                want,
                (whole, scale, total.double()),
                axis=1,
                reduction=reduction,
                **options,
            )


def cross_entropy_loss_backward(inputs):
    for case in cross_entropy_backward(inputs):
        g, x, lse, target, *weight = case.inputs
        total = torch.tensor(1.0, dtype=lse.dtype)
        yield Case([g, x, lse, target, total, *weight], case.want, case.scale, reduction="none", **case.attrs)


def elements(function, x_range, target_range, weights=0, of_gradient=False, **attrs):
    """The cases of a loss of elements, or of its gradient."""

    def cases(inputs):
        for shape, reduction, count in itertools.product(
            ((50,), (40, 90)), ("none", "mean", "sum"), range(weights + 1)
        ):
            x, target = inputs.real(*x_range, *shape), inputs.real(*target_range, *shape)
            factors = [inputs.real(1 / 64, 2, shape[-1]) for _ in range(count)]
            g = inputs.real(-2, 2, *(shape if reduction == "none" else ()))

            def loss(x, target=target, factors=factors, reduction=reduction):
                wide = [each.to(x.dtype) for each in (target, *factors)]
                return function(x, *wide, reduction=reduction)

            def want(x=x, g=g, loss=loss):
                (wide,) = leaves(x.to(statistics_dtype(x.dtype)))
                y = loss(wide)
                return (gradients(y, g.to(wide.dtype), [wide])[0] if of_gradient else y.detach()).to(x.dtype)

            weight = factors[0].double() if factors else torch.tensor(1.0)
            scale = weight * (1 + x.double().abs()) * (1 + target.double().abs()) * (3 if count == 2 else 1)
            (leaf,) = leaves(x.double())
            each = function(leaf, target.double(), *(f.double() for f in factors), reduction="none")
            share = x.numel() if reduction == "mean" else 1
            if of_gradient:
                slopes = torch.autograd.grad(each.sum(), leaf)[0].abs()
                scale = g.double().abs() * (slopes + scale) / share
            else:
                scale = each.detach().abs() + scale
                scale = scale if reduction == "none" else scale.sum() / share
            first = [g] if of_gradient else []
            yield Case([*first, x, target, *factors], want, scale, reduction=reduction, **attrs)

    return cases


def with_logits(x, target, weight=None, pos_weight=None, reduction="mean"):
    return F.binary_cross_entropy_with_logits(x, target, weight, reduction=reduction, pos_weight=pos_weight)


REAL, PROBABILITY, LOGARITHM = (-8, 8), (1 / 64, 63 / 64), (-8, 0)
ELEMENT_LOSSES = {
    "mse_loss": (F.mse_loss, REAL, REAL, 0, {}),
    "l1_loss": (F.l1_loss, REAL, REAL, 0, {}),
    "smooth_l1_loss": (functools.partial(F.smooth_l1_loss, beta=2.5), REAL, REAL, 0, {"beta": 2.5}),
    "huber_loss": (functools.partial(F.huber_loss, delta=2.5), REAL, REAL, 0, {"delta": 2.5}),
    "binary_cross_entropy": (F.binary_cross_entropy, PROBABILITY, PROBABILITY, 1, {}),
    "binary_cross_entropy_with_logits": (with_logits, REAL, PROBABILITY, 2, {}),
    "kl_div": (F.kl_div, LOGARITHM, PROBABILITY, 0, {}),
}


def element_cases():
    cases = {}
    for name, (function, x, target, weights, attrs) in ELEMENT_LOSSES.items():
        cases[name] = elements(function, x, target, weights, **attrs)
        cases[f"{name}_backward"] = elements(function, x, target, weights, of_gradient=True, **attrs)
    return cases


def nll_loss(inputs):
    for x, target, weight, options in cross_entropy_inputs(inputs):
        ignored = {key: value for key, value in options.items() if key == "ignore_index"}
        for reduction in ("none", "mean", "sum"):
            wide = x.to(statistics_dtype(x.dtype))
            ones = torch.ones(x.shape[1], dtype=wide.dtype) if weight is None else weight.to(wide.dtype)
            counts = target != ignored.get("ignore_index", -100)
            weights = ones[target] * counts
            share = weights.sum() if reduction == "mean" else 1
            each = (weights * wide.gather(1, target.unsqueeze(1)).squeeze(1)).double().abs()

            def want(x=x, wide=wide, target=target, ones=ones, weights=weights, ignored=ignored, reduction=reduction):
                loss = F.nll_loss(wide, target, ones, reduction=reduction, **ignored)
                return loss.to(x.dtype), weights.sum().to(x.dtype)

            scale = each if reduction == "none" else each.sum() / share
            yield Case(
                [x, target] + ([] if weight is None else [weight]),
                want,
                (scale, weights.sum().double()),
                axis=1,
                reduction=reduction,
                **ignored,
            )


def nll_loss_backward(inputs):
    for case in nll_loss(inputs):
        x, target, *weight = case.inputs
        reduction, options = case.attrs["reduction"], {k: v for k, v in case.attrs.items() if k != "axis"}
        g = inputs.real(-2, 2, *(target.shape if reduction == "none" else ()))

        def want(x=x, target=target, weight=weight, g=g, options=options):
            (wide,) = leaves(x.to(statistics_dtype(x.dtype)))
            loss = F.nll_loss(wide, target, *(each.to(wide.dtype) for each in weight), **options)
            return gradients(loss, g.to(wide.dtype), [wide])[0].to(x.dtype)

        result = want()
        yield Case([g, x, target, *weight], want, result.double().abs(), **case.attrs)


CASES = {
    **element_cases(),
    "nll_loss": nll_loss,
    "nll_loss_backward": nll_loss_backward,
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "cross_entropy_loss": cross_entropy_loss,
    "cross_entropy_loss_backward": cross_entropy_loss_backward,
}
