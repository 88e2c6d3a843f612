"""The path of a lasso is drawn from the largest penalty on."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.errors import RequestError

pytest.importorskip("matplotlib").use("Agg")


def test_a_path_has_a_line_per_coefficient_and_the_penalty():
    names = ["a", "b", "y"]
    schema = dps.Schema([dps.Number(name, -1, 1, points=201, missing=0) for name in names])
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.uniform(-1, 1, (2_000, 3)).round(2), columns=names)
    plan = dps.plan(schema, {"it": dps.Lasso("y ~ a + b", 0.01)}, budget=dps.PureDP(50))
    result = dps.release(plan, rows, m=200, k=10).infer("it")
    ax = dps.plots.path(result, size=10)
    labels = [line.get_label() for line in ax.lines]
    assert labels[:2] == ["a", "b"]
    assert ax.lines[2].get_xdata()[0] == 0.01
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_allclose(drawn, result.path_in_units(10)[1][:, 1])
    assert drawn[0] == 0
    with pytest.raises(RequestError, match=r"needs the result of a dps\.Lasso"):
        dps.plots.path(3)
