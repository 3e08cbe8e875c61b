"""Ops whose shapes don't depend on values, and steps of optimizers, don't wait for the server."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "tensord"


@pytest.fixture
def waits_are_errors():
    torch.tensord.set_sync_debug_mode("error")
    yield
    torch.tensord.set_sync_debug_mode("default")


def leaf(*sizes):
    return torch.randn(*sizes, device=DEVICE, requires_grad=True)


def indices(*numbers):
    return torch.tensor(numbers).to(DEVICE)


OPS = {
    "bilinear": lambda: F.interpolate(leaf(2, 3, 7, 9), size=(5, 11), mode="bilinear"),
    "bicubic": lambda: F.interpolate(leaf(2, 3, 7, 9), size=(4, 4), mode="bicubic", antialias=True),
    "nearest": lambda: F.interpolate(leaf(2, 3, 7), scale_factor=2),
    "reflection": lambda: F.pad(leaf(2, 3, 7), (1, 2), mode="reflect"),
    "replication": lambda: F.pad(leaf(2, 3, 7), (1, 2), mode="replicate"),
    "adaptive_average": lambda: F.adaptive_avg_pool2d(leaf(2, 3, 7, 9), (3, 4)),
    "adaptive_maximum": lambda: F.adaptive_max_pool2d(leaf(2, 3, 7, 9), (3, 4)),
    "grid_sample": lambda: F.grid_sample(leaf(2, 3, 7, 9), leaf(2, 4, 5, 2).tanh(), align_corners=False),
    "unfold": lambda: F.unfold(leaf(2, 3, 7, 9), 3),
    "fold": lambda: F.fold(leaf(2, 27, 35), (7, 9), 3),
    "bags": lambda: F.embedding_bag(indices(1, 2, 3, 4), leaf(9, 4), indices(0, 2)),
    "bags_of_maxima": lambda: F.embedding_bag(indices(1, 2, 3, 4), leaf(9, 4), indices(0, 2), mode="max"),
    "ctc": lambda: F.ctc_loss(
        leaf(6, 2, 5).log_softmax(-1), indices([1, 2], [3, 4]), torch.tensor([6, 5]), torch.tensor([2, 2])
    ),
    "median": lambda: leaf(3, 4).median(1).values,
    "mode": lambda: leaf(3, 4).mode(1).values,
    "cummax": lambda: leaf(3, 4).cummax(1).values,
    "logcumsumexp": lambda: leaf(3, 4).logcumsumexp(1),
    "cdist": lambda: torch.cdist(leaf(5, 3), leaf(4, 3)),
    "lgamma": lambda: (leaf(3).abs() + 1).lgamma(),
    "histc": lambda: torch.randn(9, device=DEVICE).histc(5, -1, 1),
    "normal": lambda: torch.normal(torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)),
    "scatter_reduce": lambda: leaf(5, 3).scatter_reduce(0, indices([0, 0, 1], [2, 0, 1]), leaf(2, 3), "mean"),
    "max_norm": lambda: F.embedding(indices(1, 2), torch.randn(5, 3, device=DEVICE), max_norm=0.5),
    "cross_entropy": lambda: F.cross_entropy(leaf(4, 3), indices(0, 1, 2, 0)),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_and_its_gradient_do_not_wait(waits_are_errors, name):
    y = OPS[name]()
    if y.requires_grad:
        y.sum().backward()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        lambda p: torch.optim.Adam(p, foreach=True),
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.Adagrad(p, lr_decay=0.1, fused=True),
        lambda p: torch.optim.RMSprop(p),
    ],
)
def test_a_step_of_an_optimizer_does_not_wait(waits_are_errors, make):
    layer = nn.Linear(4, 4).to(DEVICE)
    optimizer = make(layer.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.ones(2, 4, device=DEVICE)).sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_step_with_a_gradient_scaler_does_not_wait(waits_are_errors, kind):
    if torch.__version__ < (2, 12) and kind is torch.optim.Adagrad:
        pytest.skip(f"GradScaler of PyTorch {torch.__version__} waits for Adagrad")
    layer = nn.Linear(4, 4).to(DEVICE)
    optimizer, scaler = kind(layer.parameters(), fused=True), torch.amp.GradScaler(DEVICE)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(layer(torch.ones(2, 4, device=DEVICE)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
