"""How overlapping tables share a part of the budget: the least noise in what is published.

Answers are combined from all tables (`measured.overlapping_tables`), so the noise is chosen for the
combined answers. A table splits into orthogonal residuals, one per set A of its columns. If v_A is
the noise variance of a residual's entries before they are centred, the variances of the cells of a
table over W add up to sum_{A in W} v_A prod_{a in A} (n_a - 1) / prod_{a in W - A} n_a (eq.
variances-of-tables of docs/explanation/inference/overlapping-tables.md, as all here). With weights
of the tables that is sum_A c_A v_A, to be minimised.

Gaussian noise measures the residuals themselves, as ResidualPlanner does [1]_. Adding or removing a
row, a residual that spends r_A has v_A = b_A / (2 r_A), b_A = prod_{a in A} (n_a - 1) / n_a, and
r_A proportional to sqrt(b_A c_A) is the optimum by Lagrange's rule (eq. parts-of-residuals).
Replacing a row, the largest cost over the sets D of columns that differ is what counts (eq.
residuals-together of docs/explanation/privacy/sensitivity.md): a convex program, solved by putting
prices on the sets D. Laplace noise has no such residuals, because their L1 sensitivity is large;
tables and their margins are measured whole, with shares from a local search.

References
----------
.. [1] Y. Xiao, G. He, D. Zhang and D. Kifer (2023), An optimal and scalable matrix mechanism for
   noisy marginals under convex loss functions, NeurIPS 36.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.tables.cells import Table
from dpstats.families.tables.residuals import (
    MOST_COLUMNS,
    Residual,
    differing_sets,
    joint_l2_squared,
    residuals_of,
)
from dpstats.privacy.laws import POWERS, Noise
from dpstats.privacy.neighbours import Unit
from dpstats.schema import Column

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Weights = Literal["balanced", "cells", "max", "equal"]
_ROUNDS = 60
_CLOSE = 1e-4  # relative gap at which a search ends
_TIGHT: Any = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 2_000, "maxfun": 20_000}
_LEAST_COUNT = Fraction(1, 100)  # share of the number of rows, which must be measured
_FINE = 2.0**60  # integers for precisions: a share is rounded to the squared cells over this


def check_weights(weights: object, shares: object) -> Weights:
    """The weights to use: those given, or the default; RequestError for others."""
    if weights is None:
        return "balanced" if shares is None else "equal"
    if shares is not None and weights != "equal":
        raise RequestError("give shares or weights, not both: each decides what tables get")
    if not isinstance(weights, str) or weights not in get_args(Weights):
        raise RequestError(
            f"weights must be one of {list(get_args(Weights))}, got {short(weights)}: it says how "
            "tables with common columns share what they get of the budget. Parts of the budget for "
            "each analysis are given as shares={'name': 2, ...}; weights of rows are not "
            "supported, so that every row counts once"
        )
    return cast("Weights", weights)


@dataclass(frozen=True, eq=False)
class TableSplit(Cached):
    """Overlapping tables that are published, and what is to be small.

    Adding or removing a row, the number of rows is measured too. Weights are "cells": the least sum
    of the variances of all cells; "balanced": the same with every table weighted by its number of
    cells to the power -1/2, since plain least squares harms small tables; "max": the least largest
    variance of a cell.
    """

    tables: Sequence[Table]
    unit: Unit
    weights: Weights

    @cached_property
    def residuals(self) -> list[Residual]:
        """All residuals of the tables."""
        return residuals_of(self.tables)

    @cached_property
    def sets(self) -> list[frozenset[Column]]:
        """The sets of columns of all residuals, the empty one first if n is measured."""
        own = [frozenset(residual.columns) for residual in self.residuals]
        return [frozenset(), *own] if self.unit == "add_remove" else own

    @cached_property
    def cells(self) -> Floats:
        """(T,) number of cells of every table."""
        return np.array([table.size for table in self.tables], dtype=np.float64)

    @cached_property
    def spread(self) -> csr_array[Any]:
        """(T, S) sum of a table's variances per unit of a residual's variance v_A."""
        from scipy import sparse

        number = {some: i for i, some in enumerate(self.sets)}
        rows, columns, entries = [], [], []
        for t, table in enumerate(self.tables):
            for size in range(len(table.columns) + 1):
                for chosen in itertools.combinations(table.columns, size):
                    if frozenset(chosen) in number:
                        inside = math.prod(c.bins - 1 for c in chosen)
                        others = table.size / math.prod(c.bins for c in chosen)
                        rows.append(t)
                        columns.append(number[frozenset(chosen)])
                        entries.append(inside / others)
        shape = len(self.tables), len(self.sets)
        return sparse.csr_array((entries, (rows, columns)), shape=shape)

    @cached_property
    def _first_weights(self) -> Floats:
        """(T,) weights of the sum of a table's variances."""
        return np.asarray(self.cells ** {"cells": 0.0, "balanced": -0.5, "max": -1.0}[self.weights])

    def value(self, variances: Floats) -> float:
        """Criterion to be minimised, for residuals of variances v_A (S,)."""
        of_tables = self.spread @ variances
        if self.weights == "max":
            return float(np.max(of_tables / self.cells))
        return float(self._first_weights @ of_tables)

    def weight(self, block: Block) -> float:
        """Weight of the variances of another block, beside those of the tables."""
        return float(block.size**-0.5) if self.weights == "balanced" else 1.0

    def least(self, noise: Noise) -> float:
        """Weighted sum of the variances, in counts, of what is measured with a budget of one."""
        rows = 2.0 if self.unit == "replace" else 1.0  # squared L2, and L1, sensitivity of a table
        if noise == "laplace":
            variances = 2 * rows**2 / (self.seen @ self.shares(noise) ** 2)
        elif self.whole_is_better:
            variances = rows / 2 / (self.seen @ self.shares(noise))
        else:
            variances = self.shrinkage / (2 * self.precisions)
        of_tables = self.spread @ variances
        return float(of_tables.sum() if self.weights == "max" else self._first_weights @ of_tables)

    # Gaussian noise: the residuals themselves.

    @cached_property
    def shrinkage(self) -> Floats:
        """(S,) b_A, squared length of the residual's functions over prod n_a^2."""
        return np.array([math.prod((c.bins - 1) / c.bins for c in some) for some in self.sets])

    @cached_property
    def changes(self) -> Floats:
        """(D, S) squared change of every residual for one row, over the same when it is added.

        One line per set of differing columns, or one of their maxima where there are too many.
        """
        if self.unit == "add_remove":
            return np.ones((1, len(self.sets)))
        columns = tuple(dict.fromkeys(c for r in self.residuals for c in r.columns))
        factors = [-1 / (column.bins - 1) for column in columns]
        at = {column: i for i, column in enumerate(columns)}
        if len(columns) > MOST_COLUMNS:
            worst = [1 + 1 / (min(c.bins for c in chosen) - 1) for chosen in self.sets]
            return 2 * np.array([worst])
        differs = differing_sets(len(columns))
        sides = np.where(differs, factors, 1.0).T.copy()
        change = np.empty((len(self.sets), len(differs)))
        for row, chosen in zip(change, self.sets, strict=True):
            row[:] = 2 * (1 - math.prod(sides[at[column]] for column in chosen))
        return change.T

    @cached_property
    def precisions(self) -> Floats:
        """(S,) r_A of residuals that spend one together, at the optimum."""
        weights, prices = self._first_weights, np.zeros(len(self.changes))
        used = self._first_changes()
        prices[used] = 1 / len(used)
        least, best = math.inf, np.zeros(len(self.sets))
        for number in range(1, _ROUNDS + 1):
            spent = self._least(weights, prices, used)
            cost = self.changes @ spent
            feasible = spent / cost.max()
            variances = self.shrinkage / (2 * feasible)
            value = self.value(variances)
            if value < least:
                least, best = value, feasible
            worst = int(cost.argmax())
            gap = cost.max() - 1
            if self.weights == "max":
                variance = (self.spread @ variances) / self.cells
                lower = float(weights @ (variance * self.cells)) / float(weights @ self.cells)
                gap = max(gap, least / lower - 1)
                weights = weights * (variance / variance.max()) ** min(1.0, 4 / math.sqrt(number))
            elif len(prices) == 1:
                break
            if gap <= _CLOSE:
                break
            if worst not in used:
                used.append(worst)
                prices[worst] = 1 / len(used)
        return best

    def _first_changes(self) -> list[int]:
        """Lines of `changes` to start with: all columns differ, or a single one."""
        last = len(self.changes) - 1
        singles = {2**i - 1 for i in range(last.bit_length())} if last else set()
        return sorted(singles | {last})

    def _least(self, weights: Floats, prices: Floats, used: list[int]) -> Floats:
        """(S,) r_A with the least weighted variances where the `used` changes cost at most one.

        By multiplicative steps on the prices of the changes, which are left in `prices`.
        """
        wanted = np.sqrt(self.shrinkage * (weights @ self.spread))
        changes = self.changes[used]
        shares = prices[used] / prices[used].sum()
        for _ in range(1 if len(used) == 1 else 400):
            root = wanted / np.sqrt(shares @ changes)
            spent = root / ((shares @ changes) @ root)
            cost = changes @ spent
            if cost.max() <= 1 + _CLOSE / 4:
                break
            shares = shares * cost
            shares /= shares.sum()
        prices[used] = shares
        return np.asarray(spent)

    def measured_residuals(self) -> tuple[list[Residual], list[Fraction], Fraction]:
        """Residuals, their squared noise scales for rho = 1, and the part of the number of rows."""
        count = self.precisions[0] if self.unit == "add_remove" else 0.0
        shares = self.precisions[1:] if self.unit == "add_remove" else self.precisions
        part = Fraction(float(count)).limit_denominator(10**6)
        lengths = [residual.squared_length for residual in self.residuals]
        whole = [
            Fraction(max(1, round(share * _FINE / length)))
            for share, length in zip(shares.tolist(), lengths, strict=True)
        ]
        spent = joint_l2_squared(self.residuals, whole, self.unit) / 2
        unit = (1 - part) / spent
        multipliers = [
            1 / (number * unit * int(residual.bounds[0]) ** 2)
            for residual, number in zip(self.residuals, whole, strict=True)
        ]
        return self.residuals, multipliers, part

    @property
    def whole_is_better(self) -> bool:
        """True if whole tables have less Gaussian noise, as when the cost is only bounded."""
        if self.unit == "add_remove" or len(self.changes) > 1:
            return False  # whole tables are residuals of certain scales
        whole = self.value(1 / (self.seen @ self.shares("gaussian")))  # a share e has variance 1/e
        return whole < self.value(self.shrinkage / (2 * self.precisions))

    # Whole tables.

    @cached_property
    def seen(self) -> csr_array[Any]:
        """(S, T) precision of residuals per that of cells, n last (eq. precision-of-residual)."""
        from scipy import sparse

        inside = np.array([math.prod(c.bins for c in some) for some in self.sets], dtype=np.float64)
        covers = self.spread.sign().T
        own = sparse.diags_array(inside) @ covers @ sparse.diags_array(1 / self.cells)
        count = sparse.csr_array(([1.0], ([0], [0])), shape=(len(self.sets), 1))
        return sparse.csr_array(sparse.hstack([own, count]) if self.unit == "add_remove" else own)

    def shares(self, noise: Noise) -> Floats:
        """(T,) shares of the budget, with the number of rows (T + 1,); the best of a local search.

        A table with the share e has precision e (Gaussian) or e^2 (Laplace) up to a factor. With
        squares the sum of the variances is not convex in the shares, and a margin of other tables
        is best not measured at all. Margins that are not published never helped either.
        """
        return self._once(("shares", noise), lambda: self._search(2 // POWERS[noise]))

    def _search(self, exponent: int) -> Floats:
        from scipy.optimize import minimize

        sizes = np.append(self.cells, 1.0)[: self.seen.shape[1]]
        powers = (1, 4, 16, 64, 256, 1024) if self.weights == "max" else (1,)
        least, best = math.inf, sizes
        for start in (sizes ** (1 / 3), np.ones(len(sizes)), sizes):
            logs = np.log(start)
            for power in powers:
                given = power, exponent
                logs = minimize(
                    self._loss, logs, given, jac=True, method="L-BFGS-B", options=_TIGHT
                ).x
            shares = np.exp(logs - logs.max())
            shares /= shares.sum()
            value = self.value(1 / (self.seen @ shares**exponent))
            if value < least:
                least, best = value, shares
        return np.asarray(best)

    def _loss(self, logs: Floats, power: int, exponent: int) -> tuple[float, Floats]:
        """Logarithm of the norm of the tables' weighted variances, with its gradient.

        At shares proportional to exp(logs), precisions proportional to their `exponent`. The norm
        of power 1 is the sum, and of a large power nearly the largest.
        """
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        precisions = self.seen @ shares**exponent
        variance = self._first_weights * (self.spread @ (1 / precisions))
        largest = variance.max()
        raised = (variance / largest) ** power
        loss = math.log(largest) + math.log(raised.sum()) / power
        weights = raised / raised.sum() / variance * self._first_weights
        slope = -exponent * shares**exponent * ((weights @ self.spread / precisions**2) @ self.seen)
        return loss, slope - shares * slope.sum()

    def measured_tables(self, noise: Noise) -> tuple[list[Table], list[Fraction], Fraction]:
        """Tables to measure, their shares of the budget and that of the number of rows."""
        shares = self.shares(noise).tolist()
        whole = [Fraction(share).limit_denominator(10**6) for share in shares]
        if self.unit == "add_remove":
            whole[-1] = max(whole[-1], _LEAST_COUNT)
        total = sum(whole)
        chosen = [(t, s / total) for t, s in zip(self.tables, whole, strict=False) if s]
        count = whole[-1] / total if self.unit == "add_remove" else Fraction(0)
        return [table for table, _ in chosen], [share for _, share in chosen], count
