"""Networks: inference and training give what they give on the CPU."""

import copy
import io
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "tensord"
OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.Adam, {"lr": 0.01}),
    (torch.optim.Adam, {"lr": 0.01, "fused": True}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    (torch.optim.AdamW, {"lr": 0.01, "foreach": False}),
    (torch.optim.RMSprop, {"lr": 0.01}),
    (torch.optim.Adagrad, {"lr": 0.01}),
]


def both(module, *inputs, **options):
    """Runs a module on the CPU and here, with the same parameters and inputs."""
    here = copy.deepcopy(module).to(DEVICE)
    moved = [x.to(DEVICE) for x in inputs]
    options_here = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    return module(*inputs, **options), here(*moved, **options_here), here


def assert_equal_gradients(module, here):
    for (name, p), q in zip(module.named_parameters(), here.parameters()):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")


def losses(make, optimizer, options, x, y, device, steps=6):
    torch.manual_seed(3)
    module = make().to(device)
    stepper = optimizer(module.parameters(), **options)
    x, y = x.to(device), y.to(device)
    result = []
    for _ in range(steps):
        stepper.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        stepper.step()
        result.append(loss.item())
    return result


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
def test_training_an_mlp_gives_the_losses_of_the_cpu(optimizer, options):
    def make():
        first = [nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32)]
        return nn.Sequential(*first, nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5))

    x, y = torch.randn(16, 20), torch.randint(0, 5, (16,))
    expected = losses(make, optimizer, options, x, y, "cpu")
    assert losses(make, optimizer, options, x, y, DEVICE) == pytest.approx(expected, abs=1e-5)


def test_fused_adam_leaves_a_clone_of_the_parameter_as_it_was():
    parameter = nn.Parameter(torch.randn(1000).to(DEVICE))
    parameter.grad = torch.randn(1000).to(DEVICE)
    before = parameter.detach().clone()
    values = before.cpu()
    torch.optim.Adam([parameter], fused=True).step()
    assert torch.equal(before.cpu(), values)
    assert not torch.equal(parameter.detach().cpu(), values)


def test_a_fused_step_that_fails_keeps_the_state():
    p, m, v = (torch.full((4,), float(i), device=DEVICE) for i in range(3))
    step = torch.ones((), device=DEVICE)
    with pytest.raises(RuntimeError, match="shape"):
        torch._fused_adam_(
            [p],
            [torch.ones(3, device=DEVICE)],
            [m],
            [v],
            [],
            [step],
            lr=0.1,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
    assert [t.tolist() for t in (p, m, v)] == [[0.0] * 4, [1.0] * 4, [2.0] * 4]


def test_a_transformer_layer_in_inference():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    part = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(part, 2).eval()
    x = torch.randn(2, 5, 16)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    with torch.no_grad():
        expected, got, _ = both(layer, x)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
        expected, got, _ = both(encoder, x, src_key_padding_mask=mask)
        torch.testing.assert_close(got.cpu()[0], expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got.cpu()[1, :3], expected[1, :3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_gradients_of_a_transformer_layer(norm_first):
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0, norm_first=norm_first)
    expected, got, here = both(layer, torch.randn(2, 5, 16))
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    expected.pow(2).sum().backward()
    got.pow(2).sum().backward()
    assert_equal_gradients(layer, here)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gradients_of_recurrent_networks(kind):
    network = kind(3, 4, num_layers=2)
    expected, got, here = both(network, torch.randn(5, 2, 3))
    torch.testing.assert_close(got[0].cpu(), expected[0], rtol=1e-4, atol=1e-5)
    expected[0].pow(2).sum().backward()
    got[0].pow(2).sum().backward()
    assert_equal_gradients(network, here)


def test_batch_norm_trains_and_updates_its_statistics():
    norm = nn.BatchNorm1d(4)
    x = torch.randn(8, 4)
    expected, got, here = both(norm, x)
    expected.pow(3).sum().backward()
    got.pow(3).sum().backward()
    assert_equal_gradients(norm, here)
    torch.testing.assert_close(got.cpu(), expected)


def test_training_a_cnn_gives_the_losses_of_the_cpu():
    def make():
        first = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(4, 8, 3, stride=2, groups=2, bias=False), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2)]
        return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    x, y = torch.randn(6, 1, 12, 12), torch.randint(0, 3, (6,))
    options = {"lr": 0.1, "momentum": 0.9}
    expected = losses(make, torch.optim.SGD, options, x, y, "cpu")
    assert losses(make, torch.optim.SGD, options, x, y, DEVICE) == pytest.approx(expected, abs=1e-5)


def test_pools_embeddings_and_losses():
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    here = x.detach().to(DEVICE).requires_grad_()
    pools = [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(4)]
    for pool in pools:
        for tensor in (x, here):
            pool(tensor).pow(2).sum().backward()
    torch.testing.assert_close(here.grad.cpu(), x.grad)
    bag = nn.Embedding(10, 4, padding_idx=0)
    expected, got, there = both(bag, torch.tensor([[1, 2, 0], [1, 9, 1]]))
    expected.pow(2).sum().backward()
    got.pow(2).sum().backward()
    assert_equal_gradients(bag, there)


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            return self.head(self.embedding(x))

    tied = Tied()
    optimizer = torch.optim.SGD(tied.parameters(), lr=1.0)
    tied.to(DEVICE)
    assert tied.head.weight is tied.embedding.weight and len(list(tied.parameters())) == 1
    tied(torch.tensor([1, 2], device=DEVICE)).sum().backward()
    before = tied.head.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, tied.embedding.weight)


def test_state_dicts_are_saved_and_loaded():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    for location, expected in ((None, "tensord"), ("cpu", "cpu")):
        file.seek(0)
        state = torch.load(file, map_location=location)
        assert state["0.weight"].device.type == expected
        other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
        other.load_state_dict(state)
        assert torch.equal(other[0].weight, module[0].weight)
    file = io.BytesIO()
    torch.save(torch.arange(3), file)
    file.seek(0)
    assert torch.load(file, map_location="tensord:1").device == torch.device("tensord:1")


def test_a_loop_with_a_data_loader():
    data = torch.utils.data.TensorDataset(torch.randn(20, 3), torch.arange(20))
    seen = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=6, num_workers=2, pin_memory=True):
        here = x.to(DEVICE, non_blocking=True)
        assert torch.equal(here.cpu(), x)
        seen += y.to(DEVICE).tolist()
    assert seen == list(range(20))


def test_autocast_computes_products_in_bfloat16():
    layer = nn.Linear(4, 3).to(DEVICE)
    x = torch.randn(2, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype == torch.bfloat16 and y.softmax(-1).dtype == torch.float32
    torch.testing.assert_close(y.float().cpu(), layer(x).cpu(), rtol=0.05, atol=0.05)


def classes(*shape, device):
    return torch.zeros(shape, dtype=torch.long, device=device)


REFUSED = {
    "3D or 4D": lambda d: F.pad(torch.ones(3, 0, 5, 5, device=d), (1, 1, 1, 1), mode="reflect"),
    "3D or 4D .batch": lambda d: F.pad(torch.ones(0, 5, 5, device=d), (1, 1, 1, 1), mode="replicate"),
    "Expected 3D or 4D": lambda d: F.unfold(torch.ones(3, 0, 3, 4, device=d), (2, 3)),
    "Expected 2D or 3D": lambda d: F.fold(torch.ones(0, 12, device=d), (4, 5), (2, 2)),
    "non-batch dimensions": lambda d: F.max_unpool2d(
        torch.ones(2, 0, 2, 2, device=d), classes(2, 0, 2, 2, device=d), 2
    ),
    "but got input with sizes": lambda d: F.grid_sample(
        torch.ones(2, 1, 4, 4, device=d), torch.ones(1, 4, 4, 2, device=d)
    ),
    "expected scalar type Float but found Double": lambda d: F.nll_loss(
        torch.ones(0, 3, device=d), classes(0, device=d), weight=torch.ones(3, dtype=torch.float64, device=d)
    ),
    r"Expected target size \[5\]" if torch.__version__ >= (2, 12) else "target size, expected 5": lambda d: (
        F.multi_margin_loss(torch.ones(5, 3, device=d), classes(3, device=d))
    ),
    "Expected non-empty vector or matrix": lambda d: F.multilabel_margin_loss(
        torch.ones(10, 0, device=d), classes(10, 0, device=d)
    ),
    r"boundaries tensor must be 1 dimension, but got dim\(2\)": lambda d: torch.bucketize(
        torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)
    ),
    "inconsistent target size": lambda d: F.multilabel_margin_loss(torch.ones(2, 3, device=d), classes(2, 4, device=d)),
    "not implemented for": lambda d: F.interpolate(torch.ones(1, 1, 4, 4, dtype=torch.int32, device=d), scale_factor=2),
}


@pytest.mark.parametrize("text", REFUSED)
def test_inputs_are_refused_in_the_words_of_the_cpu(text):
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match=text):
            REFUSED[text](device)


INTEGERS = (torch.int64, torch.uint8, torch.int8, torch.int16, torch.int32)
NO_INTEGERS = {
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, 3),
    "cdist": lambda x: torch.cdist(x[0], x[0]),
    "embedding_bag": lambda x: F.embedding_bag(torch.tensor([[0, 1]], device=x.device), x[0, 0]),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x, 2),
    "ctc_loss": lambda x: F.ctc_loss(x[0], *(torch.ones(4, dtype=torch.long, device=x.device) for _ in range(3))),
    "exponential": lambda x: x.exponential_(),
    "frac": torch.frac,
    "glu": F.glu,
    "grid_sample": lambda x: F.grid_sample(x, x[..., :2], align_corners=False),
    "grid_sample of volumes": lambda x: F.grid_sample(x[None], x[None][..., :3], align_corners=False),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "interpolate": lambda x: F.interpolate(x, (3, 5), mode="area"),
    "log_normal": lambda x: x.log_normal_(),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x[0, 0], torch.zeros(4, dtype=torch.long, device=x.device)),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x[0, 0], x[0, 0].long()),
    "nll_loss": lambda x: F.nll_loss(x[0, 0], torch.zeros(4, dtype=torch.long, device=x.device)),
    "nll_loss2d": lambda x: F.nll_loss(x, torch.zeros(1, 4, 4, dtype=torch.long, device=x.device)),
    "normal": lambda x: x.normal_(),
    "poisson": torch.poisson,
    "bernoulli": torch.bernoulli,
    "prelu": lambda x: F.prelu(x, x[0, 0, 0, :1]),
    "round to digits": lambda x: torch.round(x, decimals=1),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x),
}
NO_BOOL = {
    "arange": lambda x: torch.arange(2, dtype=x.dtype, device=x.device),
    "linspace": lambda x: torch.linspace(0, 1, 2, dtype=x.dtype, device=x.device),
    "logspace": lambda x: torch.logspace(0, 1, 2, dtype=x.dtype, device=x.device),
    "randperm": lambda x: torch.randperm(2, dtype=x.dtype, device=x.device),
    "argmax": lambda x: torch.argmax(x, out=torch.zeros((), dtype=torch.long, device=x.device)),
    "ceil": torch.ceil,
    "clamp": lambda x: x.clamp(False, True),
    "argmin": lambda x: torch.argmin(x, out=torch.zeros((), dtype=torch.long, device=x.device)),
    "floor": torch.floor,
    "geometric": lambda x: x.geometric_(0.5),
    "histc": torch.histc,
    "kthvalue": lambda x: x.kthvalue(1),
    "max_unpool2d": lambda x: F.max_unpool2d(x, x.long(), 2),
    "max_unpool3d": lambda x: F.max_unpool3d(x[None], x[None].long(), 2),
    "median": torch.median,
    "nanmedian": lambda x: x.nanmedian(0),
    **{
        f"{mode} pad of {axes} axes": lambda x, m=mode, a=axes: F.pad(x if a > 1 else x[0], (1, 1) * a, mode=m)
        for mode in ("reflect", "replicate")
        for axes in (1, 2, 3)
    },
    "round": torch.round,
    "trace": lambda x: x[0, 0].trace(),
    "trunc": torch.trunc,
}
DTYPES_REFUSED = [
    *((name, function, (*INTEGERS, torch.bool)) for name, function in NO_INTEGERS.items()),
    *((name, function, (torch.bool,)) for name, function in NO_BOOL.items()),
    ("unfold", lambda x: F.unfold(x, 2), INTEGERS),
]
REFUSAL = "not implemented for '|does not support bool|only supports floating|to have one of the|continuous"


@pytest.mark.parametrize("name, function, dtypes", DTYPES_REFUSED, ids=[each[0] for each in DTYPES_REFUSED])
def test_dtypes_that_the_cpu_refuses_are_refused(name, function, dtypes):
    for dtype in dtypes:
        with pytest.raises(RuntimeError, match=REFUSAL):
            function(torch.ones(1, 2, 4, 4, dtype=dtype))
        with pytest.raises(NotImplementedError, match="not implemented for '"):
            function(torch.ones(1, 2, 4, 4, dtype=dtype, device=DEVICE))


OTHERS = (torch.float64, torch.float16)
OF_TWO_DTYPES = {
    "conv1d": lambda x, y: F.conv1d(x[0], y[0]),
    "conv2d": F.conv2d,
    "conv3d": lambda x, y: F.conv3d(x[None], y[None]),
    "conv2d with a bias": lambda x, y: F.conv2d(x, x, y[0, 0, 0, :1]),
    "conv_transpose2d": F.conv_transpose2d,
    "addbmm": lambda x, y: torch.addbmm(y[0, 0], x[0], x[0]),
    "addbmm in place": lambda x, y: y[0, 0].addbmm_(x[0], x[0]),
    "binary_cross_entropy": F.binary_cross_entropy,
    "cdist": torch.cdist,
    "cross": lambda x, y: torch.linalg.cross(x[..., :3], y[..., :3]),
    "grid_sample": lambda x, y: F.grid_sample(x, y[..., :2], align_corners=False),
    "grid_sample of volumes": lambda x, y: F.grid_sample(x[None], y[None][..., :3], align_corners=False),
    "group_norm": lambda x, y: F.group_norm(x.expand(1, 2, 4, 4), 1, y[0, 0, 0, :2]),
    "histogram": lambda x, y: torch.histogram(x, 3, weight=y),
}


@pytest.mark.parametrize("name", OF_TWO_DTYPES)
def test_operands_of_two_dtypes_are_refused_as_on_the_cpu(name):
    for dtype, device in itertools.product(OTHERS, ("cpu", DEVICE)):
        x = torch.rand(1, 1, 4, 4, device=device)
        with pytest.raises(RuntimeError, match="dtype|scalar type|should be the same"):
            OF_TWO_DTYPES[name](x, x.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_group_norm_with_parameters_of_float32_keeps_the_dtype(dtype):
    x, weight, bias = torch.randn(2, 4, 3).to(dtype), torch.rand(4) + 0.5, torch.randn(4)
    got = F.group_norm(x.to(DEVICE), 2, weight.to(DEVICE), bias.to(DEVICE))
    torch.testing.assert_close(got.cpu(), F.group_norm(x, 2, weight, bias), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("options", [{"output_padding": 1}, {"output_padding": 2, "stride": 2, "dilation": 2}])
def test_an_output_padding_that_reaches_stride_and_dilation_is_refused(options):
    for device in ("cpu", DEVICE):
        x = torch.ones(1, 1, 4, 4, device=device)
        with pytest.raises(RuntimeError, match="output padding must be smaller than either stride or dilation"):
            F.conv_transpose2d(x, x, **options)
        with pytest.raises(RuntimeError, match="expected stride to be"):
            torch.convolution(x, x, None, [], [0, 0], [1, 1], True, [0, 0], 1)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_embedding_bag_refuses_indices_that_are_not_int_or_long(device):
    places, offsets, rows = (torch.tensor(x, device=device) for x in ([0, 1], [0], [[1.0], [2.0]]))
    words = "to have one of the following scalar types: Long, Int"
    with pytest.raises(RuntimeError, match=words):
        F.embedding_bag(places.float(), rows, offsets.float())
    with pytest.raises(RuntimeError, match=words):
        F.embedding_bag(places[None].byte(), rows)  # PyTorch gives the offsets the dtype of the places
    bags = F.embedding_bag(places.short(), rows, offsets)
    assert bags.tolist() == [[1.5]]


def test_a_loss_of_one_row_without_a_batch_has_no_axes():
    losses = [F.nll_loss(torch.ones(5, device=d), classes(1, device=d), reduction="none") for d in ("cpu", DEVICE)]
    assert losses[1].shape == losses[0].shape == () and losses[1].item() == losses[0].item()


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float32, torch.float64)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"])
def test_loss_of_two_dtypes_has_the_dtype_of_the_cpu(name, reduction, dtypes):
    x, target = (torch.rand(4, 8).to(dtype) for dtype in dtypes)
    loss = getattr(F, name)(x, target, reduction=reduction)
    got = getattr(F, name)(x.to(DEVICE), target.to(DEVICE), reduction=reduction)
    torch.testing.assert_close(got.cpu(), loss, rtol=1e-3, atol=1e-3)


def test_classes_outside_the_list_do_not_spread_infinities():
    x = torch.tensor([[1.0, float("inf"), 2.0]])
    target = torch.tensor([[1, -1, 0]])
    losses = [F.multilabel_margin_loss(x.to(d), target.to(d)) for d in ("cpu", DEVICE)]
    torch.testing.assert_close(losses[1].cpu(), losses[0])
