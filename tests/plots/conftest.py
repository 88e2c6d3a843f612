"""One release of what is drawn; plots are drawn without a window, and closed after every test."""

import importlib.util
import os

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

os.environ.setdefault("MPLBACKEND", "Agg")
if importlib.util.find_spec("matplotlib") is None:
    collect_ignore_glob = ["test_*.py"]

ODD = ["a name of forty characters, or even more", "収入", "$x^{$", "plain"]
LEVELS = ["n", "s", "e"]
ENDS = ["none", "dead", "relapse"]
KINDS = ["end == 'dead'", "end == 'relapse'"]
SCHEMA = dps.Schema([
    *(dps.Number(name, -3, 3, missing=0) for name in ODD),
    dps.Number("x", -1, 1, points=21, missing=0), dps.Number("z", -1, 1, points=21, missing=0),
    dps.Number("y", -4, 4, points=81, missing=0),
    dps.Number("wage", 1, 1_000, edges=[10, 100], scale="log", missing=10),
    dps.Number("age", 0, 100, edges=[20, 50], missing=50),
    dps.Number("score", values=[1, 2, 4], missing=2),
    dps.Number("day", "2020-01-01", "2020-12-31", edges=["2020-04-01", "2020-09-01"],
               missing="2020-02-01"),
    dps.Number("days", 0, 400, edges=[100, 200, 300], missing=0),
    dps.Category("region", LEVELS), dps.Boolean("smoker"),
    dps.Category("end", ENDS), dps.Category("arm", ["new", "old"]), dps.Boolean("rare"),
])  # fmt: skip
GRID = {"Intercept": (-1, 1, 3), "x": (-1, 2, 4), "z": (-2, 1, 4)}
ASKED = {
    "graph": dps.GraphicalModel(ODD),
    "shape": dps.PCA(ODD),
    "means": dps.GroupMeans("age", by="region"),
    "both": dps.Mean(["day", "age"]),
    "gap": dps.Difference("smoker", by="arm"),
    "link": dps.Independence("smoker", "region"),
    "three": dps.Huber("y ~ x + z", k=1, grid=GRID),
    "one": dps.Huber("y ~ 1", k=1, grid={"Intercept": (-1, 1, 9)}),
    "arms": dps.Survival("days", "end != 'none'", by="arm"),
    "dates": dps.Survival("day", "end != 'none'"),
    "kinds": dps.Survival("days", KINDS, by="arm"),
    "rare": dps.Survival("days", "end != 'none'", by="rare"),
    **{name: dps.Quantile(name) for name in ("age", "score", "wage")},
}


@pytest.fixture(scope="session")
def release():
    """Little noise, but in the table; the last region has no rows, nor has one level of `rare`."""
    rng, i = np.random.default_rng(0), np.arange(4_000)
    x, z = rng.uniform(-1, 1, (2, len(i)))
    a, b, c, d = rng.standard_normal((4, len(i)))
    odd = np.stack([a, 0.6 * b - 0.8 * a, 0.4 * a - 0.3 * b + 0.8 * c, d], axis=1)
    rows = pd.DataFrame(odd, columns=ODD).assign(
        x=x, z=z, y=x - z + rng.normal(0, 0.5, len(i)), wage=50, age=i % 100,
        score=np.array([1, 2, 4])[i % 3], days=i * 7 % 400,
        day=pd.Timestamp("2020-01-01") + pd.to_timedelta(i % 360, unit="D"),
        region=np.array(LEVELS)[i % 2], smoker=i % 4 == 0, end=np.array(ENDS)[i * 11 // 5 % 3],
        arm=np.where(i % 5 < 2, "new", "old"), rare=False,
    )  # fmt: skip
    shares = dict.fromkeys(ASKED, 1) | {"link": 0.02}
    plan = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(5_000), shares=shares)
    return dps.release(plan, rows, m=100, k=100, rng=0)


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    from matplotlib import pyplot

    return pyplot.subplots()[1]
