"""A case of compare_with_torch.py, and what the cases of several files use."""

import torch


class Case:
    """An op's inputs and attributes, PyTorch's results, and the scales of their error bounds.

    `want` is a function, so that an op that PyTorch lacks for a dtype is one case without a result.
    `scale` is the page's S for each element, such as the sum of the magnitudes of the summands. If
    it is None, differences are counted in ulps. If the op has several outputs, `want` returns a
    tuple, and `scale` is a tuple.
    """

    def __init__(self, inputs, want, scale=None, /, **attrs):
        self.inputs, self.want, self.scale, self.attrs = inputs, want, scale, attrs


def statistics_dtype(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def gradients(result, gradient, operands):
    """Returns the gradients of the operands for this gradient of the result."""
    return torch.autograd.grad(result, operands, gradient)


def leaves(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


class Configurations:
    """Random shapes and options. The sequence depends only on the seed."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def number(self, low, high):
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def numbers(self, count, low, high):
        return [self.number(low, high) for _ in range(count)]

    def flag(self):
        return self.number(0, 1) == 1
