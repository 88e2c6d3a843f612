"""No interval has width zero, however far the noise is beyond its law."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy import noise

SCHEMA = dps.Schema(
    [
        dps.Boolean("ill"),
        dps.Category("area", ["a", "b", "c"]),
        dps.Number("age", 0, 100, edges=[30, 60], missing=50),
        dps.Number("pay", 0, 10, edges=[5], missing=5),
    ]
)
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


class Far:
    """Noise that is moved by many scales in a third of the answers, and against it in another."""

    def __init__(self, source, seed, distance):
        self.source, self.uniforms = source, source.uniforms
        self.rng, self.distance = np.random.default_rng(seed), distance

    def __call__(self, scale, size):
        drawn = self.source(scale, size)
        if size == 1:  # such as the number of rows
            return drawn
        moved = self.distance * self.rng.choice([-1.0, 0.0, 1.0], size) * scale
        return drawn + np.round(moved).astype(np.int64)


def ends_of(result):
    for method in ("noise_aware", "certified"):
        for target in ("population", "table"):
            if not result.lacking(method, target):
                found = result.conf_int(method=method, target=target)
                yield (method, target), np.asarray(found).reshape(-1, 2)


@pytest.mark.parametrize("unit", ["replace", pytest.param("add_remove", marks=pytest.mark.slow)])
def test_no_interval_is_one_value(unit, seeded_noise):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({
        "ill": rng.random(3_000) < 0.02, "area": rng.choice(["a", "b", "c"], 3_000),
        "age": rng.integers(0, 101, 3_000), "pay": rng.integers(0, 11, 3_000),
    })  # fmt: skip
    plan = dps.plan(SCHEMA, ANALYSES, budget=dps.PureDP(2 * len(ANALYSES)), unit=unit)
    distance = 1_000 if unit == "replace" else 25
    with noise._noise_from(Far(seeded_noise(0), 0, distance)):
        release = dps.release(plan, frame, rng=0, m=50)
    for name in ANALYSES:
        for kind, ends in ends_of(release.infer(name)):
            width = ends[:, 1] - ends[:, 0]
            if name == "components":  # loadings may be known without data
                width = width[:2]
            assert np.all(width > 0), (name, kind, ends)
