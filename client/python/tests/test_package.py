"""The installed package: exported symbols, stubs, imports beside other libraries."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensord
from tensord import _core

PACKAGE = pathlib.Path(tensord.__file__).parent


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is missing")
def test_the_extension_exports_one_symbol():
    output = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in output.stdout.splitlines()] == ["PyInit__core"]


@pytest.mark.parametrize("other", ["torch", "grpc", "google.protobuf", "numpy"])
def test_imports_in_any_order(run_python, other):
    if importlib.util.find_spec(other.split(".")[0]) is None:
        pytest.skip(f"{other} isn't installed")
    for order in (f"{other}, tensord", f"tensord, {other}"):
        done = run_python(f"import {order}; print(tensord.ones(3).sum().item())")
        assert done.stdout.strip() == "3.0", done.stderr


def test_the_module_uses_the_stable_abi():
    if (
        sys.version_info < (3, 12)
        or sys.implementation.name != "cpython"
        or not getattr(sys, "_is_gil_enabled", lambda: True)()
    ):
        pytest.skip("the stable ABI needs CPython 3.12 or newer with its lock")
    output = (
        subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout if shutil.which("cmake") else ""
    )
    version = tuple(int(part) for part in output.split()[2].split(".")[:2]) if output else (0, 0)
    if version < (3, 26):
        pytest.skip(
            f"the stable ABI needs CMake 3.26 or newer, and this is {output.partition(chr(10))[0] or 'missing'}"
        )
    assert _core.__file__.endswith(".abi3.so")


def test_import_loads_no_large_module(run_python):
    done = run_python("import sys, tensord; print(*sys.modules)")
    assert not {"numpy", "torch", "grpc", "asyncio", "subprocess"} & set(done.stdout.split())


def test_stubs_name_what_the_module_has():
    stub = (PACKAGE / "_core.pyi").read_text()
    for name in vars(_core):
        if not name.startswith("_"):
            assert f"def {name}(" in stub or f"class {name}" in stub or f"{name}: dtype" in stub, name


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy isn't installed")
def test_the_package_passes_mypy(tmp_path):
    # mypy finds installed packages by itself.
    path = {} if PACKAGE.parent.name == "site-packages" else {"MYPYPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "-p", "tensord"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy isn't installed")
def test_the_stubs_pass_mypy(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import tensord
from tensord import Tensor

def layer(x: Tensor, w: Tensor) -> Tensor:
    y = tensord.relu(x @ w + 1.0)
    y += 2
    y[0] = 3
    return -y.sum(axis=(0,), keepdims=True).to("cpu:0")[..., None] / 2

with tensord.connect("gpu-a:50051") as client:
    shape: tuple[int, ...] = layer(tensord.zeros(2, 3), tensord.rand(3, 4, dtype=tensord.float32)).shape
    device: tensord.Device = client.devices[0]
    values, indices = tensord.sort(tensord.asarray([1, 2]))
    flag: bool = bool((values == indices).all())
try:
    tensord.concat([values])
except tensord.OutOfMemoryError as error:
    print(error.code, error.retry_after)
""")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    program.write_text(
        "import tensord\ntensord.relu('a')\ntensord.sum(tensord.zeros(2), axis='x')\ntensord.no_such()\n"
    )
    done = subprocess.run([*command, str(program)], capture_output=True, text=True)
    assert done.stdout.count("error:") == 3, done.stdout


@pytest.mark.parametrize("page", ["README.md", "client/python/README.md"])
def test_the_first_program_of_a_page_runs(run_python, address, page):
    path = pathlib.Path(__file__).parents[3] / page
    program = path.read_text().split("```python\n")[1].split("```")[0].replace("127.0.0.1:50051", address)
    done = run_python(program)
    assert done.returncode == 0 and "14." in done.stdout or "15." in done.stdout, done.stderr


def test_the_version_is_that_of_the_tree():
    root = pathlib.Path(__file__).parents[3]
    assert f"project(tensord VERSION {tensord.__version__} " in (root / "CMakeLists.txt").read_text()
    assert f'version = "{tensord.__version__}"' in (root / "client/python/tensord/pyproject.toml").read_text()
