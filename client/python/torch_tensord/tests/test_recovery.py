"""A lost server: errors name the cause, resume() connects again, and training continues from a checkpoint."""

import re

import pytest
import torch  # noqa: F401  Before pytest puts the folder of the source on the path.

TRAINING = """
import os, signal, sys, tempfile
import torch
import torch_tensord

STEPS, SAVED_STEP = 12, 5
path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")

def data(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)

def make():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
    ).to("tensord")
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)

def train(model, optimizer, first, losses):
    for step in range(first, STEPS):
        if step == SAVED_STEP and not os.path.exists(path):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save({**state, "random": torch.tensord.get_rng_state()}, path)
        if step == SAVED_STEP + 3 and first == 0 and interrupt:
            os.kill(int(os.environ["FIRST_PID"]), signal.SIGKILL)
        x, y = data(step)
        loss = torch.nn.functional.cross_entropy(model(x.to("tensord")), y.to("tensord"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[step] = loss.item()

def load(model, optimizer):
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    torch.tensord.set_rng_state(checkpoint["random"])
    return checkpoint["step"]

interrupt = False
torch_tensord.resume(os.environ["SECOND"])
expected = {}
train(*make(), 0, expected)
os.remove(path)

interrupt = True
torch_tensord.resume(os.environ["FIRST"], reconnect_timeout=0.2)
model, optimizer = make()
losses = {}
old = torch.ones(3, device="tensord")
view = old[1:]
try:
    train(model, optimizer, 0, losses)
except torch.AcceleratorError as e:
    print("lost:", e)
assert max(losses) == SAVED_STEP + 2
os.environ["TENSORD_SERVERS"] = os.environ["SECOND"]
torch_tensord.resume()
for name, use in {
    "read": lambda: old.cpu(),
    "op": lambda: (old + 1).cpu(),
    "mixed": lambda: old * torch.ones(3, device="tensord"),
    "mixed2": lambda: torch.ones(3, device="tensord") * old,
    "in place": lambda: old.add_(1),
    "part": lambda: old[1:].add_(1),
    "view": lambda: view.sum().item(),
    "printed": lambda: print(old),
    "moved": lambda: old.to("cpu"),
}.items():
    try:
        use()
        print(name, "works")
    except torch.AcceleratorError as e:
        print(name, "raises:", e)
step = load(model, optimizer) if os.environ["KEEP"] == "1" else None
if step is None:
    model, optimizer = make()
    step = load(model, optimizer)
train(model, optimizer, step, losses)
print("equal" if losses == expected else (losses, expected))
"""


@pytest.mark.parametrize("keep", [True, False], ids=["the same objects", "new objects"])
def test_training_continues_on_another_server(run_python, start_daemon, keep):
    (first, pid), (second, _) = start_daemon("--devices=cpu"), start_daemon("--devices=cpu")
    done = run_python(TRAINING, FIRST=first, FIRST_PID=str(pid), SECOND=second, KEEP="1" if keep else "0")
    lines = done.stdout.splitlines()
    assert lines and lines[-1] == "equal", done.stdout + done.stderr
    causes = rf"{re.escape(first)}.*call torch_tensord\.resume\(\), and load the last checkpoint"
    assert re.search("^lost: .*" + causes, done.stdout, re.M), done.stdout
    for name in ("read", "op", "mixed", "mixed2", "in place", "part", "view", "printed", "moved"):
        assert re.search(f"^{name} raises: .*" + causes, done.stdout, re.M), done.stdout


def test_a_compiled_function_is_recorded_again_on_another_server(run_python, start_daemon):
    (first, _), (second, _) = start_daemon("--devices=cpu"), start_daemon("--devices=cpu")
    done = run_python(
        """
import os, torch, torch_tensord
double = torch.compile(lambda x: torch.relu(x) * 2, backend="tensord")
for address in (os.environ["FIRST"], os.environ["SECOND"]):
    torch_tensord.resume(address)
    print(double(torch.ones(2, device="tensord")).tolist())
""",
        FIRST=first,
        SECOND=second,
    )
    assert done.stdout.splitlines()[-2:] == ["[2.0, 2.0]", "[2.0, 2.0]"], done.stdout + done.stderr
