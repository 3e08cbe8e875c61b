"""The fused optimizers agree with those of the CPU. Optimizers also agree with a GradScaler."""

import itertools

import pytest
import torch
from torch import nn

DEVICE = "tensord"
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SCALE = 4.0

OPTIMIZERS: dict[str, tuple[type, list[dict]]] = {
    "Adam": (torch.optim.Adam, [{}, {"amsgrad": True}, {"weight_decay": 0.1, "maximize": True}]),
    "AdamW": (torch.optim.AdamW, [{}, {"amsgrad": True, "maximize": True}, {"weight_decay": 0.1, "betas": (0.8, 0.9)}]),
    "SGD": (
        torch.optim.SGD,
        [
            {"lr": 0.1},
            {"lr": 0.1, "weight_decay": 0.1, "maximize": True},
            {"lr": 0.1, "momentum": 0.9, "dampening": 0.3},
            {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        ],
    ),
    "Adagrad": (
        torch.optim.Adagrad,
        [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"maximize": True, "initial_accumulator_value": 0.5}],
    ),
}
CASES = [
    pytest.param(kind, options, id=f"{name}-{'-'.join(options) or 'default'}")
    for name, (kind, all_options) in OPTIMIZERS.items()
    for options in all_options
]


def parameters(device, dtypes):
    generator = torch.Generator().manual_seed(3)
    made = []
    for dtype, shape in itertools.product(dtypes, [(3, 4), (), (0,), (2, 0), (5,)]):
        made.append(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device))
    made.append(torch.randn(4, 3, generator=generator).to(dtypes[0]).to(device).t())
    made += torch.randn(12, generator=generator).to(dtypes[0]).to(device).split(5)  # parts of one storage
    return [nn.Parameter(each) for each in made]


@torch.no_grad()
def set_gradients(tensors, step, factor=1.0):
    generator = torch.Generator().manual_seed(10 + step)
    for p in tensors:
        gradient = torch.randn(p.shape, generator=generator, dtype=torch.float64) * factor
        p.grad = torch.empty_like(p).copy_(gradient)  # has the parameter's strides, as PyTorch's gradients


def state_of(optimizer):
    return [
        value.cpu()
        for state in optimizer.state.values()
        for _, value in sorted(state.items())
        if isinstance(value, torch.Tensor)
    ]


def everything(optimizer):
    """Returns copies of the parameters, the gradients and the state."""
    tensors = [p for group in optimizer.param_groups for p in group["params"]]
    return [x.detach().cpu().clone() for p in tensors for x in (p, p.grad)] + [x.clone() for x in state_of(optimizer)]


def assert_agree(made, expected):
    for a, b in zip(made, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=TOLERANCES[b.dtype], atol=TOLERANCES[b.dtype])


DTYPES = {
    "float32": [torch.float32],
    "float64": [torch.float64],
    "float16": [torch.float16],
    "bfloat16": [torch.bfloat16],
    "mixed": [torch.float32, torch.float64, torch.bfloat16, torch.float16],
}


@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=list(DTYPES))
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("kind, options", CASES)
def test_steps_agree_with_the_cpu(kind, options, scaled, dtypes):
    made = []
    for device in ("cpu", DEVICE):
        tensors = parameters(device, dtypes)
        optimizer = kind(tensors, fused=True, **options)
        for step in range(3):
            set_gradients(tensors, step, SCALE if scaled else 1.0)
            if scaled:
                optimizer.grad_scale = torch.tensor(SCALE, device=device)
                optimizer.found_inf = torch.tensor(0.0, device=device)
            optimizer.step()
        made.append(everything(optimizer))
    assert_agree(made[1], made[0])


@pytest.mark.parametrize("where", ["cpu", DEVICE])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("kind, options", CASES)
def test_a_tensor_as_the_learning_rate_agrees_with_the_cpu(kind, options, shape, where):
    made = []
    for device in ("cpu", DEVICE):
        tensors = parameters(device, [torch.float32, torch.float64])
        rate = torch.full(shape, 0.05, device=where if device == DEVICE else "cpu")
        optimizer = kind(tensors, fused=True, **{**options, "lr": rate})
        for step in range(3):
            set_gradients(tensors, step)
            optimizer.step()
        made.append(everything(optimizer))
    assert_agree(made[1], made[0])


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("kind, options", CASES)
def test_a_step_with_an_infinite_gradient_changes_nothing(kind, options, scaled):
    tensors = parameters(DEVICE, [torch.float32, torch.bfloat16])
    optimizer = kind(tensors, fused=True, **options)
    set_gradients(tensors, 0)
    optimizer.step()
    set_gradients(tensors, 1)
    tensors[0].grad[0, 0] = torch.inf
    before = everything(optimizer)
    optimizer.found_inf = torch.tensor(1.0, device=DEVICE)
    if scaled:
        optimizer.grad_scale = torch.tensor(SCALE, device=DEVICE)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(everything(optimizer), before, strict=True))
    # The next step counts as if there had been none.
    set_gradients(tensors, 2)
    optimizer.found_inf = torch.tensor(0.0, device=DEVICE)
    optimizer.grad_scale = None
    optimizer.step()
    counts = [state["step"].item() for state in optimizer.state.values() if "step" in state]
    assert set(counts) <= {2.0}


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("kind, options", CASES)
def test_training_with_a_gradient_scaler_agrees_with_the_cpu(kind, options, fused):
    made = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        x = torch.randn(6, 16, 4).to(device)
        optimizer = kind(model.parameters(), fused=fused, **options)
        scaler = torch.amp.GradScaler(device, init_scale=16.0, growth_interval=2)
        for step in range(6):
            optimizer.zero_grad()
            loss = model(x[step]).square().mean()
            # The third loss has an infinite gradient.
            scaler.scale(loss * (torch.inf if step == 2 else 1)).backward()
            if step == 4:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        result = [p.detach().cpu() for p in model.parameters()] + state_of(optimizer)
        made.append([*result, torch.tensor(scaler.get_scale())])
    assert_agree(made[1], made[0])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_gradient_scaler_takes_parameters_of_two_devices(kind):
    made = []
    for devices in (["cpu", "cpu"], [f"{DEVICE}:0", f"{DEVICE}:1"]):
        tensors = [nn.Parameter(torch.ones(3, device=device)) for device in devices]
        optimizer, scaler = kind(tensors, lr=0.1, fused=True), torch.amp.GradScaler(devices[0][:7], init_scale=2.0)
        for step in range(3):
            for p in tensors:
                # In the second step, the gradient on the second device is infinite.
                p.grad = torch.full_like(p, torch.inf if step == 1 and p is tensors[1] else 3.0)
            scaler.scale(tensors[0].sum())  # makes the scale
            scaler.step(optimizer)
            scaler.update()
        made.append([p.detach().cpu() for p in tensors] + [torch.tensor(scaler.get_scale())])
    assert_agree(made[1], made[0])


def test_lists_of_different_lengths_are_refused():
    p, g = [torch.ones(2, device=DEVICE)], [torch.ones(2, device=DEVICE)] * 2
    with pytest.raises(RuntimeError, match="_fused_sgd_: all lists must have one tensor"):
        torch._fused_sgd_(p, g, [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False,
                          maximize=False, is_first_step=False)  # fmt: skip
    with pytest.raises(RuntimeError, match="_fused_adamw_: all lists must have one tensor"):
        torch._fused_adamw_(p, g, p, p, [], p, lr=0.1, beta1=0.9, beta2=0.9, weight_decay=0.0, eps=1e-8, amsgrad=False,
                            maximize=False)  # fmt: skip
