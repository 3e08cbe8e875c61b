"""The cases of compare_with_torch.py for cells of recurrent layers, and their gradients."""

import torch
from torch_case import Case, statistics_dtype

SHAPES = ((1, 8), (7, 5), (32, 64))


def lstm(x, own, c, *biases):
    i, f, g, o = (x + own + sum(biases)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * c + i * g
    return o * new.tanh(), new, torch.cat((i, f, g, o), 1)


def gru(x, own, h, *biases):
    if biases:
        x, own = x + biases[0], own + biases[1]
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), own.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (h - n), torch.cat((r, z, n, h, hn), 1)


def scale_of(results, operands):
    """S: 1 plus the magnitudes of all operands of a row, for each element of the row."""
    rows = 1 + sum(each.double().abs().sum(-1, keepdim=True) for each in operands)
    return tuple(rows.expand(each.shape) for each in results)


def cell(function, parts):
    def cases(inputs):
        for (n, h), biased in ((shape, biased) for shape in SHAPES for biased in (False, True)):
            operands = [inputs.real(-4, 4, n, parts * h), inputs.real(-4, 4, n, parts * h), inputs.real(-4, 4, n, h)]
            operands += [inputs.real(-1, 1, parts * h) for _ in range(2 * biased)]

            def want(operands=operands):
                wide = (each.to(statistics_dtype(each.dtype)) for each in operands)
                return tuple(each.to(operands[0].dtype) for each in function(*wide))

            yield Case(operands, want, scale_of(want(), operands))

    return cases


def lstm_cell_backward(inputs):
    for n, h in SHAPES:
        x, own, c = (inputs.real(-4, 4, n, width) for width in (4 * h, 4 * h, h))
        gradient, of_c = (inputs.real(-2, 2, n, h) for _ in range(2))
        wide = statistics_dtype(x.dtype)
        made = lstm(x.to(wide), own.to(wide), c.to(wide))
        new, gates = (each.to(x.dtype) for each in made[1:])

        def want(gradient=gradient, of_c=of_c, c=c, new=new, gates=gates, wide=wide, x=x):
            i, f, g, o = gates.to(wide).chunk(4, 1)
            tanh, gh = new.to(wide).tanh(), gradient.to(wide)
            gc = of_c.to(wide) + gh * o * (1 - tanh * tanh)
            slopes = gc * g * i * (1 - i), gc * c.to(wide) * f * (1 - f), gc * i * (1 - g * g), gh * tanh * o * (1 - o)
            of_gates = torch.cat(slopes, 1)
            return tuple(each.to(x.dtype) for each in (of_gates, gc * f, of_gates.sum(0)))

        results = want()
        of_gates, of_cell, _ = scale_of(results[:2] + results[:1], (gradient, of_c, c))
        yield Case([gradient, of_c, c, new, gates], want, (of_gates, of_cell, of_gates.sum(0)))


def gru_cell_backward(inputs):
    for n, h in SHAPES:
        operands = [inputs.real(-4, 4, n, width) for width in (3 * h, 3 * h, h)]
        gradient, wide = inputs.real(-2, 2, n, h), statistics_dtype(operands[0].dtype)
        gates = gru(*(each.to(wide) for each in operands))[1].to(gradient.dtype)

        def want(gradient=gradient, gates=gates, wide=wide):
            r, z, n, h, hn = gates.to(wide).chunk(5, 1)
            g = gradient.to(wide)
            gz, gn = g * (h - n) * z * (1 - z), g * (1 - z) * (1 - n * n)
            gr = gn * hn * r * (1 - r)
            of_x, of_own = torch.cat((gr, gz, gn), 1), torch.cat((gr, gz, gn * r), 1)
            return tuple(each.to(gates.dtype) for each in (of_x, of_own, g * z, of_x.sum(0), of_own.sum(0)))

        results = want()
        of_x, of_own, of_h = scale_of(results[:3], (gradient, gates))
        yield Case([gradient, gates], want, (of_x, of_own, of_h, of_x.sum(0), of_own.sum(0)))


CASES = {
    "lstm_cell": cell(lstm, 4),
    "lstm_cell_backward": lstm_cell_backward,
    "gru_cell": cell(gru, 3),
    "gru_cell_backward": gru_cell_backward,
}
