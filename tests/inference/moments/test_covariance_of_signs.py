"""Covariances of two-level columns with each other and with numbers: values, noise, sampling."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.families.moments import third_and_fourth_powers
from dpstats.inference.simulation import draw_noise
from dpstats.privacy.noise import _noise_from

NAMES = ("a", "s", "t", "u")
SCHEMA = dps.Schema([
    dps.Number("a", -1, 1, points=201, missing=0), dps.Boolean("s"),
    dps.Category("t", ["no", "yes"]), dps.Boolean("u"),
    dps.Category("group", ["x", "y"]),
])  # fmt: skip


@dps.register
@dataclass(frozen=True)
class Products(dps.Analysis):
    """All products of some columns, and the powers of numbers."""

    kind: ClassVar[str] = "products_with_signs"

    columns: tuple[str, ...]
    given: str | None = None

    def family(self, schema):
        numbers = [name for name in self.columns if name == "a"]
        signs = [name for name in self.columns if name != "a"]
        block = dps.Moments.of(schema, numbers, given=self.given, signs=signs)
        powers = third_and_fourth_powers(schema, self.columns, block.given)
        return dps.Family((block, *([] if powers is None else [powers])))

    def infer(self, release):
        raise NotImplementedError


def rows(n):
    """Numbers and signs that depend on each other; s is rare."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(n)
    return pd.DataFrame({
        "a": (0.2 + 0.2 * z + 0.1 * rng.standard_normal(n)).clip(-1, 1).round(2),
        "s": rng.random(n) < 0.1 + 0.1 * (z > 0),
        "t": np.where(z + rng.standard_normal(n) > 0.2, "yes", "no"),
        "u": rng.random(n) < 0.6,
        "group": rng.choice(["x", "y"], n, p=[0.8, 0.2]),
    })  # fmt: skip


def exact(columns=NAMES, n=3_000, *, unit="replace", standardize=False, epsilon=1.0, given=None):
    """The covariance of a release without noise, whose laws are those of epsilon, and the rows."""
    frame = rows(n)
    analysis = Products(columns, given)
    plan = dps.plan(
        SCHEMA, {"it": analysis}, budget=dps.PureDP(epsilon), unit=unit,
        n=n if unit == "replace" else None,
    )  # fmt: skip
    with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
        release = dps.release(plan, frame, rng=0, m=300)
    group = analysis.family(SCHEMA).blocks[0].given
    found = NoisyCovariance.of(release, columns, standardize=standardize, given=group)
    if given is not None:
        frame = frame[frame["group"] == "x"]
    values = frame.assign(
        s=np.where(frame["s"], 1, -1), t=np.where(frame["t"] == "yes", 1, -1),
        u=np.where(frame["u"], 1, -1),
    )  # fmt: skip
    return found, values[list(columns)].to_numpy(float), release


@pytest.mark.parametrize(
    ("columns", "unit", "standardize", "given"),
    [
        (NAMES, "add_remove", False, None), (NAMES[1:], "replace", False, None),
        (NAMES, "replace", True, "group == 'x'"),
    ],
)  # fmt: skip
def test_values_and_the_spread_of_noise(columns, unit, standardize, given):
    found, data, _ = exact(columns, unit=unit, standardize=standardize, given=given)
    matrix = np.corrcoef(data.T) if standardize else np.cov(data.T)
    np.testing.assert_allclose(found.matrix, matrix, rtol=1e-9)
    answers = found.moments.answers
    errors = []
    for draw in draw_noise(answers, 150, np.random.default_rng(2)):
        count = answers.rows
        if not count.public:
            count = replace(count, estimate=answers.sums[-1] + draw[-1])
        moved = replace(answers, sums=answers.sums + draw, rows=count)
        one = replace(found, moments=replace(found.moments, answers=moved))
        errors.append(one.matrix - matrix)
    simulated = next(found.deviations("privacy"))
    pairs = np.triu_indices(len(columns), 1 if standardize else 0)
    ratio = np.std(errors, axis=0)[pairs] / simulated.std(axis=0)[pairs]
    np.testing.assert_allclose(ratio, 1, atol=0.2)
