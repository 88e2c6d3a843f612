"""The score of a table's cells: its noise, the bound on what bins hide, and intervals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from dpstats.analyses.regression.cell_score import CellScore, corners


def binned(x, bins):
    """The middles of equal bins of [-1, 1], and the bin of every number."""
    middle = (2 * np.arange(bins) + 1) / bins - 1
    return middle, np.clip(((x + 1) * bins / 2).astype(int), 0, bins - 1)


def exact(x, y, bins):
    """Without noise: numbers x in [-1, 1], outcomes y, in equal bins."""
    middle, cell = binned(x, bins)
    counts = np.array([np.bincount(cell[y == o], minlength=bins) for o in (0, 1)], dtype=float)
    offsets = np.bincount(cell, (x - middle[cell]) * bins, minlength=bins)[np.newaxis]
    slopes = np.zeros((1, bins, 2))
    slopes[0, :, 1] = 1 / bins
    return CellScore(
        np.column_stack([np.ones(bins), middle]), slopes, np.zeros((bins, 2)), counts, offsets,
        len(x), noise=np.zeros((3 * bins,) * 2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = 2 * rng.beta(0.5, 0.5, 3_000) - 1
    return x, rng.random(3_000) < special.expit(0.5 + 2 * x)


@pytest.mark.parametrize("bins", [3, 16])
def test_the_misfit_bounds_the_score_at_any_coefficients(rows, bins):
    """The expected outcomes of the rows themselves against those of the cells."""
    x, _ = rows
    _, cell = binned(x, bins)
    some, sizes = exact(x, np.ones(len(x)), bins), np.bincount(cell, minlength=bins)
    for b in np.array([(0.5, 2), (-1, 4), (3, -3), (0, 0.1)]):
        ones = np.bincount(cell, special.expit(b[0] + b[1] * x), minlength=bins)
        expected = replace(some, counts=np.array([sizes - ones, ones]))
        for along in np.array([(1, 0), (0, 1), (-1, 0.7)]):
            low, high = expected.misfit(b, along)
            assert low - 1e-9 <= along @ expected.score(b) <= high + 1e-9
            assert low < high


def test_an_interval_ends_where_the_test_rejects(rows):
    x, y = rows
    some = exact(x[:400], y[:400], 8)
    noise = np.diag(np.r_[np.full(16, 8.0), np.full(8, 500.0)])
    noisy = replace(some, noise=noise)
    h = np.array([0.0, 1.0])
    for alpha in (0.05, 0.3):
        low, high = noisy.interval(h, alpha, sampled=True)
        for end in (low, high):
            assert noisy.pvalue(h, end, "two-sided") == pytest.approx(alpha, rel=1e-3)
        inner = noisy.interval(h, alpha, sampled=False)
        assert low < inner[0] < inner[1] < high
    assert noisy.pvalue(h, 0.0, "larger") < 1e-3 < noisy.pvalue(h, 0.0, "smaller")


def of_groups(counts, sd, **options):
    """Groups without numbers, with Laplace noise of this spread on counts (2, groups)."""
    groups = counts.shape[1]
    design = np.column_stack([np.ones(groups), np.eye(groups)[:, 1:]])
    noise = {"noise": sd**2 * np.eye(2 * groups), "laplace": sd * np.eye(2 * groups)}
    return CellScore(
        design, np.zeros((0, groups, groups)), np.zeros((groups, groups)), counts,
        np.zeros((0, groups)), round(counts.sum()), terms=np.ones(2 * groups), **noise, **options,
    )  # fmt: skip


def tail_of_sum(x, sd, scales):
    """P(|N + sum of Laplace| > x): by partial fractions, a mixture of N plus a single one."""
    squares, found = scales**2, 0.0
    for k, scale in enumerate(scales):
        others = np.delete(squares, k)
        share = np.prod(squares[k] / (squares[k] - others))
        at = sd / scale
        near = np.exp(special.log_ndtr(x / sd - at) + at**2 / 2 - x / scale)
        far = np.exp(special.log_ndtr(-x / sd - at) + at**2 / 2 + x / scale)
        found += share * (2 * special.ndtr(-x / sd) + near - far)
    return found


@pytest.mark.parametrize("sd", [100.0, 2_000.0])
def test_few_cells_with_laplace_noise_have_its_tail(sd):
    """The score is linear in the noise, so the exact law of its sum is known."""
    counts = np.outer([0.7, 0.3], [100_000.0, 20_000.0])
    some, b = of_groups(counts, sd), np.array([special.logit(0.3), 0.0])
    along = np.linalg.solve(some.information(b), [0.0, 1.0])
    scales = np.abs(some._entries(b) @ along) * sd / np.sqrt(2)
    sampling = np.sqrt(along[1])
    for deviation in (1.5, 2, 3, 4, 5, 7):
        x = deviation * np.hypot(sampling, np.sqrt(2 * np.sum(scales**2)))
        exact = tail_of_sum(x, sampling, scales)
        for sign in (-1, 1):
            z = sign * some._deviate_of(sign * x, b, along, sampling**2)
            assert 2 * special.ndtr(-z) == pytest.approx(exact, rel=0.06)
    assert exact > 1e-8 or sd < 200  # a normal law has 2.6e-12


def test_what_bins_hide_is_no_evidence_in_a_joint_test(rows):
    """At the estimate of the rows themselves their score is zero: within the bounds."""
    at_rows = exact(*rows, 400).params
    for bins in (3, 8):
        assert exact(*rows, bins).wald(np.eye(2), at_rows)[1] == 1
    assert exact(*rows, 8).wald(np.eye(2), at_rows + np.array([0.5, 0]))[1] < 1e-4


def test_a_joint_test_has_its_level_under_noise_on_few_cells():
    """40 tables of three groups with equal chances: 9 or more have a chance of .0003."""
    rng, sizes, sd = np.random.default_rng(3), np.array([2_000, 600, 150]), 25.0
    both, equal, rejected = np.eye(3)[1:], np.zeros(2), np.zeros(2)
    for run in range(40):
        ill = rng.binomial(sizes, 0.4)
        counts = np.array([sizes - ill, ill]) + rng.laplace(0, sd / np.sqrt(2), (2, 3))
        some = of_groups(counts, sd, seed=run)
        forgetful = replace(
            some, noise=np.zeros((6, 6)), laplace=np.zeros((0, 6)), terms=np.ones(0)
        )
        rejected += [one.params is not None and one.wald(both, equal)[1] <= 0.05
                     for one in (some, forgetful)]  # fmt: skip
    assert rejected[0] < 9
    assert rejected[1] > 12  # a planted bug: noise that is not allowed for is seen


def test_average_effects_cover_with_wide_bins_too():
    """70 tables: 56 or fewer of them have a chance of 1e-5 at a coverage of .95."""
    rng, bins, found = np.random.default_rng(4), 6, []
    sd = np.r_[np.full(2 * bins, 4.3), np.full(bins, 69.0)]
    for _ in range(70):
        x = rng.uniform(-1, 1, 3_000)
        some = exact(x, rng.random(3_000) < special.expit(-0.3 + 1.6 * x), bins)
        counts, offsets = np.split(rng.laplace(0, sd / np.sqrt(2)).reshape(3, bins), [2])
        noisy = replace(
            some, counts=some.counts + counts, offsets=some.offsets + offsets, noise=np.diag(sd**2)
        )
        points = np.concatenate([some.x + t * some.slopes[0] for (t,) in corners(1)])

        def effect(b, points=points):
            chance = special.expit(points @ b)
            return chance * (1 - chance) * b[1]

        found.append(noisy.average(effect))
    chance = special.expit(-0.3 + 1.6 * np.linspace(-1, 1, 20_001))
    truth = 1.6 * np.mean(chance * (1 - chance))
    estimate, sampling, noise, low, high = np.array(found).T
    reach = 1.96 * np.sqrt(sampling + noise)
    covered = (estimate - high - reach <= truth) & (truth <= estimate - low + reach)
    assert covered.sum() > 56
    assert 0.85 < np.sqrt(np.median(sampling + noise)) / estimate.std() < 1.2
