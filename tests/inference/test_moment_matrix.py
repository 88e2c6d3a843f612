from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.families.features import SIGN
from dpstats.inference.moment_matrix import MomentMatrix, moments_block
from dpstats.measured.answers import answer

SCHEMA = dps.Schema([
    dps.Number("age", 0, 100, points=201, missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0),
    dps.Category("region", ["n", "s", "w"]),
    dps.Boolean("smoker"),
])  # fmt: skip
FEATURES = (("pay", None), ("region", 1), ("region", 2), ("age", None), ("smoker", SIGN))


@dps.register
@dataclass(frozen=True)
class Everything:
    """An analysis that asks for all products of the features."""

    kind: ClassVar[str] = "everything"

    def family(self, schema):
        return dps.Family((moments_block(schema, FEATURES),))

    def infer(self, release):
        raise NotImplementedError


def rows():
    rng, n = np.random.default_rng(0), 500
    return pd.DataFrame({
        "age": rng.integers(0, 201, n) / 2, "pay": rng.integers(-100, 301, n) / 10,
        "region": rng.choice(["n", "s", "w"], n), "smoker": rng.random(n) < 0.3,
    })  # fmt: skip


def held(unit):
    plan = dps.plan(SCHEMA, {"all": Everything()}, budget=dps.PureDP(1), unit=unit)
    measurements = dps.measure(plan, rows())

    answers = partial(answer, measurements)
    return MomentMatrix.of(SimpleNamespace(schema=SCHEMA, answers=answers), FEATURES)


def test_without_noise_it_is_the_mean_of_products(no_noise):
    found, frame = held("add_remove"), rows()
    columns = [np.ones(len(frame)), frame["pay"] / 20 - 0.5, frame["region"] == "s",
               frame["region"] == "w", frame["age"] / 50 - 1, 2 * frame["smoker"] - 1]  # fmt: skip
    features = np.column_stack(columns).astype(float)
    np.testing.assert_allclose(found.matrix, features.T @ features / len(frame), rtol=1e-12)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_noise_has_the_stated_standard_deviations_and_shared_entries(unit):
    found = held(unit)
    drawn = found.noise(2000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.std(axis=0), found.noise_sd, rtol=0.1)
    np.testing.assert_array_equal(drawn, drawn.transpose(0, 2, 1))
    np.testing.assert_array_equal(drawn[:, 2, 2], drawn[:, 0, 2])  # an indicator is its square
    assert np.all(found.noise_sd[2, 3] == 0)  # two levels of one group never meet
    assert (found.noise_sd[0, 0] > 0) == (unit == "add_remove")
    np.testing.assert_array_equal(drawn[:, 5, 5], drawn[:, 0, 0])  # a sign times itself is one
    assert found.matrix[5, 5] == found.matrix[0, 0]
    inside = np.all(np.abs(drawn) <= found.radius(0.1) + 1e-12, axis=(1, 2))
    assert 0.88 < inside.mean() < 0.95
