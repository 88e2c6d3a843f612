"""Calibrated weights: they carry the answers, and the parts of the error add up."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, special

from dpstats.analyses.regression.calibrated_score import CalibratedScore
from dpstats.analyses.regression.score import LOG, LOGIT

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
    return CalibratedScore(x, coarse, y, density, functions, answers, link, False)


@pytest.mark.parametrize("link", [LOGIT, LOG])
def test_the_estimate_solves_the_calibrated_score(link):
    some = score(link=link)
    left = some.weights * (some.y - link.mean(some.x @ some.params))
    np.testing.assert_allclose(some.x.T @ left, 0, atol=1e-9)


def dependent():
    """Two columns that are unrelated under the fitted density, and related by the answers."""
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=(2, 3_000))
    x = np.column_stack([np.ones(3_000), u, v])
    target = np.exp(1.2 * u * v - 0.5 * (u**2 + v**2)) + 1e-3
    target /= target.sum()
    y = (rng.random(3_000) < special.expit(x @ [0.2, 0.5, -0.5])).astype(float)
    functions = np.stack([u, v, u**2, v**2, u * v, y, y * u, y * v])
    density, answers = np.full(3_000, 1 / 3_000), answers_of(functions @ target, 1e-6)
    return target, CalibratedScore(x, x, y, density, sparse.csr_array(functions), answers, LOGIT)


def test_related_columns_have_the_errors_of_related_columns():
    """What the answers know of the dependence is in the variances, though the density lacks it."""
    target, some = dependent()
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
