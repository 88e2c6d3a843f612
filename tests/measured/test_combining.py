"""Combining: constrained least squares over all cells of the domain, done once per release."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import NotMeasuredError
from dpstats.families.tables.cells import ROWS, Cells
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.privacy.budget import PureDP

SCHEMA = dps.Schema([
    dps.Category("smoker", ["no", "yes"]),
    dps.Category("region", ["north", "south", "east", "west"]),
    dps.Boolean("tall"),
    dps.Number("age", 0, 100, points=201, edges=[18, 40, 65], missing=40),
])  # fmt: skip
N = 400


def table(*names):
    return Cells.table(SCHEMA, names)


def condition(text):
    return Cells.condition(SCHEMA, text)


def measured(blocks, multipliers=None, seed=5):
    """Any sums will do: estimates are linear in them."""
    rng = np.random.default_rng(seed)
    multipliers = multipliers or [Fraction(2)] * len(blocks)
    planned = tuple(PlannedBlock(b, m) for b, m in zip(blocks, multipliers, strict=True))
    strategy = Strategy(SCHEMA, planned, PureDP(1), n=N)
    size = strategy.family.size
    return Measurements(strategy, rng.integers(-50, 150, size), rng.uniform(-0.5, 0.5, size))


def least_squares(noisy, wanted):
    """Estimates and covariance by constrained least squares over all cells of the domain."""
    shape = [c.bins for c in SCHEMA]
    cells = np.indices(shape).reshape(len(shape), -1)
    codes = {}
    for c, index in zip(SCHEMA, cells, strict=True):
        codes[c.name] = c.draw_inside(index, np.random.default_rng(0))

    def matrix(block):
        return block.evaluate(codes).matrix().toarray()

    design = np.vstack([matrix(block.block) for block in noisy.measured])
    observed = np.concatenate([block.sums for block in noisy.measured])
    sd = np.sqrt([PureDP(1).law(float(scale)).variance for scale in noisy.scales])
    size = cells.shape[1]
    start = np.full(size, noisy.n / size)
    free = np.linalg.svd(np.ones((1, size)))[2][1:].T  # changes that keep the total
    if noisy.count is not None:  # the total is free, and measured
        start, free = np.zeros(size), np.eye(size)
        design = np.vstack([design, np.ones(size)])
        observed = np.append(observed, noisy.count.sums)
        sd = np.append(sd, np.sqrt(PureDP(1).law(float(noisy.count.scales[0])).variance))
    inverse = np.linalg.pinv((design @ free) / sd[:, None], rcond=1e-10)
    estimate = start + free @ (inverse @ ((observed - design @ start) / sd))
    target = np.ones((1, size)) if wanted is ROWS else matrix(wanted)
    half = target @ free @ inverse
    return target @ estimate, half @ half.T


WANTED = [
    table("region"),
    table("smoker"),
    table("age"),
    table("region", "age"),
    condition("smoker == 'yes' or region != 'west'"),
    condition("region == 'west'"),
]


def overlapping(conditions):
    """Tables that share columns, and conditions that they estimate too."""
    blocks = [table("smoker", "region"), table("region", "age"), table("age"), table("region")]
    multipliers = [Fraction(3, 2), Fraction(5), Fraction(7, 3), Fraction(2), Fraction(4), 1]
    blocks += map(condition, conditions)
    return measured(blocks, multipliers[: len(blocks)])


def counted(noisy):
    """The same where the number of rows is measured."""
    blocks = (*noisy.strategy.blocks, PlannedBlock(ROWS, Fraction(3), "count"))
    return replace(
        noisy,
        strategy=replace(noisy.strategy, blocks=blocks, unit="add_remove", n=None),
        noisy_sums=np.append(noisy.noisy_sums, N + 7),
        uniforms=np.append(noisy.uniforms, 0.0),
    )


@pytest.mark.parametrize("conditions", [[], ["smoker == 'yes'", "region == 'west' or age < 18"]])
@pytest.mark.parametrize("total", ["public", "measured"])
def test_answers_are_constrained_least_squares(conditions, total):
    noisy = overlapping(conditions) if total == "public" else counted(overlapping(conditions))
    for wanted in WANTED:
        answers = answer(noisy, wanted)
        estimate, covariance = least_squares(noisy, wanted)
        np.testing.assert_allclose(answers.sums, estimate, atol=1e-8)
        np.testing.assert_allclose(answers.noise_covariance, covariance, atol=1e-6)
    if total == "measured":
        count, variance = least_squares(noisy, ROWS)
        assert answers.rows.estimate == pytest.approx(count[0], abs=1e-8)
        assert answers.rows.law.variance == pytest.approx(variance[0, 0])
        assert answers.n == round(count[0])


def test_a_complement_does_not_follow_where_the_total_is_not_public():
    noisy = measured([condition("tall")])
    assert answer(noisy, condition("not tall")).sums == N - noisy.measured[0].sums
    with pytest.raises(NotMeasuredError):
        answer(counted(noisy), condition("not tall"))
