"""Scores of generalised linear models, by calibrated weights and by cells: errors and intervals."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, special, stats

from dpstats.analyses.regression.calibrated_score import CalibratedScore
from dpstats.analyses.regression.cell_score import CellScore, corners
from dpstats.analyses.regression.glm import NormalIntervals
from dpstats.analyses.regression.score import LOG, LOGIT
from dpstats.inference.mixture_tails import MixtureTails

N = 10_000


def answers_of(means, noise):
    """Answers of these means, with independent noise of this variance."""
    d = len(means)
    return SimpleNamespace(
        n=N, means=means, sums=means * N, bounds=np.ones(d, np.int64), uniforms=np.zeros(d),
        noise_covariance=np.eye(d) * noise * N**2, noise_groups=[],
        rows=SimpleNamespace(rows_per_person=1), law=lambda f: SimpleNamespace(gaussian=False),
    )  # fmt: skip


def score(noise=1e-12, link=LOGIT, moved=0.0, far=None):
    """400 points, a few functions of them, and answers that differ from the fitted means."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(400), rng.uniform(-1, 1, 400)])
    y = (rng.random(400) < special.expit(x @ [0.3, 1])).astype(float)
    density = rng.dirichlet(np.ones(400))
    functions = np.stack([x[:, 1], x[:, 1] ** 2, y, y * x[:, 1]])
    means = functions @ (rng.dirichlet(np.ones(400)) * 0.2 + density * 0.8)
    means[2] = far or means[2]
    coarse = x + moved * np.column_stack([np.zeros(400), rng.uniform(-1, 1, 400)])
    functions, answers = sparse.csr_array(functions), answers_of(means, noise)
    inside = np.ones(400, dtype=bool)
    return CalibratedScore(x, inside, coarse, y, density, functions, answers, link, False)


@pytest.mark.parametrize("link", [LOGIT, LOG])
def test_the_estimate_solves_the_calibrated_score(link):
    some = score(link=link)
    left = some.weights * (some.y - link.mean(some.x @ some.params))
    np.testing.assert_allclose(some.x.T @ left, 0, atol=1e-9)


def test_related_columns_have_the_errors_of_related_columns():
    """What the answers know of the dependence is in the variances, though the density lacks it."""
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=(2, 3_000))
    x = np.column_stack([np.ones(3_000), u, v])
    target = np.exp(1.2 * u * v - 0.5 * (u**2 + v**2)) + 1e-3
    target /= target.sum()
    y = (rng.random(3_000) < special.expit(x @ [0.2, 0.5, -0.5])).astype(float)
    functions = np.stack([u, v, u**2, v**2, u * v, y, y * u, y * v])
    density, answers = np.full(3_000, 1 / 3_000), answers_of(functions @ target, 1e-6)
    inside, functions = np.ones(3_000, dtype=bool), sparse.csr_array(functions)
    some = CalibratedScore(x, inside, x, y, density, functions, answers, LOGIT)
    slope = some.link.slope(some.x @ some.params)
    wanted = np.linalg.inv((some.x.T * (target * slope)) @ some.x) / N
    unrelated = np.linalg.inv((some.x.T * (some.density * slope)) @ some.x) / N
    found = np.diag(some.sampling_covariance)[1:]
    assert np.all(np.diag(unrelated)[1:] < 0.6 * np.diag(wanted)[1:])
    np.testing.assert_allclose(found, np.diag(wanted)[1:], rtol=0.2)
    c, means = some.parts(some.influence)[0], some.answers.means
    for f in range(8):
        up, down = (
            replace(some, answers=answers_of(means + step * np.eye(8)[f], 1e-6)).params
            for step in (1e-6, -1e-6)
        )
        np.testing.assert_allclose((up - down) / 2e-6, c[f], rtol=1e-3, atol=1e-4)


def test_what_bins_hide_has_a_variance_of_its_own():
    """None where every number is at the mean of its bin; else it grows, up to that of the rest."""
    none, small, large = (score(noise=1e-6, moved=moved) for moved in (0.0, 0.002, 1.0))
    slope = np.array([0.0, 1.0])
    rest = none.density_variance(slope) / 0.01  # kappa / n
    hidden = small.density_variance(slope) - none.density_variance(slope)
    assert 0 < hidden < 0.06 * rest
    assert large.density_variance(slope) == pytest.approx((0.01 + 0.06) * rest)
    assert small.covariances(slope[None])[1] == pytest.approx(
        none.covariances(slope[None])[1] + hidden)  # fmt: skip
    average = [s.average(lambda b: float(b[1]) * np.ones(400))[2] for s in (none, small)]
    assert average[1] == pytest.approx(average[0] + hidden, rel=1e-3)


def test_the_error_grows_with_the_value_that_is_tested():
    """By the error of the derivative of the score, here from two scores."""
    found, h, step = score(noise=1e-3, moved=0.5), np.array([0.0, 1.0]), 1e-5
    along = np.linalg.solve(found.information(found.params), h)
    toward = step * along / (h @ along)

    def coefficients(b, x):
        influence = (x @ along) * (found.y - found.link.mean(x @ b))
        return found.parts(influence[:, np.newaxis], 0.1)

    at = found.params
    c = (coefficients(at + toward, found.x)[0] - coefficients(at, found.x)[0])[:, 0] / step
    slope = found.link.slope(found.x @ at) * (found.x @ along) * (found.x @ toward) / step
    hidden = found.parts(slope[:, np.newaxis], 0.1)[1][0, 0] * found.kappa / found.n
    fixed = found._own_parts[0] @ h
    s = found.noise_of_means
    expected = c @ s @ c + hidden - (c @ s @ fixed) ** 2 / (fixed @ s @ fixed)
    noise = found._noise @ h
    moving = found._moving(h, noise)
    assert np.var(moving) == pytest.approx(expected, rel=0.3)
    assert np.var(moving) > 0.9 * expected
    law = found.law(h)
    without = replace(law, centre=h @ found.params - noise, error=law.error * (1 + moving))
    assert np.diff(law.limits(0.05)) > 1.001 * np.diff(without.limits(0.05))


def test_a_density_that_does_not_carry_the_answers_gives_no_estimate():
    assert score(1e-8).fits
    assert score(1.0, far=1.5).fits
    far = score(1e-8, far=1.5)  # more than any point has
    assert not far.fits
    assert far.params is None


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


@pytest.mark.parametrize("sd", [100.0, 2_000.0])
def test_few_cells_with_laplace_noise_have_its_tail(sd):
    """The score is linear in the noise, so the law of its sum is known."""
    counts = np.outer([0.7, 0.3], [100_000.0, 20_000.0])
    some, b = of_groups(counts, sd), np.array([special.logit(0.3), 0.0])
    along = np.linalg.solve(some.information(b), [0.0, 1.0])
    noise = (some._entries(b) @ along * sd) ** 2
    law = MixtureTails(along[1:], noise[np.newaxis], np.ones(len(noise)))
    for deviation in (1.5, 2, 3, 4, 5, 7):
        x = deviation * np.sqrt(along[1] + noise.sum())
        exact = law.tail(np.array([x]))[0]
        for sign in (-1, 1):
            z = sign * some._deviate_of(sign * x, b, along, along[1])
            assert 2 * special.ndtr(-z) == pytest.approx(exact, rel=1e-6)
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


@pytest.mark.parametrize("alpha", [0.3, 1e-6])
def test_the_largest_error_over_all_means_is_alpha(alpha):
    low, high = np.array([0, 0, -1, -0.2, -40.0]), np.array([0, 0.5, 1, 3, 10.0])
    sampling, noise = np.full(5, 1.5), np.array([0.5, 0.5, 2, 0.1, 1])
    intervals = NormalIntervals(np.zeros(5), sampling, noise, low, high)
    for target, sd in (("population", np.sqrt(sampling + noise)), ("table", np.sqrt(noise))):
        ends = intervals.noise_aware(alpha, target)
        means = np.linspace(low, high, 201)
        missed = stats.norm.cdf((means + ends[0]) / sd) + stats.norm.sf((means + ends[1]) / sd)
        np.testing.assert_allclose(missed.max(axis=0), alpha, rtol=1e-6)
        np.testing.assert_allclose(missed[[0, -1]], alpha, rtol=1e-6)
        if target == "population":
            for end in ends:
                pvalues = np.diag([intervals.pvalues(value, "two-sided") for value in end])
                np.testing.assert_allclose(pvalues, alpha, rtol=1e-6)
    classical = stats.norm.isf(alpha / 2) * np.sqrt(2)
    np.testing.assert_allclose([end[0] for end in intervals.noise_aware(alpha, "population")],
                               [-classical, classical])  # fmt: skip


def test_values_between_the_bounds_are_not_rejected_and_nothing_is_known_without_an_estimate():
    one = NormalIntervals(*(np.array([value]) for value in (0.0, 1.0, 1.0, -1.0, 2.0)))
    assert one.pvalues(0.5, "two-sided") == 1
    np.testing.assert_array_equal(np.ravel(one.noise_aware(0.99, "population")), [-2, 1])
    none = NormalIntervals(*(np.array([value]) for value in (np.nan, np.inf, np.inf, 0, 0)))
    np.testing.assert_array_equal(np.ravel(none.noise_aware(0.05, "population")), [-np.inf, np.inf])
    assert none.pvalues(0.0, "two-sided") == 1
