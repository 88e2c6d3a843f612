"""Pictures of mean losses on a grid, drawn from results."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=21, missing=0), dps.Number("z", -1, 1, points=21, missing=0),
    dps.Number("y", -4, 4, points=81, missing=0),
])  # fmt: skip
GRID = {"Intercept": (-1, 1, 5), "x": (-1, 2, 7), "z": (-2, 1, 7)}


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1, 1, (2, 4_000))
    rows = pd.DataFrame({"x": x, "z": z, "y": (x - z + rng.normal(0, 0.5, 4_000)).clip(-4, 4)})
    asked = {
        "three": dps.Huber("y ~ x + z", k=1, grid=GRID),
        "one": dps.Huber("y ~ 1", k=1, grid={"Intercept": (-1, 1, 9)}),
    }
    plan = dps.plan(SCHEMA, asked, budget=dps.ZCDP(50), reference=dps.Uniform())
    return dps.release(plan, rows, m=200, k=10, rng=0)


@pytest.fixture
def ax():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


def test_one_parameter_has_its_noisy_losses_and_its_set(results, ax):
    found = results.infer("one")
    assert dps.plots.risk(found, ax=ax) is ax
    x, y = ax.lines[0].get_data()
    frame = found.risks()
    np.testing.assert_array_equal(x, frame["Intercept"])
    np.testing.assert_array_equal(y, frame["risk"])
    shaded = ax.collections[1].get_paths()[0].get_extents()
    low, high = found.conf_int()[0]
    step = 2 / 120
    assert low - step <= shaded.x0 <= shaded.x1 <= high + step
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "bounds, jointly", "noisy mean loss", "possible minimum"
    ]  # fmt: skip


@pytest.mark.parametrize("names", [("x", "z"), ("z", "x"), ("Intercept", "z")])
def test_two_parameters_have_the_estimate_inside_the_set(results, ax, names):
    found = results.infer("three")
    dps.plots.risk(found, parameters=names, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == names
    point = np.concatenate(ax.lines[0].get_data())
    np.testing.assert_allclose(point, found.params[list(names)])
    assert any(path.contains_point(point) for path in ax.collections[-1].get_paths())
    levels = ax.collections[0].levels
    assert levels[0] <= found.risks()["risk"].max()


def test_refusals(results):
    found = results.infer("three")
    for names in (["w"], ["x", "x"], ["x", "z", "Intercept"], []):
        with pytest.raises(RequestError, match="parameters must be one or two of"):
            dps.plots.risk(found, parameters=names)
    with pytest.raises(RequestError, match=r"needs the result of a dps\.LossGrid"):
        dps.plots.risk(results)
