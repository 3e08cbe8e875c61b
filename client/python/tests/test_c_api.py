"""The table of C functions (tensord_c.h), driven by a small library that is compiled here."""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import numpy
import pytest
import tensord
from tensord import _core

HEADER_FOLDER = pathlib.Path(tensord.__file__).parent / "include"
DRIVER = pathlib.Path(__file__).parent / "c_api_driver.cc"
CXX = os.environ.get("CXX", "c++")
CC = os.environ.get("CC", "cc")

pytestmark = pytest.mark.skipif(shutil.which(CXX) is None, reason=f"the C++ compiler {CXX} is missing")


def table_address():
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get(_core._C_API, b"tensord._core._C_API")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The path of the compiled library."""
    path = tmp_path_factory.mktemp("c_api") / "driver.so"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([CXX, *flags, f"-I{HEADER_FOLDER}", str(DRIVER), "-o", str(path)], check=True)
    return path


@pytest.fixture(params=["with the interpreter's lock", "without it"])
def driver(library, client, request):
    """The library, whose functions run with or without the interpreter's lock."""
    kind = ctypes.PyDLL if request.param == "with the interpreter's lock" else ctypes.CDLL
    loaded = kind(str(library))
    loaded.set_api(ctypes.c_void_p(table_address()))
    return loaded


@pytest.mark.parametrize("name", re.findall(r"\b(test_\w+)\(", DRIVER.read_text()))
def test_of_the_driver(driver, name):
    function = getattr(driver, name)
    function.restype = ctypes.c_char_p
    assert function().decode() == ""


@pytest.fixture
def locked_driver(library, client):
    loaded = ctypes.PyDLL(str(library))
    loaded.set_api(ctypes.c_void_p(table_address()))
    return loaded


def test_tensors_go_to_and_from_python(locked_driver):
    locked_driver.add_one.restype = ctypes.py_object
    locked_driver.add_one.argtypes = locked_driver.is_tensor.argtypes = [ctypes.py_object]
    x = tensord.asarray([1.0, 2.0])
    y = locked_driver.add_one(x)
    assert isinstance(y, tensord.Tensor)
    numpy.testing.assert_array_equal(y.numpy(), [2, 3])
    assert locked_driver.is_tensor(x) == 1
    assert locked_driver.is_tensor(numpy.ones(2)) == 0


def test_a_released_tensor_is_freed_at_the_server(driver, client):
    before = len(client.list_tensors())
    driver.test_an_op_returns_dtype_and_shape_at_once()
    assert len(client.list_tensors()) == before


def test_a_closed_connection_is_the_reason_of_later_errors(library, address):
    with tensord.connect(address):
        loaded = ctypes.PyDLL(str(library))
        loaded.set_api(ctypes.c_void_p(table_address()))
        assert loaded.use_after_close() == 9  # FAILED_PRECONDITION


def test_hooks_run_around_a_wait_for_a_full_queue(library, address):
    previous = tensord.current_connection()
    with tensord.connect(address, max_pending_commands=8):
        loaded = ctypes.PyDLL(str(library))
        loaded.set_api(ctypes.c_void_p(table_address()))
        assert loaded.count_hook_calls(1000) > 0
    assert tensord.current_connection() is not None or previous is None


@pytest.mark.skipif(shutil.which(CC) is None, reason=f"the C compiler {CC} is missing")
def test_the_header_is_c99():
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", "c"]
    subprocess.run([CC, *flags, str(HEADER_FOLDER / "tensord_c.h")], check=True)
