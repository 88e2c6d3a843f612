"""The perturbed histogram: what it costs, what it gives, when it is refused."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.measured.measurements import NoisyBlock
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.noise import _noise_from
from dpstats.rows.histogram import PerturbedHistogram

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, edges=[20, 65]),
])  # fmt: skip
CELLS = 18


def measured(counts):
    block = PerturbedHistogram().block(SCHEMA)
    return NoisyBlock(block, np.full(block.size, 4.0), np.asarray(counts), np.zeros(block.size))


def drawn(counts):
    """Counts of the cells of 20,000 draws."""
    points = PerturbedHistogram().draw(20_000, SCHEMA, measured(counts), np.random.default_rng(0))
    bins = [SCHEMA[name].bins_of(points[name]) for name in SCHEMA.names]
    return np.bincount(np.ravel_multi_index(bins, (3, 2, 3)), minlength=CELLS)


def test_draws_follow_the_clipped_counts_or_are_uniform_without_any():
    counts = np.arange(-5, CELLS - 5)
    found, some = drawn(counts), counts > 0
    assert found[~some].sum() == 0
    assert stats.chisquare(found[some], 20_000 * counts[some] / counts[some].sum()).pvalue > 1e-6
    reference, none = PerturbedHistogram(), np.full(CELLS, -3)
    assert reference.note(measured(counts)) is None
    assert "no noisy count" in reference.note(measured(none))
    assert reference.cells(SCHEMA, measured(none)) == (CELLS, None)
    assert stats.chisquare(drawn(none)).pvalue > 1e-6


def test_it_is_measured_apart_with_its_own_noise_and_never_answers():
    asked = []

    def source(scale, size):
        asked.append((scale, size))
        return np.zeros(size, np.int64)

    analyses = {"colour": dps.Marginals(["colour"], 1), "old": dps.Proportion("age >= 65")}
    made = dps.plan(
        SCHEMA.select(["colour", "age"]), analyses, budget=dps.PureDP(1),
        reference=PerturbedHistogram(share=Fraction(1, 4)),
    )  # fmt: skip
    rows = pd.DataFrame({"colour": ["red", "blue"] * 2_000, "age": np.arange(4_000) % 101})
    with _noise_from(source):
        held = dps.measure(made, rows)
    assert asked[-1] == (8.0, 9)  # 2 / (1/4) on the 9 cells of colour x age
    assert held.reference.sums.sum() == 4000
    assert held.family.size == made.family.size == 4
    release = dps.synthesize(held, m=500, k=100, rng=0)
    with pytest.raises(NotMeasuredError):
        release.infer(dps.Marginals(["colour", "age"]))
    # the histogram holds this count too, with less noise; only the measured one may answer
    answers = release.answers(dps.Proportion("age >= 65").family(SCHEMA))
    assert answers.law(0).scale == pytest.approx(float(made.blocks[1].multiplier))


@pytest.mark.parametrize(
    ("kind", "scale", "power"), [(DiscreteLaplace, 50.0, 1), (DiscreteGaussian, 0.3, 2)]
)
def test_expected_noise_is_the_positive_part_of_the_law(scale, kind, power):
    """E max(Z, 0) by summation, at the smallest n that passes."""
    law, block = kind(scale), PerturbedHistogram().block(SCHEMA)
    z = np.arange(1, int(60 * scale) + 10)
    weights = np.exp(-((z / scale) ** power) / power)
    mass = CELLS * float(weights @ z) / (1 + 2 * weights.sum())
    PerturbedHistogram().check(block, math.ceil(mass), law)
    with pytest.raises(RequestError, match="pure noise"):
        PerturbedHistogram().check(block, math.ceil(mass) - 1, law)
