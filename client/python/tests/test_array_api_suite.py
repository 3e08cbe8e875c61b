"""Runs data-apis/array-api-tests, whose code isn't part of this tree.

TENSORD_ARRAY_API_TESTS names a clone of the suite with its submodule array-api:

    git clone --recurse-submodules https://github.com/data-apis/array-api-tests
    pip install -r array-api-tests/requirements.txt

TENSORD_ARRAY_API_EXAMPLES sets the number of examples for each test; 20 is the default.
"""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
SUITE = os.environ.get("TENSORD_ARRAY_API_TESTS", "")


@pytest.mark.skipif(not SUITE, reason="TENSORD_ARRAY_API_TESTS doesn't name a clone of data-apis/array-api-tests")
def test_suite_passes_but_for_the_listed_tests(address):
    for module in ("hypothesis", "ndindex", "pytest_jsonreport"):
        pytest.importorskip(module, reason="the suite's requirements.txt isn't installed")
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": "tensord.array_api",
        "ARRAY_API_TESTS_VERSION": "2025.12",
        "PYTHONPATH": os.pathsep.join([SUITE, str(HERE), os.environ.get("PYTHONPATH", "")]),
        "TENSORD_SERVER": address,
    }
    arguments = [
        *("-p", "array_api_suite", "-p", "no:cacheprovider", "-o", "xfail_strict=true", "-q", "--tb=short"),
        *("--disable-deadline", f"--max-examples={os.environ.get('TENSORD_ARRAY_API_EXAMPLES', '20')}"),
        f"--xfails-file={HERE / 'array_api_xfails.txt'}",
        f"--skips-file={HERE / 'array_api_skips.txt'}",
        "array_api_tests",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=SUITE, env=environment, capture_output=True, text=True
    )
    print(result.stdout[-20000:], result.stderr[-2000:])
    assert result.returncode == 0
