"""A case of compare_with_torch.py."""


class Case:
    """An op's inputs and attributes, PyTorch's results, and the scales of their error bounds.

    `want` is a function, so that an op that PyTorch lacks for a dtype is one case without a result.
    `scale` is the page's S for each element, such as the sum of the magnitudes of the summands. If
    it is None, differences are counted in ulps. If the op has several outputs, `want` returns a
    tuple, and `scale` is a tuple.
    """

    def __init__(self, inputs, want, scale=None, **attrs):
        self.inputs, self.want, self.scale, self.attrs = inputs, want, scale, attrs
