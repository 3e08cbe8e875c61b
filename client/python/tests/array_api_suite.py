"""A pytest plugin for data-apis/array-api-tests: it leaves the complex dtypes out of the generated arrays.

The suite can't be imported if the module has no complex dtype, or if ARRAY_API_TESTS_SKIP_DTYPES names both. In
tensord, complex dtypes are storage only. So this plugin loads the suite's table of dtypes with complex128, and then
takes complex128 out of the lists from which the tests draw. test_array_api_suite.py runs the suite with it.
"""

import os

os.environ.setdefault("ARRAY_API_TESTS_SKIP_DTYPES", "complex64")

from array_api_tests import (
    dtype_helpers as dh,
    xp,
)


def _is_real(dtype):
    return dtype != xp.complex128


def _real(dtypes):
    return type(dtypes)(dtype for dtype in dtypes if _is_real(dtype))


for name in ("complex_dtypes", "numeric_dtypes", "all_dtypes", "all_float_dtypes"):
    setattr(dh, name, _real(getattr(dh, name)))
for table in (dh.kind_to_dtypes, dh.category_to_dtypes, dh.func_in_dtypes):
    for key, dtypes in table.items():
        table[key] = _real(dtypes)
dh.func_in_dtypes.default_factory = lambda: dh.all_dtypes
dh.promotion_table._key_value_pairs = [
    (pair, result) for pair, result in dh.promotion_table._key_value_pairs if _is_real(result)
]
