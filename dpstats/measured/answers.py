"""Estimates of functions from the measurements, with the exact law of their noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.error_rates import bonferroni
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import ROWS
from dpstats.measured.combining import Constraints, Sources, WeightRows, law_of_key
from dpstats.measured.measurements import Measurements
from dpstats.measured.row_count import RowCount
from dpstats.privacy.laws import joint_quantiles
from dpstats.privacy.weighted_noise import JointNoise, divided
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.privacy.laws import LatticeLaw, NoiseLaw


_MOST_WEIGHTS = 10**7  # beyond it independence is not looked for


class Asking(Protocol):
    """Anything with a family of functions, such as an analysis."""

    def family(self, schema: Schema) -> Family:
        """The functions that it needs."""


@dataclass(frozen=True)
class Answers(Cached):
    """Estimates of d wanted sums, with the law of each one's noise.

    Attributes
    ----------
    names : list of str
    sums : (d,) float64
        Noisy sums over the private rows, in integer units; integers where no averaging was done.
    bounds : (d,) int64
        B_f; the noisy mean in unit scale is sums / (n bounds).
    rows : RowCount
        Number of private rows, or the best estimate of it.
    uniforms : (d,) float64
        Uniform on (-1/2, 1/2), independent of the noise: the law of sums + uniforms is continuous.
    law_table : list of laws
        The distinct laws of the noise on the sums.
    law_of : (d,) int64
        Index into `law_table`.
    unit : float
        What sums were divided by: see `of_persons`.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> answers = dps.release(plan, rows).answers(dps.Cells.condition(schema, "smoker"))
    >>> print(answers.names, answers.means.round(2))
    ['smoker'] [0.3]
    >>> answers.law(0).quantile(0.05)  # a 95% bound on the noise
    3
    """

    names: list[str]
    sums: Floats
    bounds: Codes
    rows: RowCount
    uniforms: Floats
    law_table: list[NoiseLaw]
    law_of: NDArray[np.intp]
    _rows: WeightRows = field(repr=False)
    _measured: tuple[list[LatticeLaw], NDArray[np.intp]] = field(repr=False)
    unit: float = 1.0

    @property
    def n(self) -> int:
        """Number of private rows; estimated, and at least 1, where it is not public."""
        return self.rows.value

    @cached_property
    def means(self) -> Floats:
        """Noisy means in unit scale, (d,) float64, unclipped."""
        return self.sums / (self.n * self.bounds)

    @cached_property
    def noise_variances(self) -> Floats:
        """Variance of the noise on the means, unit scale, (d,) float64."""
        variances = np.array([law.variance for law in self.law_table])[self.law_of]
        return variances / (self.n * self.bounds.astype(np.float64)) ** 2

    @cached_property
    def impossible(self) -> NDArray[np.bool_]:
        """Which functions (d,) are zero in every row that the rules between columns allow."""
        of_blocks = [self._rows.sources.impossible(block) for block in self._rows.blocks]
        return np.concatenate(of_blocks)[list(self._rows.functions)]

    @property
    def constraint_notes(self) -> list[str]:
        """Notes on how the answers use rules and totals."""
        sources = self._rows.sources
        notes = [note for block in self.blocks for note in sources.constraint_notes(block.columns)]
        return list(dict.fromkeys(notes))

    @cached_property
    def with_totals(self) -> Answers:
        """Answers that use the public totals of the table too, of less noise."""
        return self._under("totals")

    @cached_property
    def without_totals(self) -> Answers:
        """Answers that use no public total of the table, for certified statements."""
        return self._under("rules")

    def _under(self, constraints: Constraints) -> Answers:
        sources, rows = self._rows.sources, self.rows
        totals = sources.measurements.schema.totals
        if not totals or sources.constraints in (constraints, "none"):
            return self
        other = sources.with_constraints(constraints)
        answers = answer(other, self._rows.blocks, disjoint=self._rows.disjoint)
        answers = answers.subset(self._rows.functions)
        if self.unit != 1:
            return answers.of_persons
        return answers if rows == answers.rows else replace(answers, rows=rows)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The requested blocks; second stages at the pilot that they were measured at."""
        return self._rows.blocks

    def subset(self, chosen: slice | Sequence[int]) -> Self:
        """The answers to some of the functions, by a slice or by their numbers."""
        chosen = range(len(self.sums))[chosen] if isinstance(chosen, slice) else list(chosen)
        return replace(
            self,
            names=[self.names[f] for f in chosen],
            sums=self.sums[chosen],
            bounds=self.bounds[chosen],
            uniforms=self.uniforms[chosen],
            law_of=self.law_of[chosen],
            _rows=self._rows and self._rows.select(chosen),
        )

    def of_counted_rows(self) -> Answers:
        """The answers about the rows that the last function counts, such as a subgroup.

        Their number is not public: it is that noisy count.
        """
        k = self.rows.rows_per_person
        rows = RowCount(float(self.sums[-1]), self.law(-1), k, of_group=True)
        return replace(self, rows=rows)

    @cached_property
    def of_persons(self) -> Answers:
        """The answers as if every person had k rows that are all alike, k the most of a person.

        Sums, their noise and the number of rows are divided by k, or where the number of rows is
        public by what leaves a whole number of persons. Counts are then binomial. Where rows are
        independent these are the answers themselves.
        """
        if self.rows.rows_per_person == 1:
            return self
        rows, persons = self.rows, self.rows.fewest_persons
        unit = rows.value / persons.value if rows.public else float(rows.rows_per_person)
        return replace(
            self,
            sums=self.sums / unit,
            rows=persons,
            law_table=[divided(law, unit) for law in self.law_table],
            unit=self.unit * unit,
        )

    def law(self, f: int) -> NoiseLaw:
        """The noise law of function number f."""
        return self.law_table[int(self.law_of[f])]

    def quantiles(self, beta: float) -> Floats:
        """Bounds (d,) on the noise, each of which holds with probability 1 - beta."""
        used, which = np.unique(self.law_of, return_inverse=True)
        return np.array([self.law_table[i].quantile(beta) for i in used], dtype=np.float64)[which]

    @property
    def bound_only(self) -> bool:
        """True if only bounds on the noise are known, whose error is counted elsewhere."""
        return all(law.bound_only for law in self.law_table)

    @cached_property
    def weights(self) -> Floats:
        """The noise on the sums as weights (d, |F|) on the independent measured noises."""
        return self._rows.matrix() / self.unit

    @cached_property
    def with_count(self) -> tuple[list[JointNoise], NDArray[np.intp]] | None:
        """Joint laws of the noise on each sum and on the number of rows, and which each has (d,).

        None where the number of rows is public, or is not the one that was measured.
        """
        sources = self._rows.sources
        if self.rows.public or self.rows not in (sources.rows, sources.rows.fewest_persons):
            return None
        keys = self._rows.joint_keys(self.law_of)
        distinct = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        budget = sources.measurements.budget
        laws = [
            JointNoise(tuple((a, b, budget.law(scale, count)) for a, b, scale, count in key)).over(
                self.unit
            )
            for key in distinct
        ]
        return laws, np.array([distinct[key] for key in keys], dtype=np.intp)

    def noise_of_shares(self, shares: Floats) -> Floats:
        """Variances (d,) of the noise on (count - share N) / n, for counts of cells and rows N."""
        count, joint = self.rows.law, self.with_count
        if joint is None:  # the covariance with the number of rows of a subgroup is neglected
            return self.noise_variances + shares**2 * (count.variance if count else 0) / self.n**2
        laws, which = joint
        variances = np.zeros(len(shares))
        for i, law in enumerate(laws):
            variances[which == i] = law.variance(shares[which == i])
        return variances / self.n**2

    def noise_less_rows(self, weights: Floats, share: float) -> float:
        """Variance of the noise on a combination (d,) of the sums, less a share of all rows."""
        noise, count = float(weights @ self.noise_covariance @ weights), self.rows.law
        if count is None:
            return noise
        if self.with_count is not None:
            laws, which = self._measured
            variances = np.array([law.variance for law in laws])[which]
            crossed = (weights @ self.weights * variances) @ self._rows.sources.weights_of_count
            noise -= 2 * share * float(crossed) / self.unit
        return noise + share**2 * count.variance

    @cached_property
    def independent(self) -> bool:
        """True if no two answers share a measured noise; False, too, where there are very many."""
        if len(self.sums) * len(self._measured[1]) > _MOST_WEIGHTS:
            return False
        return bool(np.all(np.count_nonzero(self.weights, axis=0) <= 1))

    @cached_property
    def share_noise(self) -> bool:
        """True if some answers share a measured noise, as far as noises are known."""
        return not (self.bound_only or self.independent)

    @property
    def noise_parts(self) -> Sequence[tuple[Floats, NoiseLaw]]:
        """The noise on the sums as independent ones with weights (d,): each sum's own, if it is."""
        if self.share_noise:
            return self.noise_groups
        units = np.eye(len(self.sums))
        return [(weights, self.law(f)) for f, weights in enumerate(units)]

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance (d, d) of the noise on the sums."""
        laws, which = self._measured
        variances = np.array([law.variance for law in laws])[which]
        return np.asarray((self.weights * variances) @ self.weights.T)

    def noise_of(self, weights: Floats) -> list[tuple[float, LatticeLaw]]:
        """The noise on a combination (d,) of the sums: weights, and laws of what they multiply."""
        laws, which = self._measured
        along = np.round(weights @ self.weights, 12)
        used = np.flatnonzero(along)
        groups = Counter(zip(along[used].tolist(), which[used].tolist(), strict=True))
        return [(w, replace(laws[law], terms=count)) for (w, law), count in groups.items()]

    @cached_property
    def noise_groups(self) -> list[tuple[Floats, LatticeLaw]]:
        """The noise on the sums in few terms: weights (d,), and the law of what they multiply."""
        laws, which = self._measured
        scales = np.array([law.scale for law in laws])[which]
        columns = np.round(np.vstack([self.weights, scales]), 12)
        used = np.flatnonzero(np.any(columns[:-1] != 0, axis=0))
        distinct, first, counts = np.unique(
            columns[:, used], axis=1, return_index=True, return_counts=True
        )
        return [
            (weights[:-1], replace(laws[which[used[i]]], terms=int(count)))
            for weights, i, count in zip(distinct.T, first, counts, strict=True)
        ]


def answer(
    measured: Measurements | Sources,
    wanted: Family | Block | Sequence[Block] | Asking,
    *,
    disjoint: bool = False,
    with_count: bool = False,
) -> Answers:
    """Estimate functions from the measurements; see `Release.answers`."""
    sources = measured if isinstance(measured, Sources) else Sources(measured)
    blocks = [sources.as_measured(b) for b in blocks_of(wanted, sources.measurements.schema)]
    if with_count and sources.n is None:
        blocks = [*blocks, ROWS]
    estimates = [sources.best(block, disjoint=disjoint) for block in blocks]
    keys = [key for estimate in estimates for key in estimate.laws]
    distinct = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return Answers(
        names=[name for block in blocks for name in block.names],
        sums=np.concatenate([estimate.sums for estimate in estimates]),
        bounds=np.concatenate([block.bounds for block in blocks]),
        rows=sources.rows,
        uniforms=np.concatenate([estimate.uniforms for estimate in estimates]),
        law_table=[law_of_key(sources.measurements, key) for key in distinct],
        law_of=np.array([distinct[key] for key in keys], dtype=np.intp),
        _rows=WeightRows(sources, tuple(blocks), disjoint, range(len(keys))),
        _measured=(sources.laws, sources.law_of),
    )


def joint_noise_quantiles(answers: Answers, beta: float) -> Floats:
    """Bounds (d,) on the noise of all sums that hold jointly with probability 1 - beta.

    Exact products where the noises are independent; otherwise Bonferroni's inequality, which holds
    for any dependence.
    """
    if all(answers.law_table[i].lattice for i in np.unique(answers.law_of)) and answers.independent:
        laws = [answers.law_table[i] for i in answers.law_of]
        return joint_quantiles(laws, beta).astype(np.float64)
    return answers.quantiles(bonferroni(beta, len(answers.sums)))


def blocks_of(wanted: object, schema: Schema) -> Sequence[Block]:
    """The requested blocks; RequestError for anything else."""
    if callable(getattr(wanted, "family", None)) and not isinstance(wanted, type):
        wanted = wanted.family(schema)  # type: ignore[attr-defined]
    if isinstance(wanted, Family):
        return wanted.blocks
    several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    blocks: Sequence[Any] = wanted if several else [wanted]  # type: ignore[assignment]
    for block in blocks:
        if isinstance(block, type) or not hasattr(block, "derive"):
            raise RequestError(
                "answers takes an analysis, a family, a block such as dps.Cells.table(schema, "
                f"[...]), or a list of blocks; got {type(block).__name__}"
            )
    if not blocks:
        raise RequestError("answers takes at least one block; got an empty list")
    return blocks
