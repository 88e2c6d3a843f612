"""Moves of eigenvalues against full decompositions of every matrix, and quantiles of draws."""

import numpy as np
import pytest

from dpstats.analyses.moments.eigen_moves import ErrorDraws, Tail, _rise, _worst, outer, rises

LEVEL, ANY = 0.0225, (-np.inf, np.inf)
SPECTRA = {
    "apart": np.array([16.0, 12.0, 9.0, 5.0, 1.0]),
    "close": np.linspace(5.0, 4.0, 8),
    "a few and a floor": np.append([12.0, 8.0, 5.0], np.linspace(1.5, 0.5, 6)),
}


def errors(p, size=2_000, sd=0.1, seed=0):
    """Symmetric errors of different columns, every one followed by its opposite."""
    rng = np.random.default_rng(seed)
    drawn = rng.laplace(size=(size // 2, p, p)) * np.linspace(0.8, 1.2, p) * sd
    drawn = (drawn + drawn.swapaxes(1, 2)) / 2
    return ErrorDraws(np.stack([drawn, -drawn], axis=1).reshape(size, p, p))


def exact(draws, seen, slack, i, limits=ANY):
    """The reach from decompositions of all given draws, in steps from Weyl's bound."""
    reach, before = outer(draws.ends[:, 1], LEVEL), np.inf
    while before - reach > 1e-7 * abs(reach):
        moves = _rise(draws, _worst(seen, limits, slack, range(i, i + 1), reach), i)
        reach, before = outer(moves, LEVEL), reach
    return reach


@pytest.mark.parametrize(
    ("name", "mirrored"), [("apart", False), ("a few and a floor", False), ("close", True)]
)
def test_reaches_are_those_of_full_decompositions(name, mirrored):
    """Not shorter, for the same draws, and at most 8% longer."""
    seen = SPECTRA[name]
    draws = errors(len(seen))
    if mirrored:
        draws, seen = draws.mirrored(), -seen[::-1]
    slack = outer(draws.norms, 0.005)
    numbers, ratios = [], []
    for found in rises(draws, seen, ANY, slack, LEVEL, range(len(seen))):
        same = draws.first(len(found.moves))
        assert found.reach == outer(found.moves, LEVEL)
        numbers += found.numbers
        ratios += [found.reach / exact(same, seen, slack, i) for i in found.numbers[-1:]]
    assert numbers == list(range(len(seen)))
    assert min(ratios) > 1 - 1e-6
    assert max(ratios) < 1.08
    if name == "apart":
        assert len(same.errors) == 2_000  # by perturbation, of all draws


@pytest.mark.parametrize("mirrored", [False, True])
def test_limits_of_noise_alone_are_those_of_full_decompositions(mirrored):
    """True values are not negative, and with the least shift half of the estimates are."""
    draws = errors(8, 300, 0.5)
    seen = np.linalg.eigvalsh(draws.errors[0])[::-1] + 0.05
    slack, limits = outer(draws.norms, 0.005), (0.0, np.inf)
    if mirrored:
        draws, seen, limits = draws.mirrored(), -seen[::-1], (-np.inf, 0.0)
    for found in rises(draws, seen, limits, slack, LEVEL, range(8)):
        same = draws.first(len(found.moves))
        for i in found.numbers:
            reach = exact(same, seen, slack, i, limits)
            least = seen[i] - found.reach
            assert least <= max(seen[i] - reach, limits[0]) + 1e-9
            assert mirrored or max(least, 0) > seen[i] - reach - 0.1 * slack
            assert not mirrored or found.reach < reach + 0.12 * slack


def test_estimates_that_no_value_explains_keep_a_possible_limit():
    """The noise spreads eigenvalues by far more than these."""
    draws, seen = errors(5, 400).mirrored(), np.linspace(-0.01, -0.05, 5)
    slack, limits = outer(draws.norms, 0.005), (-np.inf, 0.0)
    assert seen[4] > exact(draws, seen, slack, 4, limits)
    for found in rises(draws, seen, limits, slack, LEVEL, range(5)):
        assert np.all(seen[list(found.numbers)] <= found.reach)


def test_the_number_of_draws_depends_on_estimates_level_and_largest_norm_alone():
    """Else a quantile of the draws would not have its level, or intervals would not be nested."""
    seen = SPECTRA["a few and a floor"]
    first, other = errors(len(seen)), errors(len(seen), seed=1)
    other = ErrorDraws(other.errors * (first.norms.max() / other.norms.max()))

    def sizes(draws, slack, level):
        found = rises(draws, seen, ANY, slack, level, range(len(seen)))
        return [(moves.numbers, len(moves.moves)) for moves in found]

    usual = sizes(first, 1.0, LEVEL)
    assert usual == sizes(other, 1.0, LEVEL) == sizes(first, 2.0, 2 * LEVEL)
    assert len({size for _, size in usual}) > 2
    few, many = min(usual, key=lambda found: found[1])[1], len(first.errors)
    smaller = [size for _, size in sizes(first, 1.0, LEVEL / 2)]
    assert few < min(smaller) < max(smaller) == many


@pytest.mark.parametrize("law", ["opposite", "equal", "independent"])
def test_one_more_draw_exceeds_the_outer_quantile_no_more_often_than_said(law):
    """Any of size + 2 draws in pairs may be the new one, whose partner is not seen."""
    level, rng, size = 0.1, np.random.default_rng(0), 100
    pairs = rng.permutation(np.arange(1.0, size + 3)).reshape(-1, 2)
    if law != "independent":
        pairs[:, 1] = pairs[:, 0] if law == "equal" else -pairs[:, 0]
    above = [pair > outer(np.delete(pairs, i, axis=0).ravel(), level)
             for i, pair in enumerate(pairs)]  # fmt: skip
    assert level - 3 / (size + 2) < np.mean(above) <= level


def test_draws_beyond_the_quantile_are_those_that_decide_it():
    draws = np.random.default_rng(0).standard_normal(4_000)
    tail = Tail.of(0.004, 300, 4_000)
    near = tail.beyond(draws, 1.5)
    assert near.sum() < 60
    assert tail.quantile(np.where(near, draws, -np.inf)) == tail.quantile(draws)
