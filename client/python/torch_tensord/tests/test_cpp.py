"""The device in programs in C++, without Python: that of client/torch/README.md, and client/torch/examples."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
import torch
import torch_tensord
from torch import nn

TREE = pathlib.Path(__file__).parents[4]
VERSION = ".".join(torch.__version__.split(".")[:2])
LIBRARY = pathlib.Path(torch_tensord.__file__).parent / f"lib/libtorch_tensord-{VERSION}.so"

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None
    or shutil.which("ninja") is None
    or shutil.which(os.environ.get("CXX", "c++")) is None,
    reason="needs CMake, Ninja and a compiler",
)


def block(language, page, beginning=""):
    """Returns the first code block of a language in a page."""
    return re.search(rf"^```{language}\n({beginning}.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1)


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The folder of the programs. The first process of the tests that needs them builds them."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "cpp"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            page = (TREE / "client/torch/README.md").read_text()
            (folder / "app").mkdir()
            (folder / "app/main.cc").write_text(block("cpp", page))
            (folder / "app/CMakeLists.txt").write_text(block("cmake", page))
            (folder / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(all LANGUAGES CXX)\nadd_subdirectory(app)\n"
                f"add_subdirectory({TREE / 'client/torch/examples'} examples)\n"
                "target_precompile_headers(app REUSE_FROM digits)  # a shorter test\n"
            )
            prefix = f"-DCMAKE_PREFIX_PATH={torch_tensord.cmake_prefix_path}"
            # The compilers must not see the variables of a sanitizer's run.
            plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            for arguments in (
                ["-G", "Ninja", "-S", folder, "-B", folder / "build", prefix],
                ["--build", folder / "build", "--parallel", "2"],
            ):
                done = subprocess.run(["cmake", *map(str, arguments)], env=plain, capture_output=True, text=True)
                assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            (folder / "built").touch()
    return folder / "build"


def run(program, *arguments, **environment):
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [str(program), *map(str, arguments)], env=variables, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_program_of_the_page_trains_without_python(programs, address):
    assert run(programs / "app/app", address) == "1\n"
    assert run(programs / "app/app", TENSORD_SERVERS=address) == "1\n"
    assert "libpython" not in subprocess.run(["ldd", programs / "app/app"], capture_output=True, text=True).stdout


def test_training_continues_on_another_server_after_the_first_was_killed(programs, start_daemon, tmp_path):
    (first, pid), (second, _) = start_daemon("--devices=cpu"), start_daemon("--devices=cpu")
    data, checkpoint = TREE / "tests/data/digits.safetensors", tmp_path / "digits.pt"
    lines = []
    command = [programs / "examples/digits", data, checkpoint, first, second]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as training:
        for line in training.stdout:
            lines.append(line)
            if line.startswith("epoch 1"):
                os.kill(pid, signal.SIGKILL)
    assert training.returncode == 0
    text = "".join(lines)
    assert f"lost the server: lost the connection to the tensord server at {first}" in text
    assert "call torch_tensord::Resume()" in text and "continues with epoch" in text
    assert lines[-2].startswith("epoch 5: loss")
    right, _, total, *_ = lines[-1].split()
    assert int(right) / int(total) > 0.85
    again = run(programs / "examples/digits", data, checkpoint, second).splitlines()
    assert again == ["continues with epoch 6", lines[-1].strip()]


def test_generation_with_a_cache_gives_the_tokens_of_the_cpu(programs, address):
    sizes = ("2", "48", "4", "100", "6")
    ours, cpu = (
        run(programs / "examples/generate", device, *sizes, TENSORD_SERVERS=address) for device in ("tensord:0", "cpu")
    )
    assert ours.splitlines()[0] == cpu.splitlines()[0] and len(ours.splitlines()[0].split()) == 6


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.jit
def test_models_and_checkpoints_are_exchanged_with_python(programs, address, tmp_path):
    torch.manual_seed(0)
    module, layer = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), nn.Linear(3, 2)
    torch.jit.script(module).save(str(tmp_path / "module.pt"))
    torch.save(dict(layer.state_dict()), tmp_path / "state.pt")
    files = [tmp_path / name for name in ("module.pt", "state.pt", "new.pt")]
    printed = run(programs / "examples/exchange", *files, TENSORD_SERVERS=address)
    numbers = [float(each) for line in printed.splitlines()[:2] for each in line.split()]
    torch.testing.assert_close(torch.tensor(numbers).view(2, 2), module(torch.ones(2, 3)), rtol=1e-3, atol=1e-4)
    state = torch.load(tmp_path / "new.pt", weights_only=False)
    # The gradients of the sum for two rows of ones are 2, and the learning rate is 0.5.
    assert set(state) == {"weight", "bias"}
    layer.load_state_dict({name: x + 1 for name, x in state.items()}, strict=True)
    before = torch.load(tmp_path / "state.pt")
    for name, x in layer.state_dict().items():
        torch.testing.assert_close(x, before[name])


def test_an_unreachable_server_is_named(programs):
    done = subprocess.run([programs / "app/app", "127.0.0.1:1"], capture_output=True, text=True, timeout=240)
    assert done.returncode != 0 and "127.0.0.1:1" in done.stderr and "AcceleratorError" in done.stderr


def test_the_library_exports_only_its_functions():
    listed = subprocess.run(["nm", "-DC", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    strong = [line.split(maxsplit=2)[2] for line in listed.splitlines() if line.split()[1] not in "WVu"]
    assert {each.split("(")[0] for each in strong} == {
        f"torch_tensord::{name}" for name in ("Connect", "Devices", "UsePython")
    }
