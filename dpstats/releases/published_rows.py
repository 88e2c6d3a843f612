"""Inference from published rows, a radius and n alone, without the release.

The rows are a view as analyses get it: answers are means over the rows, each with a bound in place
of a noise law. An analysis computes its estimates on the rows, as BL24 does; of its intervals only
certified ones are shown, which need bounds and no law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from dpstats.analyses.base import Analysis, answered
from dpstats.analyses.registry import BUILT_IN, spelled
from dpstats.arrays import Codes, Floats
from dpstats.caching import Cached
from dpstats.checks import check_counts, check_number, columns_named, short
from dpstats.error_rates import USUAL_BETA
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Block, Family
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import ROWS
from dpstats.measured.answers import blocks_of
from dpstats.measured.bounded import Bounded, BoundedAnswers, Switch
from dpstats.measured.radius import Radius, Rows, SpectralRadius
from dpstats.measured.row_count import RowCount
from dpstats.releases.rows_only import RowsResult, RowsTest
from dpstats.results.base import SILENT, Result
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.schema import Category, Column, Schema, arrow

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.privacy.budget import Budget


def infer(
    analysis: Analysis[Result],
    rows: pd.DataFrame,
    *,
    radius: Mapping[str, float] | float,
    n: Rows | None = None,
    schema: Schema,
    beta: float | None = None,
) -> RowsResult | RowsTest:
    """Estimates on published rows with certified intervals and tests, from a radius and n alone.

    Estimates are what the analysis computes on the rows: proportions, least squares, principal
    components. On the event that every mean over the rows is within the radius of that over the
    private rows, certified intervals given the bounds err with probability alpha - beta at most;
    the event fails with probability beta at most; so they err with probability alpha at most.

    Parameters
    ----------
    analysis : Analysis
        Of dpstats, or your own if its intervals are those of dpstats, or have an attribute
        ``from_bounds = True``: then its certified intervals use the noise only through
        ``law(f).quantile`` and ``rows.bounds``.
    rows : DataFrame
        The synthetic rows, in original units: ``release.to_frame()``, or ``rows.csv``.
    radius : mapping of function name to float, or float
        ``release.radius("name")``, which also knows the error of a covariance matrix as a whole. Or
        one number that bounds every function of the analysis in unit scale, such as
        ``release.radius("name").max``; then intervals are never shorter. The headline of a
        certificate bounds measured functions, and an analysis may use sums of them: take the radius
        of the analysis.
    n : int, or (int, int)
        Number of private rows, or bounds on it where it is not public, as ``release.radius("name")
        .n``, which hold jointly with the radius. Not needed with ``release.radius("name")``.
    schema : Schema
    beta : float, optional
        Probability that a number or a plain mapping fails, 0.025 if not given: half the error of a
        95% interval. ``release.radius("name")`` has its own.

    Returns
    -------
    RowsResult, or RowsTest for a chi-square test

    References
    ----------
    Bojkovic, N. and Loh, P.-L. (2024). Differentially private synthetic data with private density
    estimation. IEEE ISIT.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> smoking = dps.Proportion("smoker")
    >>> plan = dps.plan(schema, {"smoking": smoking}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> release = dps.release(plan, rows)
    >>> published, radius = release.to_frame(), release.radius("smoking")
    >>> found = dps.corrected.infer(smoking, published, radius=radius, schema=schema)
    >>> print(found.conf_int().round(2), found.beta)
    [0.29 0.31] 0.025
    """
    if isinstance(analysis, type | str) or not hasattr(analysis, "infer"):
        raise RequestError(
            "infer takes an analysis with its parameters, such as "
            "dps.Proportion(\"smoker == 'yes'\"): rows have no names of analyses; got "
            f"{short(analysis)}"
        )
    if not isinstance(schema, Schema):
        raise RequestError(
            f"schema must be the dps.Schema of the rows, got {type(schema).__name__}"
        )
    family = answered(analysis, schema)
    known = _Known.of(analysis, family, radius, n, beta)
    view = PublishedRows(
        schema, _coded(analysis, schema, rows), known, family, Switch(refused=False)
    )
    result = analysis.infer(view)
    if not _reads_bounds(analysis, result):
        result = analysis.infer(view.strict)
    view.draws.refused = True
    found: Any = result
    shared: dict[str, Any] = {"title": result.title, "beta": known.beta, "n": known.n}
    if hasattr(result, "rows"):
        k = radius.rows_per_person if isinstance(radius, Radius) else 1
        shared["rows"] = replace(found.rows, rows_per_person=k)
    if hasattr(result, "certified_at"):  # a chi-square test
        return RowsTest(
            null=found.null,
            cells=found.cells,
            shares=np.asarray(found.observed) / known.size,
            effect_name=found.effect_name,
            levels=found.levels,
            largest_effect=found.largest_effect,
            certified_at=found.certified_at,
            **shared,
        )
    if not isinstance(result, EstimateResult):
        raise RequestError(
            f"{spelled(analysis)} gives a {type(result).__name__}, which has no certified "
            "intervals from a radius; infer it from the release"
        )
    return RowsResult(
        terms=result.terms,
        params=Named(np.asarray(result.params), result.terms),
        intervals=result.intervals,
        scalar=result.scalar,
        notes=[note for note in result.notes if note.startswith(SILENT)],
        dates=result.dates,
        **shared,
    )


def _reads_bounds(analysis: Analysis[Result], result: Result) -> bool:
    """Whether certified intervals are known to use bounds on the noise, not its law."""
    if type(analysis).__module__.startswith("dpstats.") and analysis.kind in BUILT_IN:
        return True
    intervals = getattr(result, "intervals", None)
    ours = type(intervals).__module__.startswith("dpstats.")
    return isinstance(result, EstimateResult) and (ours or getattr(intervals, "from_bounds", False))


@dataclass(frozen=True)
class _Known:
    """The radius and the number of rows that were published beside the rows.

    Attributes
    ----------
    radii : mapping of function name to bound, unit scale
    sums : the same for sums over `size`, where known to be sharper
    n : (int, int)
        Bounds on the number of private rows.
    size : int
        The number, or an estimate between the bounds.
    beta : float
    spectral : SpectralRadius or None
    """

    radii: Mapping[str, float]
    sums: Mapping[str, float]
    n: tuple[int, int]
    size: int
    beta: float
    spectral: SpectralRadius | None

    @classmethod
    def of(
        cls,
        analysis: Analysis[Result],
        family: Family,
        radius: Mapping[str, float] | float,
        n: Rows | None,
        beta: float | None,
    ) -> _Known:
        """Checked arguments of `infer`."""
        if isinstance(radius, Radius):
            if n is not None and check_counts(n) != check_counts(radius.n):
                raise RequestError(f"n differs from that of the radius, {radius.n}; leave n out")
            if beta is not None:
                raise RequestError(
                    f"the radius has its own beta, {radius.alpha:g}; leave beta out, or ask for "
                    f"release.radius(name, alpha={beta:g})"
                )
            n, beta = radius.n, radius.alpha
        elif n is None:
            raise RequestError(
                "n is needed with a radius that is not release.radius(name): the number of private "
                "rows, or a pair (low, high) of bounds on it"
            )
        ends = check_counts(n)
        beta = USUAL_BETA if beta is None else check_number("beta", beta)
        if not 0 <= beta < 0.5:
            raise RequestError(
                f"beta={beta:g} must be at least 0 and below 1/2: it is the probability that the "
                "radius fails"
            )
        if isinstance(radius, Mapping):
            radii = {name: _checked(f"radius of {name!r}", value) for name, value in radius.items()}
        else:
            radii = dict.fromkeys(family.names, _checked("radius", radius))
        size, sharper, spectral = sum(ends) // 2, dict[str, float](), None
        if isinstance(radius, Radius):
            if radius.names == tuple(family.names) and hasattr(analysis, "spectral_radius"):
                spectral = radius.spectral
            if radius.of_sums is not None and radius.estimate is not None:
                size = int(np.clip(radius.estimate, *ends))
                by_name = dict(zip(radius.names, radius.of_sums.tolist(), strict=True))
                if size == radius.estimate and len(by_name) == len(radius.names):
                    sharper = by_name  # else two functions have one name
        return cls(radii, sharper, ends, size, beta, spectral)

    @property
    def public(self) -> bool:
        """Whether the number of rows is known."""
        return self.n[0] == self.n[1]

    @property
    def off(self) -> float:
        """Bound on the distance of the number of rows from `size`."""
        return float(max(self.n[1] - self.size, self.size - self.n[0]))

    def of_sum(self, name: str, mean: float, radius: float) -> float:
        """Bound on the distance of mean_Y f from S_f / (size B_f), from that of the means.

        S / size = (n / size) mean_X, and mean_X is within the radius of mean_Y.
        """
        if self.public:
            return radius
        from_mean = self.n[1] / self.size * radius + abs(mean) * self.off / self.size
        return min(from_mean, self.sums.get(name, np.inf))


@dataclass(frozen=True, eq=False)
class PublishedRows(Cached):
    """Published rows as a view for analyses; see `dps.ReleaseView`.

    Attributes
    ----------
    schema : Schema
    codes : mapping of column name to (k,) int64
    known : what was published beside them
    family : Family
        The functions that the radius is about.
    draws : Switch
    refused : bool
        Whether every use of the noise but its bounds is refused.
    """

    schema: Schema
    codes: Mapping[str, Codes]
    known: _Known
    family: Family
    draws: Switch
    refused: bool = False

    @property
    def strict(self) -> PublishedRows:
        """The same, with every use of a noise law refused."""
        return PublishedRows(
            self.schema, self.codes, self.known, self.family, Switch(refused=True), True
        )

    @property
    def n(self) -> int:
        """Number of private rows, or an estimate of it."""
        return self.known.size

    @property
    def budget(self) -> Budget:
        """Not known here; it prints as a remark."""
        return cast("Budget", "the budget is that of the release")

    @cached_property
    def _distinct(self) -> tuple[dict[str, Codes], Floats]:
        """Distinct rows, and their shares."""
        names = list(self.codes)
        stacked = np.stack([self.codes[name] for name in names], axis=1)
        distinct, counts = np.unique(stacked, axis=0, return_counts=True)
        codes = {name: np.ascontiguousarray(distinct[:, i]) for i, name in enumerate(names)}
        return codes, counts / counts.sum()

    @property
    def candidates(self) -> Mapping[str, Codes]:
        """The distinct rows."""
        return self._distinct[0]

    @property
    def weights(self) -> Floats:
        """Their shares."""
        return self._distinct[1]

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> BoundedAnswers:
        """Means over the rows as sums over `n`, each with a bound; see `Release.answers`."""
        known, blocks = self.known, list(blocks_of(wanted, self.schema))
        if any(isinstance(block, PilotScore) for block in blocks):
            raise NotMeasuredError("the rows do not follow the second stage of a regression")
        names = [name for block in blocks for name in block.names]
        means = [block.evaluate(self.candidates).average(self.weights) for block in blocks]
        units = np.concatenate([block.bounds for block in blocks])
        sums = known.size * np.concatenate(means)
        radii = np.concatenate([self._radii(block) for block in blocks])
        unit_means = sums / (known.size * units)
        every = zip(names, unit_means.tolist(), radii.tolist(), strict=True)
        bounds = known.size * units * np.array([known.of_sum(*parts) for parts in every])
        count = None if known.public else Bounded(known.off, strict=self.refused)
        if with_count and count is not None:
            names += ROWS.names
            sums, units = np.append(sums, known.size), np.append(units, ROWS.bounds)
            bounds = np.append(bounds, known.off)
        distinct, law_of = np.unique(bounds, return_inverse=True)
        return BoundedAnswers(
            names=names,
            sums=sums,
            bounds=units,
            rows=RowCount(float(known.size), count),
            uniforms=np.zeros(len(sums)),
            law_table=[Bounded(bound, strict=self.refused) for bound in distinct.tolist()],
            law_of=law_of,
            _rows=cast("Any", None),
            _measured=([], np.zeros(0, dtype=np.intp)),
            spectral=known.spectral,
            _asked=tuple(blocks),
            _draws=self.draws,
        )

    def _radii(self, block: Block) -> Floats:
        """(d,) bounds on the errors of the means of a block, unit scale.

        A function without one follows from others, whose bounds add up. Coarse moments have none,
        and are known to lie in their range; only noise-aware intervals use them.
        """
        radii = np.array([self.known.radii.get(name, np.inf) for name in block.names])
        if block.calibrates:
            low, high = block.ranges
            return np.asarray((high - low) / block.bounds)  # fine functions have the same names
        for source in self.family.blocks if np.isinf(radii).any() else ():
            derivation = source.derive(block)
            if derivation is None:
                continue
            source_radii = np.array([self.known.radii.get(name, np.inf) for name in source.names])
            total, used = np.zeros(block.size), derivation.member >= 0
            np.add.at(total, derivation.member[used], (source_radii * source.bounds)[used])
            radii = np.where(derivation.terms > 0, np.minimum(radii, total / block.bounds), radii)
        if lacking := [n for n, r in zip(block.names, radii, strict=True) if np.isinf(r)]:
            raise RequestError(
                f"the radius has no entry for {lacking[0]!r}"
                + (f" and {len(lacking) - 1} more functions" if lacking[1:] else "")
                + "; give release.radius(name) of this analysis, or one number that bounds all its "
                "functions"
            )
        return radii


def _checked(name: str, value: float) -> float:
    value = check_number(name, value)
    if value < 0:
        raise RequestError(f"{name} must not be negative, got {value:g}")
    return value


def _coded(analysis: Analysis[Result], schema: Schema, rows: pd.DataFrame) -> dict[str, Codes]:
    """Codes of the published rows, which are public, in the columns that the analysis needs."""
    import pandas as pd

    if not isinstance(rows, pd.DataFrame) or not len(rows):
        raise RequestError(
            "rows must be a DataFrame with at least one row, such as release.to_frame() or "
            f"pandas.read_csv('rows.csv'); got {type(rows).__name__}"
        )
    needed = analysis.family(schema).column_names
    if lacking := [name for name in schema.names if name in needed and name not in rows.columns]:
        raise RequestError(
            f"the rows have no {columns_named(lacking)}, which {spelled(analysis)} needs"
        )
    return {name: _codes_of(schema[name], rows[name]) for name in schema.names if name in needed}


def _codes_of(column: Column, cells: pd.Series[Any]) -> Codes:
    """Codes of one column, refusing cells that the schema does not declare.

    Published cells hold labels, not the values that a private table stores; a reader of a file may
    have made numbers of them, such as 1 of "01", and they match as those of a private table do.
    """
    import pandas as pd

    if isinstance(column, Category):
        which, distinct = pd.factorize(cells, use_na_sentinel=False)
        texts = [None if pd.isna(cell) else str(cell) for cell in distinct.tolist()]
        values = pa.array(texts, pa.large_string())
        codes = arrow.level_codes(values, column.bin_labels, missing=-1, other=-1)
        if (codes < 0).any():  # its value may be a private one, if the rows are
            raise RequestError(
                f"the rows hold a value of {column.name!r} that the schema does not declare; give "
                "published rows and their schema"
            )
        return np.asarray(codes[which], dtype=np.int64)
    if not column.dates and not pd.api.types.is_numeric_dtype(cells):
        raise RequestError(
            f"the rows hold {column.name!r} as {cells.dtype}, and the schema declares numbers; "
            "give the schema of these rows"
        )
    values = pa.array(cells, from_pandas=True)
    numbers = arrow.days(values) if column.dates else arrow.floats(values)
    if np.isnan(numbers).any() and not column.allow_missing:
        raise RequestError(
            f"the rows hold {column.name!r} without a value, and the schema declares no "
            "allow_missing; give the schema of these rows"
        )
    lowest, highest = float(column.grid[0]), float(column.grid[-1])
    if np.any((numbers < lowest) | (numbers > highest)):  # of NaN neither is true
        raise RequestError(
            f"the rows hold a value of {column.name!r} outside {column.text(lowest)} to "
            f"{column.text(highest)}, which the schema declares; give published rows and their "
            "schema"
        )
    return column.encode_numbers(numbers)  # no published row holds a code for a missing cell
