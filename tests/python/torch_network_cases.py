"""The cases of compare_with_torch.py for norms, attention, softmax_backward, adam_step and the gradient scaler."""

import itertools
import math
from typing import Any

import torch
from torch.nn import functional as F
from torch_case import Case, Configurations, gradients, leaves, statistics_dtype


def softmax_backward(inputs):
    for log, axis in itertools.product((False, True), (0, 1)):
        forward = torch.log_softmax if log else torch.softmax
        x, g = inputs.real(-4, 4, 50, 300), inputs.real(-4, 4, 50, 300)
        y = forward(x, axis)
        terms = (g.double() if log else g.double() * y.double()).abs().sum(axis, keepdim=True)
        scale = g.double().abs() + y.double().exp() * terms if log else y.double().abs() * (g.double().abs() + terms)

        def want(x=x, g=g, axis=axis, forward=forward):
            (x,) = leaves(x)
            return gradients(forward(x, axis), g, [x])[0]

        yield Case([g, y], want, scale, axis=axis, log=log)


def normalized(x, axes, center, eps):
    """Returns the statistics of layer_norm over the axes."""
    x = x.to(statistics_dtype(x.dtype))
    mean = x.mean(axes, keepdim=True)
    square = (x - mean if center else x).square().mean(axes, keepdim=True)
    return mean, (square + eps).rsqrt()


def norm_forward(x, shape, center, weight, bias, eps):
    """Returns the norm over the last dimensions, which have this shape."""
    if center:
        return F.layer_norm(x, shape, weight, bias, eps)
    return F.rms_norm(x, shape, weight, eps) + (0 if bias is None else bias)


def norm_configurations(inputs, count=60):
    """Yields x, the weight or None, the bias or None, and the attributes, for random shapes."""
    for n in (7, 768):
        for center in (True, False):
            yield (
                inputs.real(-4, 4, 40, n),
                inputs.real(-4, 4, n),
                inputs.real(-4, 4, n) if center else None,
                {"center": center, "normalized_rank": 1, "eps": 1e-5},
            )
    draw = Configurations(6)
    for _ in range(count):
        shape = draw.numbers(draw.number(1, 4), 1, 12)
        rank = draw.number(1, len(shape))
        parameters = draw.number(0, 2)
        yield (
            inputs.real(-4, 4, *shape),
            inputs.real(-4, 4, *shape[-rank:]) if parameters > 0 else None,
            inputs.real(-4, 4, *shape[-rank:]) if parameters > 1 else None,
            {"center": draw.flag(), "normalized_rank": rank, "eps": draw.number(1, 9) / 10},
        )


def layer_norm(inputs):
    for x, weight, bias, attrs in norm_configurations(inputs):
        rank, center, eps = attrs["normalized_rank"], attrs["center"], attrs["eps"]
        axes, shape = list(range(-rank, 0)), x.shape[-rank:]
        mean, rstd = normalized(x, axes, center, eps)
        magnitude = x.double().abs().mean(axes, keepdim=True)
        factor = 1 if weight is None else weight.double().abs()
        # The variance has the error of the mean.
        error = 1 + magnitude * rstd
        scale = (x.double().abs() + magnitude) * rstd * error * factor
        scale = scale + (0 if bias is None else bias.double().abs())
        operands = [x] + [of for of in (weight, bias) if of is not None]

        def want(x=x, weight=weight, bias=bias, shape=shape, center=center, eps=eps, mean=mean, rstd=rstd):
            y = norm_forward(x, shape, center, weight, bias, eps)
            return (y, mean, rstd) if center else (y, rstd)

        scales = (scale, magnitude, rstd * error) if center else (scale, rstd * error)
        yield Case(operands, want, scales, **attrs)


def layer_norm_backward(inputs):
    for x, weight, _, attrs in norm_configurations(inputs):
        rank, center, eps = attrs["normalized_rank"], attrs["center"], attrs["eps"]
        axes, shape, rows = list(range(-rank, 0)), x.shape[-rank:], list(range(x.dim() - rank))
        g = inputs.real(-4, 4, *x.shape)
        mean, rstd = normalized(x, axes, center, eps)
        xhat = ((x.double() - mean if center else x.double()) * rstd).abs()
        xhat = xhat + x.double().abs().mean(axes, keepdim=True) * rstd  # the error of the mean
        terms = (g.double() * (1 if weight is None else weight.double())).abs()
        scale = rstd * (terms + terms.mean(axes, keepdim=True) + xhat * (terms * xhat).mean(axes, keepdim=True))
        scales = (
            scale,
            (g.double().abs() * xhat).sum(rows) if rows else g.double().abs() * xhat,
            g.double().abs().sum(rows) if rows else g.double().abs(),
        )

        def want(x=x, g=g, weight=weight, shape=shape, center=center, eps=eps):
            ones = torch.ones(shape, dtype=x.dtype) if weight is None else weight
            x, ones, zeros = leaves(x, ones, torch.zeros(shape, dtype=x.dtype))
            operands = [x, ones, zeros] if center else [x, ones]
            y = norm_forward(x, shape, center, ones, zeros if center else None, eps)
            return gradients(y, g, operands)

        operands = [g, x, rstd] + ([mean] if center else []) + ([] if weight is None else [weight])
        yield Case(operands, want, scales if center else scales[:2], center=center, normalized_rank=rank)


GROUP_NORMS = [((4, 6, 5), 3), ((2, 32, 8, 8), 4), ((3, 4), 1)]


def group_inputs(inputs):
    """Yields x, the weight, the bias, and the number of groups."""
    for shape, groups in GROUP_NORMS:
        yield inputs.real(-4, 4, *shape), inputs.real(-2, 2, shape[1]), inputs.real(-2, 2, shape[1]), groups


def group_statistics(x, groups):
    lines = x.to(statistics_dtype(x.dtype)).reshape(x.shape[0], groups, -1)
    mean, rstd = lines.mean(-1), (lines.var(-1, correction=0) + 1e-5).rsqrt()
    return mean, rstd, lines.double().abs().mean(-1)


def group_scale(x, groups):
    """Returns |x̂| with the error of the mean, for each element."""
    _, rstd, magnitude = group_statistics(x, groups)
    lines = x.double().abs().reshape(x.shape[0], groups, -1)
    return ((lines + magnitude.unsqueeze(-1)) * (rstd * (1 + magnitude * rstd)).unsqueeze(-1)).reshape(x.shape)


def of_channels(parameter, x):
    return parameter.reshape(1, -1, *(1,) * (x.dim() - 2))


def group_norm(inputs):
    for x, weight, bias, groups in group_inputs(inputs):
        mean, rstd, magnitude = group_statistics(x, groups)

        def want(x=x, weight=weight, bias=bias, groups=groups, mean=mean, rstd=rstd):
            wide = (each.to(mean.dtype) for each in (x, weight, bias))
            return F.group_norm(next(wide), groups, next(wide), next(wide)).to(x.dtype), mean, rstd

        scale = group_scale(x, groups) * of_channels(weight.double().abs(), x) + of_channels(bias.double().abs(), x)
        yield Case([x, weight, bias], want, (scale, magnitude, rstd * (1 + magnitude * rstd)), groups=groups)


def group_norm_backward(inputs):
    for x, weight, bias, groups in group_inputs(inputs):
        g = inputs.real(-4, 4, *x.shape)
        mean, rstd, _ = group_statistics(x, groups)
        xhat, terms = group_scale(x, groups), g.double().abs()
        scaled = (terms * of_channels(weight.double().abs(), x)).reshape(*rstd.shape, -1)
        lines = xhat.reshape(*rstd.shape, -1)
        scale = scaled + scaled.mean(-1, keepdim=True) + lines * (scaled * lines).mean(-1, keepdim=True)
        rows = [axis for axis in range(x.dim()) if axis != 1]

        def want(x=x, weight=weight, bias=bias, g=g, groups=groups, mean=mean):
            operands = leaves(*(each.to(mean.dtype) for each in (x, weight, bias)))
            y = F.group_norm(operands[0], groups, operands[1], operands[2])
            return tuple(each.to(x.dtype) for each in gradients(y, g.to(mean.dtype), operands))

        scales = ((scale * rstd.unsqueeze(-1)).reshape(x.shape), (terms * xhat).sum(rows), terms.sum(rows))
        yield Case([g, x, mean, rstd, weight], want, scales, groups=groups)


def amp_unscale(inputs):
    for found, shift in ((0.0, 0.0), (1.0, 0.0), (0.0, math.inf)):
        g = inputs.real(-4, 4, 1000)
        g[7] += shift
        flag, inverse = torch.tensor(found), torch.tensor(1 / 1024)

        def want(g=g, flag=flag, inverse=inverse):
            gradient, found_inf = g.clone(), flag.clone()
            torch._amp_foreach_non_finite_check_and_unscale_([gradient], found_inf, inverse)
            return gradient, found_inf

        yield Case([g, flag, inverse], want, (None, None))


def amp_update_scale(inputs):
    for tracker, found in ((0, 0.0), (4, 0.0), (4, 1.0)):
        scale = inputs.real(1, 1000)
        operands = [scale, torch.tensor(tracker, dtype=torch.int32), torch.tensor(found)]

        def want(operands=operands, failed=found != 0, due=tracker == 4):
            factor = 0.5 if failed else 2.0 if due else 1.0
            return operands[0] * factor, torch.tensor(0 if failed or due else 1, dtype=torch.int32)

        yield Case(operands, want, (None, None), growth=2.0, backoff=0.5, interval=5)


# The shapes of q, k and v.
ATTENTIONS = [
    ((30, 16), (20, 16), (20, 8)),
    ((2, 6, 33, 64), (2, 2, 70, 64), (2, 2, 70, 48)),
    ((1, 4, 1, 64), (1, 4, 600, 64), (1, 4, 600, 64)),
    ((2, 2, 80, 20), (2, 2, 65, 20), (2, 2, 65, 20)),
    ((2, 0, 8), (2, 5, 8), (2, 5, 8)),
    ((2, 5, 8), (2, 0, 8), (2, 0, 8)),
]


def attention_inputs(inputs):
    """Yields q, k, v, the mask or None, and the options."""
    for q, k, v in ATTENTIONS:
        operands = [inputs.real(-1, 1, *shape) for shape in (q, k, v)]
        length, keys = q[-2], k[-2]
        yield *operands, None, {}
        yield *operands, None, {"causal": True}
        yield *operands, None, {"scale": 0.5}
        for shape in ((length, keys), (1, keys), q[:-1] + (keys,)):
            yield *operands, inputs.real(-2, 2, *shape), {}
            kept = torch.rand(shape, generator=inputs.generator) < 0.7
            kept[..., :1, :] = False  # a row without keys, or all rows
            yield *operands, kept, {}
    draw = Configurations(8)
    for _ in range(60):
        group, shared, rank = draw.number(1, 3), draw.number(1, 3), draw.number(2, 4)
        length, keys, depth = draw.number(1, 40), draw.number(1, 40), draw.number(1, 24)
        batch = draw.numbers(max(rank - 3, 0), 1, 2)
        heads = [[] if rank == 2 else batch + [of] for of in (group * shared, shared)]
        q = inputs.real(-1, 1, *heads[0], length, depth)
        k = inputs.real(-1, 1, *heads[1], keys, depth)
        v = inputs.real(-1, 1, *heads[1], keys, draw.number(1, 24))
        options = {"scale": draw.number(1, 8) / 8} if draw.flag() else {}
        of_mask = heads[0] + [length, keys] if draw.flag() else [draw.number(0, 1) or length, keys]
        mask: Any = None
        kind = draw.number(0, 4)
        if kind == 1:
            options["causal"] = True
        elif kind == 2:
            mask = inputs.real(-2, 2, *of_mask)
        elif kind > 2:
            mask = torch.rand(of_mask, generator=inputs.generator) < 0.7
        if kind == 4:  # some rows may have no keys
            mask = inputs.real(-2, 2, *of_mask).masked_fill(~mask, -torch.inf)
        yield q, k, v, mask, options


def attention(q, k, v, mask, causal=False, scale=None):
    if q.dim() > 2 and q.shape[-3] != k.shape[-3]:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)


def scores_of(q, k, mask, causal=False, scale=None):
    """Returns the scores, and the magnitudes of their terms."""
    if q.dim() > 2:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    scale = scale or q.shape[-1] ** -0.5
    scores, magnitude = q @ k.mT * scale, q.abs() @ k.mT.abs() * scale
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if mask is None:
        return scores, magnitude
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, -torch.inf), magnitude
    return scores + mask, magnitude + mask.abs().nan_to_num(posinf=0)


def with_attrs(case, attrs):
    """Returns the case with these attributes, of which one is called scale."""
    case.attrs = attrs
    return case


def sdpa(inputs):
    for q, k, v, mask, options in attention_inputs(inputs):
        wide = statistics_dtype(q.dtype)
        scores, magnitude = scores_of(
            q.double(), k.double(), mask if mask is None or mask.dtype == torch.bool else mask.double(), **options
        )
        lse = torch.logsumexp(scores, -1)
        weights = torch.nan_to_num(torch.exp(scores - lse.unsqueeze(-1)))
        values = v.double().abs()
        if q.dim() > 2:
            values = values.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
        largest = magnitude.amax(-1) if k.shape[-2] > 0 else torch.zeros(q.shape[:-1])
        scale = (weights @ values) * (1 + 2 * largest.unsqueeze(-1))
        lse_scale = 1 + torch.nan_to_num(lse, neginf=0).abs() + largest

        def want(q=q, k=k, v=v, mask=mask, options=options, lse=lse, wide=wide):
            return attention(q, k, v, mask, **options), lse.to(wide)

        yield with_attrs(Case([q, k, v] + ([] if mask is None else [mask]), want, (scale, lse_scale)), options)


def sdpa_backward(inputs):
    for q, k, v, mask, options in attention_inputs(inputs):
        wide = statistics_dtype(q.dtype)
        floating = mask is not None and mask.dtype != torch.bool
        exact = [x.double() for x in (q, k, v)] + [mask.double() if floating else mask]
        scores, magnitude = scores_of(exact[0], exact[1], exact[3], **options)
        lse = torch.logsumexp(scores, -1)
        weights = torch.nan_to_num(torch.exp(scores - lse.unsqueeze(-1)))
        o = torch.nan_to_num(attention(*exact, **options)).to(q.dtype)
        g = inputs.real(-1, 1, *o.shape)
        # The magnitudes of the gradients' terms.
        group = 1 if q.dim() < 3 else q.shape[-3] // k.shape[-3]

        def heads(x, group=group):
            return x if x.dim() < 3 else x.repeat_interleave(group, -3)

        def shared(x, group=group):
            return x if x.dim() < 3 else x.unflatten(-3, (-1, group)).sum(-3)

        factor = options.get("scale", q.shape[-1] ** -0.5)
        error = 1 + magnitude + torch.nan_to_num(lse, neginf=0).abs().unsqueeze(-1)
        g_abs = g.double().abs()
        terms = weights * error * (g_abs @ heads(exact[2]).abs().mT + (g_abs * o.double().abs()).sum(-1, keepdim=True))
        scales = [
            factor * terms @ heads(exact[1]).abs(),
            shared(factor * terms.mT @ exact[0].abs()),
            shared((weights * error).mT @ g_abs),
        ]
        floating = floating and scores.numel() > 0  # PyTorch's mask has no gradient otherwise
        if floating:
            scales.append(terms.sum_to_size(mask.shape))

        def want(q=q, k=k, v=v, mask=mask, options=options, g=g, floating=floating):
            operands = leaves(q, k, v, *([mask] if floating else []))
            of_mask = operands[3] if floating else mask
            return gradients(attention(*operands[:3], mask=of_mask, **options), g, operands)

        attrs = options | ({"mask_gradient": True} if floating else {})
        least = torch.finfo(q.dtype).smallest_normal  # below it, ε is larger
        of_gradients = tuple(scale + least for scale in scales)
        yield with_attrs(
            Case([g, q, k, v, o, lse.to(wide)] + ([] if mask is None else [mask]), want, of_gradients), attrs
        )


def batch_statistics(x, eps):
    """Returns the mean, the variance and 1 / √(variance + eps) of each channel in float64."""
    axes = [0] + list(range(2, x.dim()))
    var, mean = torch.var_mean(x.double(), axes, correction=0)
    return mean, var, (var + eps).rsqrt()


def per_channel(values, x):
    return values.double().reshape([1, -1] + [1] * (x.dim() - 2))


def batch_configurations():
    """Yields the shape of x, and the attributes of batch_norm."""
    for shape, training in itertools.product(((40, 5), (6, 3, 100), (4, 7, 9, 10)), (False, True)):
        yield shape, {"training": training}
    draw = Configurations(9)
    for _ in range(60):
        shape = [draw.number(2, 6)] + draw.numbers(draw.number(1, 4), 1, 6)
        yield shape, {"training": draw.flag(), "eps": draw.number(1, 9) / 10, "momentum": draw.number(0, 8) / 8}


def batch_norm(inputs):
    for shape, attrs in batch_configurations():
        x, channels, training = inputs.real(-4, 4, *shape), shape[1], attrs["training"]
        running_mean, running_var = inputs.real(-1, 1, channels), inputs.real(0.5, 2, channels)
        weight, bias = inputs.real(-4, 4, channels), inputs.real(-4, 4, channels)
        eps, momentum = attrs.get("eps", 1e-5), attrs.get("momentum", 0.1)
        mean, var, invstd = batch_statistics(x, eps)
        n = x.numel() / channels
        factor = per_channel(invstd if training else running_var.double().rsqrt(), x)
        scale = (x.double().abs() + 4) * factor * per_channel(weight, x).abs()
        scale = scale * (1 + 4 * factor) + 4  # the variance has the error of the mean
        wide = statistics_dtype(x.dtype)

        def want(
            x=x,
            running_mean=running_mean,
            running_var=running_var,
            weight=weight,
            bias=bias,
            training=training,
            mean=mean,
            var=var,
            invstd=invstd,
            n=n,
            wide=wide,
            eps=eps,
            momentum=momentum,
        ):
            y = F.batch_norm(x, running_mean.clone(), running_var.clone(), weight, bias, training, eps=eps)
            if not training:
                return y
            new_mean = (1 - momentum) * running_mean.double() + momentum * mean
            new_var = (1 - momentum) * running_var.double() + momentum * var * n / (n - 1)
            return (y, mean.to(wide), invstd.to(wide), new_mean.to(x.dtype), new_var.to(x.dtype))

        # The statistics are sums of magnitudes up to 4, and the variance of magnitudes up to 16.
        four, sixteen = torch.full((channels,), 4.0), torch.full((channels,), 16.0)
        scales = (scale, four, invstd * (1 + 4 * invstd), four, sixteen)
        yield Case([x, running_mean, running_var, weight, bias], want, scales if training else scale, **attrs)


def batch_norm_backward(inputs):
    for shape, attrs in batch_configurations():
        x, g, channels = inputs.real(-4, 4, *shape), inputs.real(-4, 4, *shape), shape[1]
        weight, bias = inputs.real(-4, 4, channels), inputs.real(-4, 4, channels)
        eps, training = attrs.get("eps", 1e-5), attrs["training"]
        mean, var, invstd = batch_statistics(x, eps)
        if not training:
            mean, var = inputs.real(-1, 1, channels), inputs.real(0.5, 2, channels)
            invstd = (var.double() + eps).rsqrt()
        wide = statistics_dtype(x.dtype)
        axes = [0] + list(range(2, x.dim()))
        xhat = (x.double().abs() + per_channel(mean, x).abs()) * per_channel(invstd, x)
        terms = g.double().abs()
        scale = (terms + terms.mean(axes, keepdim=True) + xhat * (terms * xhat).mean(axes, keepdim=True)) * (
            per_channel(weight, x).abs() * per_channel(invstd, x)
        )

        def want(x=x, g=g, weight=weight, bias=bias, mean=mean, var=var, eps=eps, training=training):
            x, weight, bias = leaves(x, weight, bias)
            statistics = (None, None) if training else (mean.to(x.dtype), var.to(x.dtype))
            y = F.batch_norm(x, *statistics, weight, bias, training, eps=eps)
            return gradients(y, g, [x, weight, bias])

        yield Case(
            [g, x, mean.to(wide), invstd.to(wide), weight],
            want,
            (scale, (terms * xhat).sum(axes), terms.sum(axes)),
            training=training,
        )


def adam_step(inputs):
    for amsgrad, decoupled, maximize in itertools.product((False, True), repeat=3):
        p, g, m = (inputs.real(-1, 1, 500) for _ in range(3))
        v, vmax = inputs.real(1 / 64, 1, 500), inputs.real(1 / 64, 1, 500)
        optimizer = torch.optim.AdamW if decoupled else torch.optim.Adam

        def want(p=p, g=g, m=m, v=v, vmax=vmax, amsgrad=amsgrad, maximize=maximize, optimizer=optimizer):
            parameter = torch.nn.Parameter(p.clone())
            parameter.grad = g.clone()
            steps = optimizer([parameter], lr=0.01, weight_decay=0.1, amsgrad=amsgrad, maximize=maximize, foreach=False)
            state = {"step": torch.tensor(6.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
            if amsgrad:
                state["max_exp_avg_sq"] = vmax.clone()
            steps.state[parameter] = state
            steps.step()
            return (parameter.detach(), *(state[name] for name in list(state)[1:]))

        one = torch.ones(500)
        state = [p, g, m, v] + ([vmax] if amsgrad else [])
        yield Case(
            state + [torch.tensor(7), torch.tensor(0.01, dtype=torch.float64)],
            want,
            (one,) * (4 if amsgrad else 3),
            weight_decay=0.1,
            amsgrad=amsgrad,
            decoupled=decoupled,
            maximize=maximize,
        )


CASES = {
    "softmax_backward": softmax_backward,
    "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward,
    "batch_norm": batch_norm,
    "batch_norm_backward": batch_norm_backward,
    "group_norm": group_norm,
    "group_norm_backward": group_norm_backward,
    "amp_unscale": amp_unscale,
    "amp_update_scale": amp_update_scale,
    "sdpa": sdpa,
    "sdpa_backward": sdpa_backward,
    "adam_step": adam_step,
}
