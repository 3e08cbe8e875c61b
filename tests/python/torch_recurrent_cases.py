"""The cases of compare_with_torch.py for recurrent layers, their cells, and the gradients of both."""

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


def gates_backward(cases, biases):
    """The cases of a cell's gradient without the gradients of biases."""

    def without_biases(inputs):
        for case in cases(inputs):
            yield Case(case.inputs, lambda case=case: case.want()[:-biases], case.scale[:-biases])

    return without_biases


LAYERS = {"lstm": (4, 2), "gru": (3, 1), "rnn": (1, 1)}  # the numbers of gates and of states
SIZES = ((1, 1, 4, 8), (5, 3, 4, 7), (3, 32, 16, 32))  # steps, rows, features, units


def steps_of(kind, x, states, weight_ih, weight_hh, *biases):
    """Runs a layer step by step. Returns the output, the last states, and what is kept for the gradient."""
    bias_ih, bias_hh = biases or (None, None)
    linear, state = torch.nn.functional.linear, list(states)
    kept: list[tuple[torch.Tensor, ...]] = []
    for step in x:
        of_x, of_h = linear(step, weight_ih, bias_ih), linear(state[0], weight_hh, bias_hh)
        if kind == "lstm":
            h, c, gates = lstm(of_x, of_h, state[1])
            state = [h, c]
            kept.append((h, c, gates))
        elif kind == "gru":
            h, gates = gru(of_x, of_h, state[0])
            state = [h]
            kept.append((h, gates))
        else:
            state = [(of_x + of_h).tanh()]
            kept.append((state[0],))
    output, *others = (torch.stack(each) for each in zip(*kept))
    return output, *state, *others


def draw_layer(kind, inputs, sizes, biased):
    gates, states = LAYERS[kind]
    t, n, i, h = sizes
    shapes = [(t, n, i), *[(n, h)] * states, (gates * h, i), (gates * h, h), *[(gates * h,)] * (2 * biased)]
    return [inputs.real(-1, 1, *shape) for shape in shapes]


def run_wide(kind, operands):
    states = LAYERS[kind][1]
    wide = [each.to(statistics_dtype(each.dtype)) for each in operands]
    return steps_of(kind, wide[0], wide[1 : 1 + states], *wide[1 + states :])


def sizes_of(sizes, results):
    """S: a bound of the sums in a step, times the number of steps."""
    t, n, i, h = sizes
    return tuple(torch.full(each.shape, float(t * (1 + i + h)), dtype=torch.double) for each in results)


def layer(kind):
    def cases(inputs):
        for sizes, biased in ((sizes, biased) for sizes in SIZES for biased in (False, True)):
            operands = draw_layer(kind, inputs, sizes, biased)

            def want(operands=operands):
                return tuple(each.to(operands[0].dtype) for each in run_wide(kind, operands))

            yield Case(operands, want, sizes_of(sizes, want()))

    return cases


def layer_backward(kind):
    def cases(inputs):
        gates, states = LAYERS[kind]
        for sizes in SIZES:
            operands = draw_layer(kind, inputs, sizes, biased=False)
            dtype = operands[0].dtype
            forward = tuple(each.to(dtype) for each in run_wide(kind, operands))
            gradients = [inputs.real(-1, 1, *each.shape) for each in forward[: 1 + states]]
            biases = [torch.zeros(gates * sizes[3], dtype=dtype) for _ in range(2)]

            def want(operands=operands, gradients=gradients, biases=biases, dtype=dtype):
                wide = [each.to(statistics_dtype(dtype)).requires_grad_() for each in (*operands, *biases)]
                made = steps_of(kind, wide[0], wide[1 : 1 + states], *wide[1 + states :])[: 1 + states]
                of_made = [each.to(made[0].dtype) for each in gradients]
                return tuple(each.to(dtype) for each in torch.autograd.grad(made, wide, of_made))

            kept = [forward[0], *forward[1 + states :]]
            scale = tuple(each * sizes[1] * sizes[3] for each in sizes_of(sizes, want()))
            yield Case([*gradients, *operands, *kept], want, scale)

    return cases


CASES = {
    "lstm_cell": cell(lstm, 4),
    "lstm_cell_backward": lstm_cell_backward,
    "gru_cell": cell(gru, 3),
    "gru_cell_backward": gru_cell_backward,
    "lstm_gates_backward": gates_backward(lstm_cell_backward, 1),
    "gru_gates_backward": gates_backward(gru_cell_backward, 2),
    "lstm_layer": layer("lstm"),
    "lstm_layer_backward": layer_backward("lstm"),
    "gru_layer": layer("gru"),
    "gru_layer_backward": layer_backward("gru"),
    "rnn_layer": layer("rnn"),
    "rnn_layer_backward": layer_backward("rnn"),
}
