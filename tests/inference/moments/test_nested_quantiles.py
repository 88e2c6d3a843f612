"""Quantiles of draws: their level, and that they do not shrink as it falls."""

import numpy as np
import pytest

from dpstats.analyses.moments.eigen_moves import Tail, outer


@pytest.mark.parametrize("size", [20, 100])
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


def test_draws_beyond_the_quantile_are_those_that_decide_it():
    draws = np.random.default_rng(0).standard_normal(4_000)
    tail = Tail.of(0.004, 300, 4_000)
    near = tail.beyond(draws, 1.5)
    assert near.sum() < 60
    assert tail.quantile(np.where(near, draws, -np.inf)) == tail.quantile(draws)
