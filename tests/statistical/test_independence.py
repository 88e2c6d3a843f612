"""Level and power of the test of independence, and coverage for Cramer's V."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.tables.independence import Association, _verdict, noisy_table

ALPHA = 0.05
EVEN = np.full((1, 2, 2), 0.25)
BENT = np.array([[[1, -1], [-1, 1]]])
UNEVEN = np.outer([0.1, 0.9], [0.3, 0.7])[np.newaxis]
SPARSE = np.outer([0.7, 0.25, 0.05], [0.6, 0.3, 0.07, 0.03])[np.newaxis]
SPARSE_BENT = SPARSE + 0.02 * np.array([[[-1, 1, 0, 0], [1, -1, 0, 0], [0, 0, 0, 0]]])
STRATA = np.stack([
    0.6 * np.outer([0.3, 0.7], [0.5, 0.3, 0.2]), 0.4 * np.outer([0.8, 0.2], [0.2, 0.2, 0.6])
])  # fmt: skip
UNEQUAL = np.full((5, 1, 1), 0.2) * np.outer([0.1, 0.9], [0.1, 0.9])


def draws(p, n, budget, runs, tools, seed):
    """Noisy tables of fresh rows and fresh noise, of which p are the probabilities, (k, r, c)."""
    sizes = [size for size in p.shape if size > 1]
    names = "kab"[3 - len(sizes) :]
    schema = dps.Schema(
        [dps.Category(c, [f"{c}{i}" for i in range(s)]) for c, s in zip(names, sizes, strict=True)]
    )
    test = dps.Independence("a", "b", given="k" if "k" in names else None)
    plan = dps.plan(schema, {"t": test}, budget=budget, n=n)
    for *_, view in tools.fresh(plan, n, lambda rng: rng.multinomial(n, p.ravel()), runs, seed):
        yield noisy_table(test, view)


def rejections(p, n, budget, runs, tools, seed, simulations=199):
    rng = np.random.default_rng(seed + 2)
    tables = draws(p, n, budget, runs, tools, seed)
    return sum(table.test(simulations, rng)[1] <= ALPHA for table in tables)


LEVELS = [
    ("even", EVEN, 4000, dps.PureDP(0.1)), ("even", EVEN, 200, dps.PureDP(0.05)),
    ("even", EVEN, 200, dps.PureDP(5)), ("even", EVEN, 50_000, dps.PureDP(0.05)),
    ("unequal", UNEVEN, 1000, dps.PureDP(0.1)), ("unequal", UNEVEN, 200, dps.PureDP(5)),
    ("even 3x4", np.full((1, 3, 4), 1 / 12), 1000, dps.PureDP(0.1)),
    ("sparse", SPARSE, 200, dps.PureDP(0.05)), ("sparse", SPARSE, 200, dps.PureDP(5)),
    ("sparse", SPARSE, 50_000, dps.PureDP(0.05)), ("strata", STRATA, 1000, dps.PureDP(0.1)),
    ("strata", STRATA, 50_000, dps.PureDP(5)), ("5 strata", UNEQUAL, 2000, dps.PureDP(0.033)),
    ("rare level", np.outer([0.01, 0.99], [0.01, 0.99])[None], 200, dps.PureDP(0.05)),
    ("even", EVEN, 1000, dps.ZCDP(0.005)),
    ("even 3x3", np.full((1, 3, 3), 1 / 9), 200, dps.ZCDP(1)),
    ("unequal 2x3", np.outer([0.2, 0.8], [0.1, 0.3, 0.6])[None], 2000, dps.ZCDP(0.01)),
]  # fmt: skip


@pytest.mark.simulate(LEVELS, few=(1, 16), runs=(150, 4_000))
def test_levels(setting, runs, table, tools):
    """150 runs: above about .17 is seen."""
    name, p, n, budget = setting
    simulations = 99 if runs < 1_000 else 199
    found = rejections(p, n, budget, runs, tools, 100, simulations)
    table.level(f"{name}, {n}, {budget}", "ours: level", found, runs, 0.06)


@pytest.mark.simulate([(4_000, dps.PureDP(0.1))], few=(0,), runs=(200, 4_000))
def test_power(setting, runs, table, tools):
    """In many runs two standard errors around the target of .46; in few, of fewer draws, four."""
    simulations, target, errors = (199, 0.41, 4) if runs < 1_000 else (499, 0.46, 2)
    found = rejections(EVEN + 0.01 * BENT, *setting, runs, tools, 5, simulations)
    least, reference = target - errors * np.sqrt(0.25 / runs), ">= .46 (others .399, .447)"
    table.check("+-.01, n=4000, eps .1", "ours: power", found / runs, "", reference, runs, least)


def cramers_v(p):
    expected = p.sum(axis=2, keepdims=True) * p.sum(axis=1, keepdims=True) / p.sum((1, 2))
    return float(np.sqrt(np.sum((p - expected) ** 2 / expected) / (min(p.shape[1:]) - 1)))


EFFECTS = [
    ("V=0", EVEN, 1000, dps.PureDP(0.1)), ("V=.2", EVEN + 0.05 * BENT, 1000, dps.PureDP(0.1)),
    ("V=.2", EVEN + 0.05 * BENT, 4000, dps.PureDP(1)), ("3x4", SPARSE_BENT, 4000, dps.PureDP(0.5)),
    ("V=.8", EVEN + 0.2 * BENT, 200, dps.PureDP(5)),
]  # fmt: skip


@pytest.mark.simulate(EFFECTS, few=(1,), runs=(40, 600))
def test_intervals_for_cramers_v(setting, runs, table, tools):
    """40 runs: sees a coverage below .65."""
    name, p, n, budget = setting
    rng, truth, covered, widths = np.random.default_rng(1), cramers_v(p), 0, []
    for t in draws(p, n, budget, runs, tools, 1000):
        association = Association(t.expected(t.observed), t.n, t.covariance)
        low, high = association.interval(t.observed, t.expected, t.noise(400, rng), ALPHA, rng)
        covered += low - 1e-12 <= truth <= high
        widths.append(high - low)
    width = float(np.mean(widths))
    table.covers(f"{name}, {n}, {budget}", "V (approximate)", covered, runs, 0.93, width)


VERDICTS = [(reach, n, dps.PureDP(1)) for reach in (0.0, 0.05) for n in (4_000, 20_000)]


@pytest.mark.simulate(VERDICTS, few=(0, 2), runs=(20, 300))
def test_certified_verdicts(setting, runs, table, tools):
    reach, n, budget = setting
    verdicts = [
        _verdict(t, ALPHA).verdict for t in draws(EVEN + reach * BENT, n, budget, runs, tools, n)
    ]
    wrong = "accept" if reach else "reject"
    for verdict in ("reject", "accept", "inconclusive"):
        row = f"+-{reach}, n={n}, eps 1", f"certified: {verdict}"
        if verdict == wrong:
            table.level(*row, verdicts.count(verdict), runs, ALPHA)
        else:
            table.row(*row, verdicts.count(verdict) / runs, runs=runs)
