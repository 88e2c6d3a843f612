"""No interval has width zero, however far the noise is beyond its law, and none grows shorter."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise

SCHEMA = dps.Schema([
    dps.Boolean("ill"), dps.Category("area", ["a", "b", "c"]),
    dps.Number("age", 0, 100, edges=[30, 60], missing=50),
    dps.Number("pay", 0, 10, edges=[5], missing=5),
])  # fmt: skip
ANALYSES = {
    "group": dps.Proportion("ill", given="area == 'a'"),
    "cells": dps.Marginals(["ill", "area"]),
    "difference": dps.Difference("ill", by="area", groups=("a", "b")),
    "mean": dps.Mean("age"),
    "means": dps.GroupMeans("age", by="area"),
    "quantile": dps.Quantile("age"),
    "correlation": dps.Correlation(["age", "pay"]),
    "components": dps.PCA(["age", "pay"]),
    "fit": dps.GoodnessOfFit("area", {"a": 0.5, "b": 0.3, "c": 0.2}, simulations=99),
}
DRAWN = ("group", "difference", "components")  # limits are certified ones where the draws end


class Far:
    """Noise that is moved by many scales in a third of the answers, and against it in another."""

    def __init__(self, source, distance):
        self.source, self.uniforms = source, source.uniforms
        self.rng, self.distance = np.random.default_rng(0), distance

    def __call__(self, scale, size):
        drawn = self.source(scale, size)
        if size == 1:  # such as the number of rows
            return drawn
        moved = self.distance * self.rng.choice([-1.0, 0.0, 1.0], size) * scale
        return drawn + np.round(moved).astype(np.int64)


@pytest.mark.parametrize(
    ("unit", "distance"),
    [("replace", 0), ("replace", 1_000), pytest.param("add_remove", 25, marks=pytest.mark.slow)],
)
def test_no_interval_is_one_value_and_all_are_nested(unit, distance, seeded_noise):
    """Also at tiny errors, where draws end: limits contain the certified ones."""
    rng, n = np.random.default_rng(5), 3_000
    frame = pd.DataFrame({
        "ill": rng.random(n) < 0.02, "area": rng.choice(["a", "b", "c"], n),
        "age": rng.integers(0, 101, n), "pay": rng.integers(0, 11, n),
    })  # fmt: skip
    options = {"budget": dps.PureDP(2 * len(ANALYSES)), "reference": dps.Uniform()}
    plan = dps.plan(SCHEMA, ANALYSES, unit=unit, **options)
    with noise._noise_from(Far(seeded_noise(0), distance)):
        release = dps.release(plan, frame, rng=0, m=50)
    for name in ANALYSES:
        result, found = release.infer(name), {}
        alphas = (0.05,) if distance or name == "fit" else (0.05, 1e-6, 1e-13)
        for method in ("noise_aware", "certified"):
            for target in ("population", "table"):
                if result.lacking(method, target):
                    continue
                options = {"method": method, "target": target}
                options |= {"simultaneous": True} if name == "cells" else {}
                ends = [np.reshape(result.conf_int(alpha=a, **options), (-1, 2)) for a in alphas]
                # loadings may be known without data
                low, high = np.moveaxis(ends, 2, 0)[..., : 2 if name == "components" else None]
                found[method, target] = low, high
                assert np.all(high > low), (name, method, target)
                nested = (low[1:] <= low[:-1] + 1e-9) & (high[1:] >= high[:-1] - 1e-9)
                assert np.all(nested), (name, method, target)
                assert name != "correlation" or np.all(np.diff(high - low, axis=0) > 0)
        far = () if len(alphas) == 1 else (1, 2) if name in DRAWN else (2,)
        for target in ("population", "table"):
            aware, certified = (found.get((m, target)) for m in ("noise_aware", "certified"))
            for at in far if aware and certified else ():
                assert np.all(aware[0][at] <= certified[0][at] + 1e-9), (name, target)
                assert np.all(aware[1][at] >= certified[1][at] - 1e-9), (name, target)
