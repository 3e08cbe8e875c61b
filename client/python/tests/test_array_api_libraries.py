"""Libraries that choose the array API by the type of the array: array-api-compat and scikit-learn."""

import textwrap

import pytest
import tensord.array_api as xp


def test_array_api_compat_finds_the_namespace(client):
    compat = pytest.importorskip("array_api_compat", reason="array-api-compat isn't installed")
    x = xp.ones((2, 3))
    assert compat.is_array_api_obj(x)
    assert compat.array_namespace(x, xp.zeros(1), 2.0) is xp
    assert compat.device(x) == x.device and compat.size(x) == 6
    other = client.devices[1]
    assert compat.to_device(x, other).device == other


PROGRAM = """
    import numpy as np
    import sklearn
    from sklearn.metrics import accuracy_score
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import StandardScaler

    import tensord
    import tensord.array_api as xp

    sklearn.set_config(array_api_dispatch=True)
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(200, 4)).astype("float32")
    y = (x[:, 0] + x[:, 1] > 0).astype("int64")

    def train(x, y):
        scaler = StandardScaler().fit(x)
        model = GaussianNB().fit(scaler.transform(x), y)
        found = model.predict(scaler.transform(x))
        return scaler.mean_, model.theta_, found, accuracy_score(y, found)

    remote = train(xp.asarray(x), xp.asarray(y))
    assert all(isinstance(result, tensord.Tensor) for result in remote[:3])
    for got, expected in zip(remote, train(x, y)):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-6)
    assert remote[3] > 0.9
"""


def test_scikit_learn_trains_by_array_api_dispatch(run_python):
    pytest.importorskip("sklearn", reason="scikit-learn isn't installed")
    result = run_python(textwrap.dedent(PROGRAM), SCIPY_ARRAY_API="1")
    assert result.returncode == 0, result.stderr
