"""The cases of compare_with_torch.py for losses and their gradients."""

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


CASES = {
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "cross_entropy_loss": cross_entropy_loss,
    "cross_entropy_loss_backward": cross_entropy_loss_backward,
}
