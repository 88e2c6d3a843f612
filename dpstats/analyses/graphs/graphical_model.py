"""Graphical models: which pairs of columns are correlated given all the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dpstats.analyses.graphs.graph_result import GraphResult
from dpstats.analyses.graphs.noisy_precision import NoisyPrecision
from dpstats.analyses.graphs.pair_intervals import MarginalIntervals, PartialIntervals
from dpstats.analyses.graphs.separators import (
    Edges,
    checked_edges,
    moments_of_products,
    separators,
    sign_products,
    triangulated,
)
from dpstats.analyses.graphs.sparse_graphs import (
    PenalisedGraphResult,
    clime,
    graphical_lasso,
    positive_definite,
    usual_penalty,
)
from dpstats.analyses.graphs.tree import TreeResult
from dpstats.analyses.moments.clipping import ClippedColumns, clipping_notes, noise_ratio
from dpstats.analyses.moments.covariance import notes_of
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance, weights_within
from dpstats.analyses.notes import cell_rules
from dpstats.arrays import Codes, Floats
from dpstats.checks import as_float, check_choice, check_numbers, counted, first_few, is_real, short
from dpstats.error_rates import USUAL_ALPHA, for_noise
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.families.features import SIGN, Feature, Term, has_sign, indicator, product
from dpstats.families.moments import Moments, third_and_fourth_powers
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import ONE, ZERO, MomentMatrix
from dpstats.measured.radius import SpectralRadius
from dpstats.measured.view import ReleaseView
from dpstats.results.base import OF_POPULATION, SILENT
from dpstats.results.hypothesis import adjusted
from dpstats.results.named import Named
from dpstats.results.rendering import significant
from dpstats.schema import Number, Schema
from dpstats.schema.conditions import parsed_condition

Estimator = Literal["inverse", "glasso", "clime"]
Structure = Literal["any", "tree"]
_BOUNDED = (
    "the graph is that of the columns as measured, clamped to their bounds and rounded to their "
    "grids, which changes partial correlations a little; bounds that clip none of p columns grow "
    "with p (as the root of log p for normal ones), and the noise with their squares"
)
_SIGNS = (
    "columns of two levels count as -1 and 1, and tests are of linear partial correlations: where "
    "the graph has loops these can differ from zero without an edge, by .009 on a 3 x 3 grid with "
    "even levels, by .05 and more with uneven ones; given the products that separators= adds they "
    "are zero, if the declared graph is right"
)
_SEPARATED = (
    "partial correlations are given all other columns and the products over the separator sets of "
    "the declared graph; pairs that its triangulation joins are not tested"
)
_NAMED = 12  # columns in a title
_FEWEST_CLIPPED = 5  # columns from which rows are better clipped to a ball than to a box
_CHAIN = 3.0  # smallest variance over least eigenvalue of a chain with partial correlations .4
_LONG = 0.001  # share of normal rows that the recommended norm shrinks
_GUESS = 1 / 9  # of a mean square, where noise hides the variances: bounds at three deviations
_WORTH = 0.9  # a ratio of noises below which clipping is recommended
_MULTIPLES = (0.25, 0.5, 1.0, 2.0)  # of the usual penalty


@dataclass(frozen=True)
class GraphicalModel(ClippedColumns):
    """Partial correlations of all pairs of some columns given the others, and their edges.

    In a Gaussian graphical model two columns are joined by an edge unless their partial correlation
    is zero. All variants use the same moments: one release answers all of them.

    Parameters
    ----------
    columns : sequence of str
        At least two numbers, each with `missing=` or ``allow_missing=True`` in the schema, and
        columns of two levels, which are coded -1 and 1. Rows without a value of one of them are
        left out.
    estimator : {"inverse", "glasso", "clime"}
        "inverse": the inverse of the noisy covariance matrix, less the bias of the noise, with
        intervals, tests and certified verdicts. "glasso" and "clime": sparse pictures at several
        penalties, without error probabilities; the first needs scikit-learn.
    structure : {"any", "tree"}
        "tree": the columns form a tree, the maximum spanning tree of their absolute correlations;
        each edge is sure, impossible or undecided.
    tolerance : float, optional
        Partial correlations below it in absolute value count as absent in certified verdicts, which
        cannot say that one is exactly zero.
    penalties : sequence of float, optional
        With "glasso" and "clime": between 0 and 1, on the scale of correlations; by default a
        quarter to twice the penalty at which an empty graph stays empty with probability .95.
    separators : sequence of pairs of columns, optional
        The edges of a declared graph of columns of two levels. The products over the separator sets
        of its triangulation are measured too; then a pair that it does not join has partial
        correlation zero if the declared graph is right, and such pairs alone are tested.
    given : str, optional
        The graph in the rows with this condition, such as ``"age >= 65"``.
    clip_norm, center, scale : optional
        Shrink every row to at most this Euclidean norm, as in `dpstats.Covariance`: from about
        five columns on there is less noise.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.GraphicalModel(["age", "income", "bmi"], tolerance=0.1).tolerance
    0.1
    """

    kind: ClassVar[str] = "graphical_model"
    preview_remark: ClassVar[str] = (
        "Even rows are an easy case for a graph: columns are independent and use all of their "
        "bounds. For normal columns with bounds at three standard deviations, certified "
        "intervals were 2 to 9 times as wide, noise-aware ones up to 6 times where most of "
        "the variance is noise; or they said nothing."
    )

    columns: Sequence[str]
    estimator: Estimator = "inverse"
    structure: Structure = "any"
    tolerance: float | None = None
    penalties: Sequence[float] | None = None
    separators: Sequence[tuple[str, str]] | None = None
    given: str | None = None
    clip_norm: float | None = None
    center: Mapping[str, float] | None = field(default=None, hash=False)
    scale: Mapping[str, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("estimator", self.estimator, get_args(Estimator))
        check_choice("structure", self.structure, get_args(Structure))
        if self.structure == "tree" and (self.estimator != "inverse" or self.tolerance is not None):
            raise RequestError(
                "a tree is found from correlations: structure='tree' goes with neither estimator= "
                "nor tolerance="
            )
        if self.tolerance is not None:
            if not is_real(self.tolerance) or not 0 < self.tolerance < 1:
                raise RequestError(
                    "tolerance must be a partial correlation between 0 and 1, below which an edge "
                    f"counts as absent; got {short(self.tolerance)}"
                )
            object.__setattr__(self, "tolerance", as_float(self.tolerance))
        if self.tolerance is not None and self.estimator != "inverse":
            raise RequestError(
                "tolerance= is for certified verdicts, and a picture has none: leave it out, or "
                "use estimator='inverse'"
            )
        if self.given is not None:
            parsed_condition(self.given)
        object.__setattr__(self, "penalties", self._checked_penalties())
        object.__setattr__(self, "separators", self._checked_edges())

    def _checked_penalties(self) -> tuple[float, ...] | None:
        if self.penalties is None:
            return None
        if self.estimator == "inverse":
            raise RequestError("penalties are for estimator='glasso' and estimator='clime'")
        penalties = check_numbers("penalties", self.penalties)
        wrong = [i for i, one in enumerate(penalties.ravel().tolist(), start=1) if not 0 < one < 1]
        if wrong or penalties.ndim != 1 or not len(penalties):
            which = f"entry {wrong[0]} is not" if wrong else f"got {short(self.penalties)}"
            raise RequestError(
                "penalties must be a list of numbers between 0 and 1, on the scale of "
                f"correlations; {which}"
            )
        return tuple(sorted(set(penalties.tolist())))

    def _checked_edges(self) -> tuple[tuple[str, str], ...] | None:
        if self.separators is None:
            return None
        if self.estimator != "inverse" or self.structure == "tree" or self.clip_norm is not None:
            raise RequestError(
                "separators= are for estimator='inverse' of columns with two levels, not for a "
                "tree and not with clip_norm="
            )
        return checked_edges(self.separators, self.columns)

    def family(self, schema: Schema) -> Family:
        """First moments, squares and products; coarse third and fourth powers."""
        numbers, signs = self._numbers_and_signs(schema)
        if self.clip_norm is not None and signs:
            raise RequestError(
                f"clip_norm shrinks rows of numbers, and {signs[0]!r} has two levels: leave out "
                "clip_norm=, or the column"
            )
        if (ball := self.ball(schema)) is not None:
            return Family((ball,))
        if self.separators is not None:
            products, _ = self._products(schema)
            return Family((products_block(schema, products, self.complete_cases(schema)),))
        blocks: list[Block] = [Moments.of(schema, numbers, given=self.given, signs=signs)]
        powers = third_and_fourth_powers(schema, self.columns, self.complete_cases(schema))
        return Family((*blocks, powers) if powers is not None else tuple(blocks))

    def _numbers_and_signs(self, schema: Schema) -> tuple[list[str], list[str]]:
        """The columns by kind, or a RequestError."""
        signs = [name for name in self.columns if has_sign(schema[name])]
        numbers = [name for name in self.columns if isinstance(schema[name], Number)]
        for name in self.columns:
            if name not in signs and name not in numbers:
                raise RequestError(
                    f"{name!r} has {schema[name].bins} levels; a graphical model takes numbers and "
                    "columns of two levels: merge its levels in the schema, or look at its tables "
                    "with dps.Independence"
                )
        return numbers, signs

    def _products(self, schema: Schema) -> tuple[list[Term], Edges]:
        """The products of signs that the declared graph needs, and its triangulation."""
        numbers, _ = self._numbers_and_signs(schema)
        if numbers:
            raise RequestError(
                f"{numbers[0]!r} is a number; separators= are for columns of two levels alone"
            )
        filled, cliques = triangulated(self.columns, self.separators or ())
        if len(filled) == len(self.columns) * (len(self.columns) - 1) // 2:
            raise RequestError(
                "the triangulation of the declared graph joins every pair of columns, and no pair "
                "would be tested: declare fewer edges in separators="
            )
        return sign_products(self.columns, separators(cliques)), filled

    def spectral_radius(
        self, release: ReleaseView, shares: Floats, alpha: float
    ) -> SpectralRadius | None:
        """Distance of the covariance matrix of synthetic rows from the private one, as a whole."""
        if self.separators is not None:
            return None  # the matrix is that of products
        return self.radius_of_rows(release, shares, alpha)

    def infer(self, release: ReleaseView) -> GraphResult | TreeResult | PenalisedGraphResult:
        """Estimates with intervals, a spanning tree, or pictures at several penalties."""
        covariance, declared = self._covariance(release)
        if declared is not None:
            return self._graph(release, covariance, declared)
        if self.estimator != "inverse":
            return self._pictures(release, covariance)
        return (self._tree if self.structure == "tree" else self._graph)(release, covariance)

    def pvalues(self, release: ReleaseView) -> Named | None:
        """P-values of the result alone, which are had in a small part of its time.

        None for a tree or a picture, which have none.
        """
        if self.estimator != "inverse" or self.structure == "tree":
            return None
        intervals, tested = self._tests(*self._covariance(release))
        raw = np.where(tested, intervals.pvalues(0.0, "two-sided"), np.nan)
        return Named(adjusted(raw, "holm"), self._terms(intervals))

    def _covariance(self, release: ReleaseView) -> tuple[NoisyCovariance, Edges | None]:
        """Matrix of the columns; or of products, with the edges of a triangulated graph."""
        self._numbers_and_signs(release.schema)
        if self.separators is None:
            return self.noisy_covariance(release), None
        products, filled = self._products(release.schema)
        group = self.complete_cases(release.schema)
        return covariance_of_products(release, products, group), filled

    def _tests(
        self, covariance: NoisyCovariance, declared: Edges | None
    ) -> tuple[PartialIntervals, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """Partial correlations, and which are tested: not those of `declared` edges."""
        intervals = PartialIntervals(covariance, self._pairs)
        names = [[self.columns[i] for i in pair] for pair in intervals.pairs.T]
        tested = np.array([declared is None or frozenset(pair) not in declared for pair in names])
        return intervals, tested

    def _terms(self, intervals: PartialIntervals | MarginalIntervals) -> list[str]:
        names = [f'"{name}"' if "," in name else name for name in self.columns]
        return [f"{names[i]}, {names[j]}" for i, j in intervals.pairs.T]

    def _graph(
        self, release: ReleaseView, covariance: NoisyCovariance, declared: Edges | None = None
    ) -> GraphResult:
        """Partial correlations; `declared` edges of a triangulated graph are not tested."""
        intervals, tested = self._tests(covariance, declared)
        precision, moments = intervals.precision, covariance.moments
        p, units = len(self.columns), moments.spread
        signs = covariance.signs
        remarks = [
            _singular_remark(precision),
            _certificate_remark(precision),
            _clipping_remark(release.schema, self, covariance),
            "" if moments.ball is not None or len(signs) == covariance.p else _BOUNDED,
            _SEPARATED if declared is not None else _SIGNS if signs else "",
        ]
        return GraphResult(
            **self._common(release, covariance, intervals, "Graphical model", remarks),
            location_=(moments.origin + units * covariance.mean)[:p],
            precision_=(precision.matrix / np.outer(units, units) / covariance.correction)[:p, :p],
            covariance_=(covariance.matrix * np.outer(units, units))[:p, :p],
            units=units[:p],
            tolerance=self.tolerance,
            tested=tested,
            advice=_clipping_remark(release.schema, self, covariance, planned=True),
        )

    def _tree(self, release: ReleaseView, covariance: NoisyCovariance) -> TreeResult:
        intervals = MarginalIntervals(covariance, self._pairs)
        remarks = [
            "the tree is that of columns of which each depends on its neighbours linearly; the "
            "maximum spanning tree of the correlations is estimated in any case",
            _tree_remark(intervals),
        ]
        return TreeResult(**self._common(release, covariance, intervals, "Spanning tree", remarks))

    def _common(
        self,
        release: ReleaseView,
        covariance: NoisyCovariance,
        intervals: PartialIntervals | MarginalIntervals,
        what: str,
        remarks: Sequence[str],
    ) -> dict[str, Any]:
        """Fields that results of all structures share."""
        sampling, privacy = intervals.variances
        terms = self._terms(intervals)
        return {
            "title": self._title(what),
            "terms": terms,
            "params": Named(intervals.values, terms),
            "sampling_variance": sampling,
            "privacy_variance": privacy,
            "intervals": intervals,
            "rows": covariance.moments.answers.rows,
            "budget": str(release.budget),
            "notes": [
                *filter(None, remarks),
                *notes_of(covariance),
                *clipping_notes(covariance.moments),
                cell_rules(release.schema, self),
            ],
            "columns": tuple(self.columns),
        }

    def _pictures(self, release: ReleaseView, covariance: NoisyCovariance) -> PenalisedGraphResult:
        laws = MarginalIntervals(covariance, self._pairs).laws
        usual = usual_penalty(laws, self._pairs)
        wanted = self.penalties or [min(m * usual, 0.99) for m in _MULTIPLES]
        penalties = np.array(sorted(set(wanted)))
        correlation = np.clip(laws.correlations, -1, 1)
        np.fill_diagonal(correlation, 1.0)
        correlation = positive_definite(correlation)
        fit = graphical_lasso if self.estimator == "glasso" else clime
        if covariance.unknown or covariance.hidden_columns:  # see the notes
            correlation = np.eye(len(correlation))
        matrices = fit(correlation, penalties.tolist())
        found = np.isfinite(matrices).all(axis=(1, 2))
        lost = "the graphical lasso finds no graph of these nearly collinear columns at penalty "
        lost += ", ".join(significant(penalty) for penalty in penalties[~found].tolist())
        if not found.any() or (self.penalties and not found.all()):
            raise RequestError(
                f"{lost}; give a larger one, as penalties=[...], use estimator='clime', or leave "
                "out a column that another one determines"
            )
        return PenalisedGraphResult(
            title=self._title({"glasso": "Graphical lasso", "clime": "CLIME"}[self.estimator]),
            columns=tuple(self.columns),
            estimator=self.estimator,
            penalties=penalties[found],
            precision_=matrices[found],
            usual=usual,
            rows=covariance.moments.answers.rows,
            budget=str(release.budget),
            notes=(
                *([] if found.all() else [f"{lost}; estimator='clime' has graphs there too"]),
                *notes_of(covariance)[1:],
                *clipping_notes(covariance.moments),
                cell_rules(release.schema, self),
            ),
        )

    def _title(self, what: str) -> str:
        where = "" if self.given is None else f", given {self.given}"
        names, more = self.columns[:_NAMED], len(self.columns) - _NAMED
        rest = f" and {more} more columns" if more > 0 else ""
        return f"{what} of {', '.join(names)}{rest}{where}"

    @property
    def _pairs(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array(np.triu_indices(len(self.columns), 1))


def _singular_remark(precision: NoisyPrecision) -> str:
    """Why nothing was estimated, and what would do; "" if something was."""
    if not precision.singular:
        return ""
    if precision.n <= precision.p + 1:
        return f"a precision matrix of {precision.p} columns needs more than {precision.p + 1} rows"
    if hidden := precision.covariance.hidden_columns:
        return (
            f"nearly singular: the noise exceeds the variance of {first_few(hidden)}, and nothing "
            "is inverted; leave out what hardly varies, declare tighter bounds, or use more rows"
        )
    variance = float(np.min(precision.covariance.variances))
    noise = precision.noise_norm
    if not math.isfinite(noise) or variance <= 0:
        return "nearly singular: the noise exceeds a variance, and nothing is estimated"
    times = noise / (2 * variance / _CHAIN)
    if times < 1:
        return (
            "nearly singular: columns are nearly collinear (least eigenvalue "
            f"{precision.least_eigenvalue:.2g}, noise up to {noise:.2g}), and nothing is inverted; "
            "leave one of them out"
        )
    return (
        "nearly singular: the noise on the covariance matrix (spectral norm up to "
        f"{noise:.2g}) hides its least eigenvalue ({precision.least_eigenvalue:.2g}), so nothing "
        f"is inverted. About {_times(times)} times the rows, or times the epsilon, would do "
        "if the least eigenvalue is a third of the smallest variance, as in a chain of partial "
        "correlations .4; more if the columns are more strongly correlated"
    )


def _times(ratio: float) -> str:
    """Rounded up to two digits, and at least 1.1: with fewer rows nothing would change."""
    digits = 10.0 ** (1 - math.floor(math.log10(max(ratio, 1.1))))
    return f"{math.ceil(max(ratio, 1.1) * digits * (1 - 1e-12)) / digits:g}"


def _certificate_remark(precision: NoisyPrecision) -> str:
    """Why the certificate for the population says nothing, and what would do; "" if it speaks."""
    least = precision.least_eigenvalue
    # The bounds on the noise of published rows have spent their part of the error already.
    bound_only = precision.covariance.moments.answers.bound_only
    alpha = for_noise(USUAL_ALPHA) if bound_only else USUAL_ALPHA
    population, _ = precision.radii.radii(alpha, "population")
    table, _ = precision.radii.radii(alpha, "table")
    if population < least:
        return ""
    silent = OF_POPULATION if table < least else SILENT
    if not math.isfinite(population) or least <= 0:
        return (
            f"{silent}: the noise exceeds the least eigenvalue of the covariance matrix; more "
            "rows, a larger epsilon or fewer columns would do"
        )
    # The noise falls with 1/n, the sampling error with about 1/sqrt(n).
    sampling = max(population - table, 0.0)
    root = (sampling + math.sqrt(sampling**2 + 4 * least * table)) / (2 * least)
    return (
        f"{silent}: the error of the covariance matrix is certified to within "
        f"{population:.2g} ({table:.2g} of it noise), more than its least eigenvalue {least:.2g}; "
        f"about {_times(root**2)} times the rows would do"
        + ("" if table < least else f" ({_times(table / least)} times for the private table)")
    )


def _tree_remark(intervals: MarginalIntervals) -> str:
    """Why certificates of correlations say nothing, and what would do; "" if all have limits."""
    low, high = intervals.certified(USUAL_ALPHA, "population")
    if not (silent := int(np.sum((low <= -1) & (high >= 1)))):
        return ""
    return (
        f"{OF_POPULATION} for {counted(silent, 'pair')}: the variance of a column is not certified "
        "to be above zero; more rows, a larger epsilon or tighter bounds would do"
    )


def _clipping_remark(
    schema: Schema, asked: GraphicalModel, covariance: NoisyCovariance, *, planned: bool = False
) -> str:
    """A norm that would lower the noise; "" if there is none.

    By the noisy variances; for a plan, or where noise hides one, as if bounds were at three
    standard deviations.
    """
    from scipy import stats

    columns = [schema[name] for name in asked.columns]
    if asked.clip_norm is not None or len(columns) < _FEWEST_CLIPPED:
        return ""
    if not all(isinstance(column, Number) and not column.allow_missing for column in columns):
        return ""
    guessed = planned or bool(covariance.hidden_columns)
    square = _GUESS if guessed else float(np.mean(covariance.variances + covariance.mean**2))
    norm = float(f"{math.sqrt(stats.chi2.isf(_LONG, len(columns)) * square):.2g}")
    answers = covariance.moments.answers
    ratio = noise_ratio(schema, asked.columns, norm, gaussian=answers.law(0).gaussian)
    if answers.bound_only or ratio > _WORTH:
        return ""
    where = (
        "columns with bounds at three standard deviations"
        if guessed
        else "the noisy variances found here"
    )
    return (
        f"clip_norm={norm:g} would have about {ratio:.2g} of this noise, and shrink about one row "
        f"in {1 / _LONG:g} of normal rows (for {where})"
    )


def products_block(
    schema: Schema, products: Sequence[Term], given: Subgroup | None = None
) -> Moments:
    """All means that the moment matrix of some products of signs needs; with `given`, the count."""
    count: list[Term] = [] if given is None else [()]
    return Moments.of_terms(schema, [*moments_of_products(products), *count], given=given)


@dataclass(frozen=True)
class ProductMatrix(MomentMatrix):
    """Noisy mean products of q - 1 products of signs, the constant first."""

    products: tuple[Term, ...] = ()  # its features are named after them, and count as signs

    @classmethod
    def of_products(
        cls, release: ReleaseView, products: Sequence[Term], given: Subgroup | None = None
    ) -> ProductMatrix:
        """Ask a release for the means of all products of two of some products of signs."""
        block = products_block(release.schema, products, given)
        answers = release.answers(block, with_count=given is None)
        if given is not None:
            answers = answers.of_counted_rows()
        at = {term: i for i, term in enumerate(block.terms)}
        one = ONE if answers.rows.public else len(answers.sums) - 1
        every: list[Term] = [(), *products]
        place = np.full((len(every), len(every)), ZERO, dtype=np.int64)
        for i, a in enumerate(every):
            for j, b in enumerate(every):
                both = product(a, b)
                assert both is not None  # signs exclude nothing
                place[i, j] = at[both] if both else one
        features: list[Feature] = [("*".join(name for name, _ in t), SIGN) for t in products]
        return cls(answers, place, release.schema, tuple(features), None, given, tuple(products))

    def unit_rows(self, codes: Mapping[str, Codes]) -> Floats:
        """Rows (m, q - 1) of the products, given as column name -> (m,) codes."""
        signs = {
            name: indicator(SIGN, self.schema[name].bins_of(codes[name]))
            for term in self.products
            for name, _ in term
        }
        return np.stack(
            [np.prod([signs[name] for name, _ in term], axis=0) for term in self.products], axis=1
        ).astype(np.float64)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The distinct columns of the products."""
        return tuple(dict.fromkeys(name for term in self.products for name, _ in term))

    @property
    def names(self) -> list[str]:
        """Names of the products, the constant first."""
        return ["Intercept", *(name for name, _ in self.features)]


def covariance_of_products(
    release: ReleaseView, products: Sequence[Term], given: Subgroup | None = None
) -> NoisyCovariance:
    """The noisy covariance matrix of some products of signs."""
    moments = ProductMatrix.of_products(release, products, given)
    weights = weights_within(release, given)
    powers, noise = np.full((len(products), 2), np.nan), np.zeros((len(products), 2))
    return NoisyCovariance(moments, moments.unit_rows(release.candidates), weights, powers, noise)
