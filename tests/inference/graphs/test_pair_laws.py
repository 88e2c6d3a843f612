"""First-order laws of (partial) correlations: derivatives by differences, variances by draws."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
from dpstats.analyses.graphs.pair_intervals import PairLaws

PAIRS = np.array(np.triu_indices(4, 1))


def partials(matrix):
    found = -np.linalg.inv(matrix)
    root = np.sqrt(-np.diag(found))
    return (found / np.outer(root, root))[tuple(PAIRS)]


def marginals(matrix):
    root = np.sqrt(np.diag(matrix))
    return (matrix / np.outer(root, root))[tuple(PAIRS)]


@pytest.fixture(scope="module", params=["partial", "marginal"])
def case(request, graph_tools):
    covariance, _, _ = graph_tools.covariance_of(budget=dps.PureDP(300))
    if request.param == "partial":
        return covariance, PairLaws.partial(NoisyPrecision(covariance)), partials
    return covariance, PairLaws.marginal(covariance), marginals


def test_gradients_are_those_of_differences(case):
    """A measured count is one more entry: the correlations do not change with their scale."""
    covariance, laws, value = case
    moments = covariance.moments.matrix
    at = laws.correlations[tuple(PAIRS)]
    [(_, gradients)] = list(laws._gradients(PAIRS, at))
    rng, step = np.random.default_rng(0), 1e-6
    for _ in range(20):
        change = rng.standard_normal(moments.shape)
        change += change.T
        up, down = (value(covariance.of_moments(moments + s * step * change)) for s in (1, -1))
        expected = np.einsum("fij,ij->f", gradients, change)
        np.testing.assert_allclose((up - down) / (2 * step), expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.PureDP(20), "add_remove"), (dps.ZCDP(5), "replace")]
)
def test_variances_of_the_noise_are_those_of_draws(graph_tools, budget, unit):
    """2,000 draws: a variance has an error of 4 to 5%."""
    covariance, _, _ = graph_tools.covariance_of(budget=budget, unit=unit)
    laws = PairLaws.partial(NoisyPrecision(covariance))
    law = laws.error(PAIRS, laws.correlations[tuple(PAIRS)], sampling=False)
    errors = covariance.moments.noise(2_000, np.random.default_rng(0))
    found = [partials(covariance.of_moments(covariance.moments.matrix + e)) for e in errors]
    spread = np.var(np.arctanh(found), axis=0)
    np.testing.assert_allclose(law.variances, spread, rtol=0.2)


def test_heavy_tails_have_a_larger_sampling_part(graph_tools):
    """The variance over draws of rows, which normal theory understates."""
    rng = np.random.default_rng(3)
    population = rng.standard_normal((50_000, 4)) / np.sqrt(rng.chisquare(5, (50_000, 1)) / 5)
    population[:, 1] += population[:, 0]
    codes = np.clip(np.rint(population / 8 * graph_tools.half), -200, 200).astype(np.int64)
    covariance, _, _ = graph_tools.covariance_of(codes[:20_000], budget=dps.PureDP(10_000))
    laws = PairLaws.partial(NoisyPrecision(covariance))
    law = laws.error(PAIRS, laws.correlations[tuple(PAIRS)])
    found = [
        np.arctanh(partials(np.cov(codes[rng.integers(0, 50_000, 2_000)].T))) for _ in range(200)
    ]
    ratio = law.normal * 20_000 / (np.var(found, axis=0) * 2_000)
    assert np.all((ratio > 0.75) & (ratio < 1.5))
    assert (np.var(found, axis=0) * 2_000).max() > 1.3
