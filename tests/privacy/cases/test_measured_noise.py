"""Sections E and F: the law of the noise that `measure` adds, and audits of it."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.auditing.noise_source import Event, fit_pvalue, log_ratios, loss_of
from dpstats.families.tables.cells import Indicator, Partition, Table
from dpstats.privacy import noise
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.neighbours import Sensitivity
from dpstats.privacy.noise import add_noise

LEVELS = [str(i) for i in range(300)]
ROWS = pa.table({"u": ["0"] * 3, "v": ["1"] * 3})


def draws_of(epsilon=Fraction(1, 2), size=300 * 300, kind=dps.PureDP):
    """90,000 noises of scale 2 / epsilon = 4, from one call of `measure`."""
    levels = LEVELS[: math.isqrt(size)]
    schema = dps.Schema([dps.Category(name, levels) for name in ("u", "v")])
    plan = dps.plan(schema, {"m": dps.Marginals(["u", "v"])}, budget=kind(epsilon))
    [held] = dps.measure(plan, ROWS).measured
    drawn = held.sums.copy()
    drawn[1] -= 3
    return drawn, held.uniforms, plan.budget.law(float(held.scales[0]))


@pytest.fixture(scope="module")
def drawn():
    return draws_of()


def test_p54_what_measure_draws_follows_its_law_and_rejects_a_scale_off_by_five_percent(drawn):
    """A correct sampler fails once in a million runs; a Gaussian one shows in half of the draws."""
    draws, _, law = drawn
    assert (draws.size, law) == (90_000, DiscreteLaplace(4.0))
    assert fit_pvalue(draws, law) > 1e-6
    wrong = DiscreteLaplace(4 / 0.95), DiscreteLaplace(4 * 0.95), DiscreteGaussian(4 * math.sqrt(2))
    for other in wrong:
        assert fit_pvalue(draws, other) < 1e-6
    draws, _, law = draws_of(Fraction(1, 16), 220 * 220, dps.ZCDP)
    assert law == DiscreteGaussian(4.0)  # squared L2 sensitivity 2
    assert fit_pvalue(draws, law) > 1e-6


def correlated(a, b):
    """Correlation in standard errors: beyond 5.5 four times in 10^8 for independent draws."""
    return abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(a.size) > 5.5


def test_p55_no_correlation_between_coordinates_or_calls(drawn):
    draws, uniforms, _ = drawn
    for lag in (1, 2, 3, 10, len(LEVELS)):
        assert not correlated(draws[:-lag], draws[lag:])
        assert not correlated(np.abs(draws[:-lag]), np.abs(draws[lag:]))
    assert not correlated(draws, uniforms)
    assert not correlated(np.abs(draws), np.abs(uniforms))
    first, second = (draws_of(size=90 * 90) for _ in range(2))
    assert not correlated(first[0], second[0])
    assert not correlated(first[1], second[1])
    assert correlated(draws[:-1], draws[1:] + draws[:-1])  # the test itself can fail


def test_p65_p66_planted_floating_and_rounded_noise_is_refused_or_seen(monkeypatch):
    """Rounded noise in half of the draws that are seen to be right."""
    rng = np.random.default_rng(1)

    def floats(sums, scale, law=None):
        return sums + rng.laplace(0, scale, sums.size)

    with monkeypatch.context() as patch:
        patch.setattr(noise, "_laplace", lambda scale: lambda sums: floats(sums, scale).tolist())
        with pytest.raises(dps.NoiseError, match="nothing was released"):
            draws_of(size=100)
    # Behind the checks floats would be cut to integers: the law is then another one.
    for rounded, epsilon in ((floats, Fraction(1, 2)), (lambda *given: np.rint(floats(*given)), 2)):
        planted = lambda *given, rounded=rounded: rounded(*given).astype(np.int64)  # noqa: E731
        monkeypatch.setattr(noise, "_opendp", planted)
        draws, _, law = draws_of(epsilon, 140 * 140)
        assert fit_pvalue(draws, law) < 1e-6


# Audits: two neighbouring tables show no more than the budget.


def planned(budget, unit):
    schema = dps.Schema([dps.Category("b", list("xyz"))])
    return dps.plan(schema, {"p": dps.Proportion("b == 'x'")}, budget=budget, unit=unit)


def proved_of(plan, runs=2000):
    """The part of the budget that noisy sums prove, of tables that differ by one row of 'x'."""
    scales, family = np.concatenate(plan.strategy.block_scales), plan.budget.noise
    row = [planned.block.sums({"b": np.zeros(1, np.int64)}) for planned in plan.strategy.blocks]
    here = np.full(len(scales), 2)
    there = here - np.concatenate(row)

    def ratios():
        for true in (here, there):
            pairs = zip(true.tolist(), scales.tolist(), strict=True)
            drawn = [add_noise(np.full(runs, total), scale, family) for total, scale in pairs]
            yield log_ratios(np.stack(drawn, axis=1), here, there, scales, family)

    loss = loss_of(family)
    proved = Event.choose(loss, *ratios()).proves(loss, *ratios())
    return proved / float(plan.budget.total)


@pytest.mark.parametrize(
    ("budget", "unit"), [(dps.PureDP(1), "replace"), (dps.ZCDP(2), "add_remove")]
)
def test_p61_p62_noisy_sums_show_no_more_than_the_budget(budget, unit, monkeypatch):
    """And of a halved sensitivity, more: some .8 of epsilon and .5 of rho (halved, 1.7 and 2.3)."""
    assert 0.1 < proved_of(planned(budget, unit)) <= 1
    for block in (Indicator, Partition, Table):  # the condition, and the number of rows

        def halved(self, unit, real=block.sensitivity):
            claimed = real(self, unit)
            return Sensitivity(claimed.l1 / 2, claimed.l2_squared / 4)

        monkeypatch.setattr(block, "sensitivity", halved)
    assert proved_of(planned(budget, unit)) > 1
