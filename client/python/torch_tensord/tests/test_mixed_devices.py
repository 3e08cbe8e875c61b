"""Tensors of several devices as inputs of one op are refused, with the copy that helps."""

import pytest
import torch
from torch.nn import functional as F

DEVICE = "tensord"
IMAGE, KERNEL, VOLUME = (2, 3, 6, 6), (4, 3, 3, 3), (2, 3, 4, 4, 4)

# The function, and the shapes of its floating inputs.
OPS = {
    "add": (torch.add, (2, 3), (2, 3)),
    "add_out": (lambda a, b: torch.add(a, b, out=torch.empty(2, 3, device=DEVICE)), (2, 3), (2, 3)),
    "maximum": (torch.maximum, (2, 3), (2, 3)),
    "lt": (torch.lt, (2, 3), (2, 3)),
    "pow": (torch.pow, (2, 3), (2, 3)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.5), (2, 3), (2, 3)),
    "addcmul": (torch.addcmul, (2, 3), (2, 3), (2, 3)),
    "clamp": (lambda a, b: torch.clamp(a, min=b), (2, 3), (2, 3)),
    "mm": (torch.mm, (2, 3), (3, 2)),
    "bmm": (torch.bmm, (2, 2, 3), (2, 3, 2)),
    "addmm": (torch.addmm, (2, 2), (2, 3), (3, 2)),
    "baddbmm": (torch.baddbmm, (2, 2, 2), (2, 2, 3), (2, 3, 2)),
    "mv": (torch.mv, (2, 3), (3,)),
    "dot": (torch.dot, (3,), (3,)),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), (2, 3), (3, 2)),
    "linear": (F.linear, (2, 3), (4, 3), (4,)),
    "bilinear": (F.bilinear, (2, 3), (2, 3), (4, 3, 3)),
    "conv1d": (F.conv1d, (2, 3, 6), (4, 3, 3), (4,)),
    "conv2d": (F.conv2d, IMAGE, KERNEL, (4,)),
    "conv2d_no_bias": (F.conv2d, IMAGE, KERNEL),
    "conv2d_dilated": (lambda x, w: F.conv2d(x, w, dilation=2), IMAGE, KERNEL),
    "conv2d_groups": (lambda x, w: F.conv2d(x, w, groups=3), IMAGE, (3, 1, 3, 3)),
    "conv2d_same": (lambda x, w: F.conv2d(x, w, padding="same"), IMAGE, KERNEL),
    "conv3d": (F.conv3d, VOLUME, (4, 3, 3, 3, 3), (4,)),
    "conv_transpose2d": (F.conv_transpose2d, IMAGE, (3, 4, 3, 3), (4,)),
    "batch_norm": (lambda x, m, v, w, b: F.batch_norm(x, m, v.abs(), w, b), IMAGE, (3,), (3,), (3,), (3,)),
    "batch_norm_training": (lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True), IMAGE, (3,), (3,), (3,), (3,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), (2, 3), (3,), (3,)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), IMAGE, (3,), (3,)),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGE, (3,), (3,)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w), (2, 3), (3,)),
    "prelu": (F.prelu, (2, 3), (3,)),
    "sdpa": (F.scaled_dot_product_attention, (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
    "mse_loss": (F.mse_loss, (2, 3), (2, 3)),
    "smooth_l1_loss": (F.smooth_l1_loss, (2, 3), (2, 3)),
    "binary_cross_entropy": (lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()), (2, 3), (2, 3)),
    "bce_with_logits": (F.binary_cross_entropy_with_logits, (2, 3), (2, 3)),
    "kl_div": (F.kl_div, (2, 3), (2, 3)),
    "cat": (lambda a, b: torch.cat([a, b]), (2, 3), (2, 3)),
    "stack": (lambda a, b: torch.stack([a, b]), (2, 3), (2, 3)),
    "where": (lambda a, b: torch.where(a > 0, b, b), (2, 3), (2, 3)),
    "where_values": (lambda a, b: torch.where(a > 0, a, b), (2, 3), (2, 3)),
    "masked_fill": (lambda a, b: a.masked_fill(b > 0, 1.0), (2, 3), (2, 3)),
    "cross": (torch.cross, (2, 3), (2, 3)),
    "outer": (torch.outer, (3,), (3,)),
    "cosine_similarity": (F.cosine_similarity, (2, 3), (2, 3)),
    "unimplemented": (torch.igamma, (2, 3), (2, 3)),
}
# Ops that take integers, and the shapes of their other inputs.
INDEXED = {
    "embedding": (lambda i, w: F.embedding(i, w), (4, 3)),
    "gather": (lambda i, x: x.gather(0, i[None]), (4, 3)),
    "scatter": (lambda i, x: torch.zeros_like(x).scatter(0, i[None], x), (4, 3)),
    "index_select": (lambda i, x: x.index_select(0, i), (4, 3)),
    "index_add": (lambda i, x: torch.zeros_like(x).index_add(0, i, x[:3]), (4, 3)),
    "take": (lambda i, x: x.take(i), (4, 3)),
    "cross_entropy": (lambda i, x: F.cross_entropy(x[:3], i), (4, 3)),
    "nll_loss": (lambda i, x: F.nll_loss(x[:3], i), (4, 3)),
}
# The device's message, and those of the checks that PyTorch itself makes for all devices.
ERRORS = (
    "Expected all tensors to be on the same device, but found at least two devices, |"
    "Expected query, key, and value to have the same device type|expected to be in the same device"
)
MESSAGE = "Expected all tensors to be on the same device, but found at least two devices, {0} and {1}!.*x.to\\('{0}'\\)"


@pytest.mark.parametrize("other", ["cpu", "tensord:1"])
@pytest.mark.parametrize("f, shapes", [(f, shapes) for f, *shapes in OPS.values()], ids=list(OPS))
def test_one_input_of_another_device_is_refused(f, shapes, other):
    for moved in range(len(shapes)):
        inputs = [torch.rand(shape).to(other if i == moved else DEVICE) for i, shape in enumerate(shapes)]
        with pytest.raises(RuntimeError, match=ERRORS):
            f(*inputs).cpu()


@pytest.mark.parametrize("other", ["cpu", "tensord:1"])
@pytest.mark.parametrize("f, shape", INDEXED.values(), ids=list(INDEXED))
def test_indices_of_another_device_are_refused(f, shape, other):
    index, x = torch.tensor([1, 0, 2]), torch.rand(shape)
    for a, b in ((index.to(other), x.to(DEVICE)), (index.to(DEVICE), x.to(other))):
        with pytest.raises(RuntimeError, match=ERRORS):
            f(a, b).cpu()


def test_the_message_names_the_copy_that_helps():
    layer = torch.nn.Conv2d(3, 4, 3).to(DEVICE)
    with pytest.raises(RuntimeError, match=MESSAGE.format("tensord:0", "cpu")):
        layer(torch.rand(IMAGE))
    with pytest.raises(RuntimeError, match=MESSAGE.format("tensord:0", "cpu")):
        torch.nn.Conv2d(3, 4, 3)(torch.rand(IMAGE, device=DEVICE))
    with pytest.raises(RuntimeError, match=MESSAGE.format("tensord:1", "tensord:0")):
        layer(torch.rand(IMAGE, device="tensord:1"))


def test_modules_refuse_an_input_of_the_cpu():
    for module, shape in (
        (torch.nn.LSTM(3, 4), (2, 1, 3)),
        (torch.nn.GRU(3, 4), (2, 1, 3)),
        (torch.nn.TransformerEncoderLayer(4, 2), (2, 1, 4)),
        (torch.nn.MultiheadAttention(4, 2), (2, 1, 4)),
        (torch.nn.BatchNorm1d(3), (2, 3)),
    ):
        x = torch.rand(shape)
        with pytest.raises(RuntimeError, match="same device|at the same device|on the same device"):
            module.to(DEVICE)(*([x] * 3 if isinstance(module, torch.nn.MultiheadAttention) else [x]))


def test_tensors_without_dimensions_of_the_cpu_are_operands():
    x, number = torch.rand(2, 3, device=DEVICE), torch.tensor(2.0)
    for f in (torch.add, torch.mul, torch.maximum, torch.pow, torch.atan2, torch.lt, torch.fmod):
        torch.testing.assert_close(f(x, number).cpu(), f(x.cpu(), number))
        torch.testing.assert_close(f(number, x).cpu(), f(number, x.cpu()))
    assert torch.where(x > 2, x, number).unique().tolist() == [2]
    assert x.masked_fill(x < 2, number).unique().tolist() == [2]
    assert torch.lerp(x, x + 2, number).shape == x.shape
    x[0] = torch.tensor(5.0)
    x[1] = torch.tensor([1.0, 2.0, 3.0])[1]
    assert x.tolist() == [[5] * 3, [2] * 3]
    assert x[torch.tensor([1])].tolist() == [[2] * 3]  # indices of the CPU are allowed, as on CUDA
