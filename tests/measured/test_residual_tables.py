"""Tables that follow from residuals: exact without noise, least squares with it, certified."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.families.tables.cells import Cells
from dpstats.families.tables.residuals import Residual
from dpstats.inference.simulation import draw_from
from dpstats.measured.answers import answer
from dpstats.measured.certificate import certify, published_answers
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema([
    dps.Category("region", ["north", "south", "east"]), dps.Boolean("smoker"),
    dps.Category("size", list("stuv")), dps.Number("age", 0, 100, points=21, missing=50),
])  # fmt: skip
PAIRS = dps.Marginals(["region", "smoker", "size"])
ASKED = {"pairs": PAIRS, "age": dps.Mean("age"), "smoking": dps.Proportion("smoker")}
N = 600
UNITS = ["replace", "add_remove"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    region = rng.choice(3, N, p=[0.6, 0.3, 0.1])
    return pd.DataFrame({
        "region": np.array(["north", "south", "east"])[region],
        "smoker": rng.random(N) < 0.2 + 0.2 * region,
        "size": np.array(list("stuv"))[(region + rng.integers(2, size=N)) % 4],
        "age": 5 * rng.integers(0, 21, size=N),
    })  # fmt: skip


def plan(unit, rho="1/2", **options):
    return dps.plan(SCHEMA, ASKED, budget=dps.ZCDP(Fraction(rho)), unit=unit, **options)


def counts(rows, block):
    names = [column.name for column in block.columns]
    levels = [getattr(column, "levels", (False, True)) for column in block.columns]
    every = pd.MultiIndex.from_product(levels, names=names)
    return rows.groupby(names).size().reindex(every, fill_value=0).to_numpy()


def test_without_noise_the_answers_are_the_counts(rows, no_noise):
    for unit in UNITS:
        release = dps.release(plan(unit), rows, m=500)
        assert all(isinstance(b, Residual) for b in release.measurements.family.blocks[:6])
        wanted = np.concatenate([counts(rows, block) for block in PAIRS.family(SCHEMA).blocks])
        assert release.answers(PAIRS).sums == pytest.approx(wanted)
        smaller = dps.Marginals(["region"], degree=1)
        assert release.answers(smaller).sums == pytest.approx([360, 180, 60], abs=60)
        condition = Cells.condition(SCHEMA, "smoker and region == 'east'")
        wanted = ((rows.region == "east") & rows.smoker).sum()
        assert release.answers(condition).sums == pytest.approx([wanted])


def dense(block):
    """Functions on all cells of region, smoker and size, (d, 24)."""
    if not block.columns:
        return np.ones((1, 24))
    grid = np.indices([3, 2, 4]).reshape(3, -1)
    codes = dict(zip(("region", "smoker", "size"), grid, strict=True))
    return block.evaluate(codes).matrix().toarray()


def test_answers_are_the_least_squares_estimate(rows):
    """Over the 24 cells, all measured functions weighted by their variances; n known or not."""
    for unit in UNITS:
        with _noise_from(lambda scale, size: np.random.default_rng(1).integers(-20, 20, size)):
            held = dps.measure(plan(unit, weights="cells"), rows)
        about = [b for b in held.sources if "age" not in [c.name for c in b.block.columns]]
        functions = np.concatenate([dense(b.block) for b in about])
        sums = np.concatenate([b.sums for b in about])
        variances = np.concatenate(
            [[held.budget.law(float(s)).variance for s in b.scales] for b in about]
        )
        if unit == "replace":
            functions = np.vstack([functions, np.ones(24)])
            sums, variances = np.append(sums, N), np.append(variances, 1e-9)
        root = np.sqrt(variances)
        inverse = np.linalg.pinv(functions / root[:, np.newaxis], rcond=1e-10)
        wanted = np.concatenate([dense(block) for block in PAIRS.family(SCHEMA).blocks])
        answers = answer(held, PAIRS)
        assert answers.sums == pytest.approx(wanted @ inverse @ (sums / root), abs=1e-4)
        spread = np.einsum("dk,dk->d", wanted @ inverse, wanted @ inverse)
        laws = np.array([answers.law(f).variance for f in range(len(wanted))])
        assert laws == pytest.approx(spread, rel=1e-4)
        own = np.array([law.variance for law in answers._measured[0]])[answers._measured[1]]
        assert answers.weights**2 @ own == pytest.approx(laws)


def test_the_certificate_is_about_the_tables_and_holds(rows):
    """Joint bounds at level .8 in 60 drawn noises, seeded: Bonferroni's is not far from exact."""
    for unit in UNITS:
        rng, made = np.random.default_rng(3), plan(unit)
        with _noise_from(lambda scale, size: np.zeros(size, np.int64)):
            exact = dps.measure(made, rows)
        scales = np.concatenate(made.strategy.block_scales)
        true = published_answers(exact).means
        held = failed = 0
        noise = [draw_from(made.budget.law(float(scale)), 60, rng) for scale in scales]
        for drawn in np.array(noise, np.int64).T:
            noisy = replace(exact, noisy_sums=exact.noisy_sums + drawn)
            accuracy = certify(noisy, np.zeros(len(true)), alpha=0.2, target="rows")
            low, high = accuracy.joint_ends
            held += np.all((low <= true + 1e-12) & (true <= high + 1e-12))
            failed += np.mean((true < accuracy.ends[0] - 1e-12) | (true > accuracy.ends[1] + 1e-12))
        assert accuracy.names[:6] == PAIRS.family(SCHEMA).names[:6]
        assert 0.8 <= held / 60 <= 0.97
        assert failed / 60 <= 0.22
