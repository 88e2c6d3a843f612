"""Rows of random tables: as many as asked for, in the schema, no worse than independent columns.

Schemas, dependencies, sizes, budgets and families are drawn; the noise is that of the plan, from a
seed. Independent columns are drawn from the one-way answers of the same measurements.
"""

from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.block import Family
from dpstats.families.tables.cells import Table
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements

LEVELS = (2, 2, 2, 3, 5, 8, 12, 40)
ROWS = (0, 1, 5, 100, 3_000)
BUDGETS = ("1/1000", "1/30", "1", "30", "1000", "1000000")
FAMILIES = ("pairs", "one way", "triples", "pairs and moments", "some pairs")
KINDS = ("independent", "determined", "chain", "empty levels")
INDEPENDENT = 8  # draws of rows of independent columns
FEW = (36, 123, 137, 156, 175, 191)
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 200) if seed not in FEW]


class Case:
    """A random table with noisy answers."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.asked, self.kind = rng.choice(FAMILIES), rng.choice(KINDS)
        self.n = int(rng.choice(ROWS, p=[0.05, 0.1, 0.1, 0.35, 0.4]))
        levels = LEVELS[:-1] if self.asked == "triples" else LEVELS
        sizes = rng.choice(levels, rng.integers(2, 6 if self.asked == "triples" else 9))
        sizes[rng.integers(len(sizes))] = 2  # or there might be nothing to measure
        self.sizes = sizes.tolist()
        columns = [dps.Category(f"c{i}", list(range(k))) for i, k in enumerate(self.sizes)]
        self.names = [column.name for column in columns]
        if self.asked == "pairs and moments":
            columns += [dps.Number(f"x{i}", -1, 1, points=21, missing=0) for i in range(2)]
        self.codes = self._codes()
        unit = "add_remove" if self.n == 0 or rng.random() < 0.4 else "replace"
        budget, total = rng.choice([dps.PureDP, dps.ZCDP]), Fraction(str(rng.choice(BUDGETS)))
        plan = dps.plan(
            dps.Schema(columns), self._analyses(), budget=budget(total), unit=unit,
            n=self.n if unit == "replace" else None, reference=dps.LogLinear(),
        )  # fmt: skip
        self.text = (
            f"{seed}: {self.sizes} {self.kind}, {self.asked}, n={self.n}, {plan.budget} {unit}"
        )
        self.measurements = self._measured(plan)

    def _analyses(self):
        names, alone = self.names, {c: dps.Marginals([c], degree=1) for c in self.names}
        return {
            "pairs": {"t": dps.Marginals(names)},
            "one way": alone,
            "triples": {"t": dps.Marginals(names, degree=min(3, len(names)))},
            "pairs and moments": {"t": dps.Marginals(names), "s": dps.PCA(["x0", "x1"])},
            "some pairs": {"t": dps.Marginals(names[:2]), **{c: alone[c] for c in names[2:]}},
        }[self.asked]

    def _codes(self):
        rng, n, codes = self.rng, self.n, {}
        before = rng.integers(60, size=n)
        for i, size in enumerate(self.sizes):
            chances = rng.dirichlet(np.full(size, 0.5))
            if self.kind == "empty levels":
                chances = np.where(rng.random(size) < 0.6, 0, chances)
                chances[0] += 1 - chances.sum()
            own = rng.choice(size, n, p=chances)
            if i and self.kind == "determined":
                own = codes["c0"] % size
            if i and self.kind == "chain":
                own = np.where(rng.random(n) < 0.8, before * 7 % size, own)
            codes[f"c{i}"] = before = own.astype(np.int64)
        factor = rng.normal(0, 4, n)
        for i in range(2):
            number = np.clip(np.rint(factor + rng.normal(0, 2, n)), -10, 10)
            codes[f"x{i}"] = number.astype(np.int64)
        return codes

    def _measured(self, plan):
        """Measurements with rounded normal or Laplace noise of the plan's scales."""
        strategy = plan.strategy
        sums = np.concatenate([
            [self.n] if block.role == "count" else block.block.sums(self.codes)
            for block in strategy.blocks
        ])  # fmt: skip
        draw = self.rng.normal if strategy.budget.noise == "gaussian" else self.rng.laplace
        noise = np.rint(draw(size=len(sums)) * np.concatenate(strategy.block_scales))
        return Measurements(
            strategy, sums + noise.astype(np.int64), np.zeros(len(sums)),
            plan.reference.to_dict(), not_private=True,
        )  # fmt: skip


@pytest.mark.parametrize("seed", [*FEW, *SLOW])
def test_rows_of_a_table(seed):
    case = Case(seed)
    sources, release = Sources(case.measurements), dps.synthesize(case.measurements, rng=seed)
    assert release.k == release.counts.sum() == sources.rows.value, case.text
    assert release.counts.min() >= 0, case.text
    assert np.all(np.isfinite(release.weights)), case.text
    assert release.weights.min() >= 0, case.text
    for column in case.measurements.columns:
        codes = release.candidates[column.name]
        allowed = column.all_codes if isinstance(column, dps.Number) else range(column.bins)
        assert np.isin(codes, list(allowed)).all(), case.text
    assert not any("failed" in note for note in release.notes), case.text
    blocks = case.measurements.published.blocks
    pairs = [b for b in blocks if isinstance(b, Table) and len(b.columns) == 2]
    if not pairs or min(case.n, release.k) < 100:
        return
    family = Family(tuple(pairs))
    noisy = answer(sources, family).means

    def misfit(codes, shares):
        return float(np.abs(family.evaluate(codes).average(shares) - noisy).mean())

    ours = misfit(release.candidates, release.counts / release.k)
    # Rows whose columns are drawn from their own noisy answers, and three deviations more.
    chances, rng = {}, np.random.default_rng(0)
    for name in sorted(family.column_names):
        own = np.maximum(answer(sources, Table((case.measurements.columns[name],))).means, 0) + 1e-9
        chances[name] = own / own.sum()
    even = np.full(release.k, 1 / release.k)
    found = [
        misfit({name: rng.choice(len(p), release.k, p=p) for name, p in chances.items()}, even)
        for _ in range(INDEPENDENT)
    ]
    limit = 1.02 * np.mean(found) + 3 * np.std(found, ddof=1)
    assert ours <= limit + 1e-9, f"{case.text}: {ours:.5g}, limit {limit:.5g}"
