"""Products of signs and numbers in a release: plan, preview, rows, files and answers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.families.coarse_moments import third_and_fourth_powers
from dpstats.families.features import SIGN
from dpstats.families.moments import Moments

SCHEMA = dps.Schema([
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=101, missing=40, edges=[30, 60]),
    dps.Category("ill", ["no", "yes"]),
    dps.Boolean("vaccinated", allow_missing=True),
])  # fmt: skip
COLUMNS = ("age", "smoker", "ill")
N = 4_000


@dataclass(frozen=True, repr=False, eq=False)
class Matrix(dps.Result):
    """A correlation matrix."""

    values: np.ndarray

    headline = property(lambda self: " ".join(map(str, self.values.round(2).ravel())))

    def summary(self, *, alpha=0.05, target="population"):
        return self.headline

    def to_frame(self):
        return pd.DataFrame(self.values)


@dps.register
@dataclass(frozen=True)
class Mixed(dps.Analysis):
    """Correlations of numbers and two-level columns, by all of their products."""

    kind: ClassVar[str] = "correlations_with_signs"

    given: str | None = None
    triple: bool = False

    def family(self, schema):
        blocks = [Moments.of(schema, ["age"], signs=["smoker", "ill"], given=self.given)]
        if self.triple:
            names = (("age", None), ("ill", SIGN), ("smoker", SIGN))
            blocks.append(Moments.of_terms(schema, [names], given=blocks[0].given))
        blocks.append(third_and_fourth_powers(schema, COLUMNS, blocks[0].given))
        return dps.Family(blocks)

    def infer(self, release):
        group = self.family(release.schema).blocks[0].given
        found = NoisyCovariance.of(release, COLUMNS, standardize=True, given=group)
        return Matrix("correlations", found.matrix)


def rows(n=N):
    """Smokers are ill more often, and older."""
    rng = np.random.default_rng(3)
    smoker = rng.random(n) < 0.3
    return pd.DataFrame({
        "smoker": smoker,
        "age": rng.normal(45 + 10 * smoker, 15).clip(0, 100).round(),
        "ill": np.where(rng.random(n) < 0.15 + 0.5 * smoker, "yes", "no"),
        "vaccinated": rng.choice([True, False, None], n),
    })  # fmt: skip


TABLE = rows()
ANALYSES = {
    "all": Mixed(triple=True),
    "given": Mixed("vaccinated == True"),
    "smokers": dps.Proportion("smoker"),
}


def values_of(frame, block):
    """(n, d) the functions of a block at rows in original units, without the library's sums."""
    age = (frame["age"].to_numpy(float) - 50) / 50
    sign = {
        "smoker": np.where(frame["smoker"], 1.0, -1.0),
        "ill": np.where(frame["ill"] == "yes", 1.0, -1.0),
    }
    inside = np.ones(len(frame))
    if block.given is not None:
        inside = (frame["vaccinated"].astype(str) == "True").to_numpy(float)
    columns = []
    for term in block.terms:
        value = inside.copy()
        for name, level in term:
            value *= age if level is None else sign[name]
        columns.append(value)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(
    ("budget", "unit", "reference"),
    [
        (dps.PureDP(4), "replace", dps.LogLinear()),
        (dps.ZCDP(1), "add_remove", None),
        (dps.PureDP(4), "replace", dps.BernsteinKDE(["age"], k=8, share=0.1)),
    ],
)
def test_from_the_plan_to_the_rows_and_back(budget, unit, reference, seeded_noise, tmp_path):
    from dpstats.privacy.noise import _noise_from

    plan = dps.plan(
        SCHEMA, ANALYSES, budget=budget, unit=unit, reference=reference,
        n=N if unit == "replace" else None, allocation="optimal",
    )  # fmt: skip
    assert str(plan.preview(n=N))
    with _noise_from(seeded_noise(7)):
        release = dps.release(plan, TABLE, m=2_000, rng=0)
    assert not [note for note in release.notes if "failed" in note]
    found = {}
    for name in ("all", "given"):
        for block in ANALYSES[name].family(SCHEMA).blocks:
            answers = release.answers(block)
            true = values_of(TABLE, block).sum(axis=0)
            noise = N * np.sqrt(answers.noise_variances)  # of sums
            errors = answers.sums / answers.bounds - true
            assert np.all(np.abs(errors) <= 5 * noise + 1e-9)
            assert np.any(errors != 0)
            # The rows follow what was measured: within noise, and the sampling of few rows.
            synthetic = values_of(release.to_frame(), block)
            apart = synthetic.mean(axis=0) - true / N
            assert np.all(np.abs(apart) <= 6 * noise / N + 0.04)
        found[name] = release.infer(name)
    frame = TABLE.assign(smoker=TABLE["smoker"] * 1, ill=(TABLE["ill"] == "yes") * 1)
    true = frame[list(COLUMNS)].corr().to_numpy()
    assert true[1, 2] > 0.4
    np.testing.assert_allclose(found["all"].values, true, atol=0.05)
    drawn = release.to_frame()
    both = np.corrcoef(drawn["smoker"] * 1, (drawn["ill"] == "yes") * 1)[0, 1]
    assert abs(both - true[1, 2]) < 0.06
    path = tmp_path / "release.zip"
    release.save(path)
    again = dps.load(path)
    for name, result in found.items():
        assert again.infer(name) == result
    held = zip(release.measurements.measured, again.measurements.measured, strict=True)
    assert all(one.block == other.block for one, other in held)


def test_what_one_analysis_measures_another_uses():
    plan = dps.plan(SCHEMA, {"all": Mixed(triple=True), "part": Mixed()}, budget=dps.PureDP(1))
    terms = [t for block in plan.family.blocks for t in block.terms]
    assert len(terms) == len(set(terms)) == 10


def test_the_contract_of_analyses():
    for given in [None, "vaccinated == False"]:
        dps.testing.check_analysis(Mixed(given), SCHEMA, TABLE[:500])
