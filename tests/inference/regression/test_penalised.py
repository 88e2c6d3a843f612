"""Certified bounds of penalised least squares, by brute force over the noise that they allow."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from dpstats.analyses.regression import elastic_net
from dpstats.analyses.regression.elastic_net import PenalisedMoments


@pytest.fixture
def noisy(monkeypatch):
    """Moments of 1, x and y with given noise on the sums, of which |noise| <= q is certain."""

    def build(sums, q, *, public, off=0.0):
        n = max(round(sums[0, 0] + off), 1)
        answers = SimpleNamespace(rows=SimpleNamespace(public=public), n=n, sums=sums[:1, 0])
        matrix = SimpleNamespace(
            matrix=sums / n, n=n, radius=lambda _: np.full((3, 3), q / n), answers=answers
        )
        monkeypatch.setattr(elastic_net, "joint_noise_quantiles", lambda *_: np.array([q]))
        return PenalisedMoments(matrix, np.eye(3), np.array([0.0, 1.0]))

    return build


@pytest.mark.parametrize(("q", "off"), [(2.0, 0.0), (15.0, 0.0), (6.0, 5.0)])
def test_the_risk_of_a_noisy_number_of_rows_is_within_its_bounds(q, off, noisy):
    """Also where the number of rows is estimated otherwise than by the count of the matrix."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], 40)
    table = np.column_stack([np.ones(40), x, rng.choice([-1.0, 1.0], 40)])
    exact, reached = table.T @ table, []
    for b in np.array([(0.0, 0.0), (0.5, 0.1), (-0.2, 0.9)]):
        true = np.mean((table @ [-b[0], -b[1], 1.0]) ** 2)
        for signs in itertools.product((-1, 1), repeat=6):
            noise = np.zeros((3, 3))
            noise[np.triu_indices(3)] = np.multiply(q, signs)
            noise = np.triu(noise) + np.triu(noise, 1).T
            found, low, high = noisy(exact + noise, q, public=False, off=off).risk(b, 0.05)
            assert 0 <= low <= true * (1 + 1e-12) < high * (1 + 2e-12)
            assert found >= 0
            reached.append(max(low / true, true / high))
    assert max(reached) > 0.99 or off


def test_a_number_of_rows_below_its_noise_leaves_the_risk_open(noisy):
    some = noisy(np.diag([10.0, 8.0, 8.0]), 12.0, public=False)
    assert some.risk(np.array([0.0, 0.0]), 0.05)[1:] == (0, np.inf)


def test_the_risk_over_a_public_number_of_rows_is_not_divided(noisy):
    some = noisy(np.diag([10.0, 8.0, 8.0]), 2.0, public=True)
    assert some.risk(np.array([0.0, 0.0]), 0.05) == pytest.approx((0.8, 0.6, 1.0))
    none = noisy(np.diag([10.0, 8.0, -4.0]), 2.0, public=True)
    assert none.risk(np.array([0.0, 0.0]), 0.05) == (0, 0, 0)
