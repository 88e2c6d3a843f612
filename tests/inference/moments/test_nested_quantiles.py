"""Quantiles of draws: their level, and that they do not shrink as it falls."""

import numpy as np
import pytest

from dpstats.analyses.moments.eigen_moves import Tail, outer


@pytest.mark.parametrize("size", [20, 100, 1_000])
@pytest.mark.parametrize("law", ["opposite", "equal", "independent"])
def test_one_more_draw_exceeds_the_outer_quantile_no_more_often_than_said(size, law):
    """Any of size + 2 draws in pairs may be the new one, whose partner is not seen."""
    level, rng = 0.1, np.random.default_rng(0)
    pairs = rng.permutation(np.arange(1.0, size + 3)).reshape(-1, 2)
    if law != "independent":
        pairs[:, 1] = pairs[:, 0] if law == "equal" else -pairs[:, 0]
    above = sum(
        pairs[i, j] > outer(np.delete(pairs, i, axis=0).ravel(), level)
        for i in range(len(pairs))
        for j in range(2)
    )
    assert level - 3 / (size + 2) < above / (size + 2) <= level


def test_quantiles_do_not_shrink_as_the_level_falls():
    """Those of one number of draws at each level do."""
    draws = np.random.default_rng(0).standard_normal(4_000)
    tails = [Tail.of(level, 300, 4_000) for level in np.geomspace(0.1, 0.001, 60)]
    quantiles = [tail.quantile(draws[: tail.size]) for tail in tails]
    alone = [outer(draws[: tail.size], tail.parts[-1][1]) for tail in tails]
    assert np.all(np.diff(quantiles) >= 0)
    assert np.any(np.diff(alone) < 0)
    assert np.all(np.array(quantiles) >= alone)
    assert {tail.size for tail in tails} == {300, 600, 1_200, 2_400, 4_000}


def test_draws_beyond_the_quantile_are_those_that_decide_it():
    draws = np.random.default_rng(0).standard_normal(4_000)
    tail = Tail.of(0.004, 300, 4_000)
    near = tail.beyond(draws, 1.5)
    assert near.sum() < 60
    assert tail.quantile(np.where(near, draws, -np.inf)) == tail.quantile(draws)
