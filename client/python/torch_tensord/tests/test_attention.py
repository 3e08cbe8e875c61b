"""scaled_dot_product_attention is one op of the server, and gives PyTorch's results and gradients."""

import itertools

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "tensord"
# batch, heads, heads of the keys, queries, keys, widths of keys and values
SHAPES = [
    (2, 4, 4, 7, 7, 8, 8),
    (1, 4, 2, 5, 9, 8, 6),
    (2, 1, 1, 1, 16, 4, 4),
    (2, 3, 3, 0, 4, 4, 4),
    (2, 2, 2, 4, 0, 4, 4),
]
MASKS = ["none", "bool", "float", "expanded", "row without keys", "causal"]


def make_mask(kind, batch, heads, queries, keys, dtype):
    if kind == "bool":
        return torch.rand(queries, keys) > 0.3
    if kind == "float":
        return torch.randn(batch, 1, queries, keys).to(dtype)
    if kind == "expanded":
        return (torch.rand(batch, 1, 1, keys) > 0.3).expand(batch, heads, queries, keys)
    if kind == "row without keys":
        mask = torch.rand(queries, keys) > 0.3
        mask[:1] = False
        return mask
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MASKS)
def test_results_and_gradients_agree_with_the_cpu(kind, dtype):
    torch.manual_seed(0)
    for (batch, heads, key_heads, queries, keys, width, width_v), scale in itertools.product(SHAPES, [None, 0.3, 0.0]):
        q = torch.randn(batch, queries, heads, width).to(dtype).transpose(1, 2)
        k = torch.randn(batch, keys, key_heads, width).to(dtype).transpose(1, 2)
        v = torch.randn(batch, keys, key_heads, width_v).to(dtype).transpose(1, 2)
        mask = make_mask(kind, batch, heads, queries, keys, dtype)
        options = {"scale": scale, "enable_gqa": heads != key_heads, "is_causal": kind == "causal"}

        def compute(device):
            inputs = [x.to(device).detach().requires_grad_() for x in (q, k, v)]
            here = None if mask is None else mask.to(device)
            if kind == "float":
                inputs.append(here.detach().requires_grad_())
                here = inputs[-1]
            y = F.scaled_dot_product_attention(*inputs[:3], attn_mask=here, **options)
            gradients = torch.autograd.grad(y.float().sin().sum(), inputs, allow_unused=True)
            return y.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients))

        with sdpa_kernel(SDPBackend.MATH):
            expected = compute("cpu")
        for mine, other in zip(compute(DEVICE), expected):
            tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(mine.cpu(), other, rtol=tolerance, atol=tolerance)


def test_the_server_keeps_no_scores():
    names = set()

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            names.add(function.overloadpacket.__name__)
            return function(*arguments, **(options or {}))

    q = torch.randn(1, 2, 64, 16, device=DEVICE, requires_grad=True)
    with Names():
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert "_scaled_dot_product_fused_attention_overrideable" in names
    assert not names & {"bmm", "_softmax", "_safe_softmax"}


def test_dropout_repeats_by_the_seed():
    q, v = torch.randn(2, 4, 64, 16, device=DEVICE, requires_grad=True), torch.ones(2, 4, 64, 16, device=DEVICE)

    def compute():
        torch.manual_seed(1)
        y = F.scaled_dot_product_attention(q, q, v, dropout_p=0.3)
        return y.detach().cpu(), torch.autograd.grad(y.square().sum(), q)[0].cpu()

    first, second = compute(), compute()
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    # Each element is the mean of the kept weights over 0.7.
    assert abs(first[0].mean().item() - 1) < 0.05 and first[0].std().item() > 0.01


def test_the_composition_has_second_derivatives():
    x = torch.randn(1, 2, 3, 4, device=DEVICE, dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(lambda x: F.scaled_dot_product_attention(x, x, x), (x,))


def test_transforms_of_torch_func():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 3, 4)
    many = torch.stack([q, k])

    def compute(device):
        attend = lambda x: F.scaled_dot_product_attention(x, k.to(device), v.to(device))
        tangent = torch.func.jvp(attend, (q.to(device),), (k.to(device),))[1]
        return tangent.cpu(), torch.func.vmap(attend)(many.to(device)).cpu()

    with sdpa_kernel(SDPBackend.MATH):  # PyTorch's own op has no derivative in forward mode
        expected = compute("cpu")
    for mine, other in zip(compute(DEVICE), expected):
        torch.testing.assert_close(mine, other)
