"""M-estimation on a grid: a loss is measured at points of the parameters, and minimised."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.notes import cell_rules
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Method, Target, check_alpha, check_target, short
from dpstats.corrected.means import chernoff_confint
from dpstats.error_rates import USUAL_ALPHA, bonferroni, for_noise, percent
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.losses.block import LossBlock, axes_of
from dpstats.families.losses.linear import HuberLoss, LinearLosses, linear_design, loss_from_dict
from dpstats.families.losses.tabulated import TabulatedLoss
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Result, Widths, about_persons, footer
from dpstats.results.named import Named
from dpstats.results.rendering import Numerals, Page, brief_list, significant
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount

Grid = Mapping[str, Sequence[Any]]
_POINTS = (41, 11, 7)  # along each axis, of one to three coefficients: more points, more noise
_CERTIFIED = (
    "every set holds all minimisers of the mean loss over the box of the grid, with the stated "
    "probability, for any data"
)


class OnGrid(ABC):
    """An analysis that measures losses at the points of a grid."""

    @abstractmethod
    def block(self, schema: Schema) -> LossBlock:
        """The losses at the grid points."""

    @abstractmethod
    def _title(self, schema: Schema) -> str:
        """Title of the result."""

    def family(self, schema: Schema) -> Family:
        """The losses at the grid points."""
        return Family((self.block(schema),))

    def infer(self, release: ReleaseView) -> LossGridResult:
        """The estimate and the certified set."""
        block = self.block(release.schema)
        surface, terms = RiskSurface(block, release.answers(block)), [a.name for a in block.axes]
        return LossGridResult(
            title=self._title(release.schema),
            terms=terms,
            params=Named(surface.estimate, terms),
            surface=surface,
            rows=surface.answers.rows,
            budget=str(release.budget),
            notes=[*_notes(surface), cell_rules(release.schema, self)],
        )


@dataclass(frozen=True)
class LossGrid(OnGrid):
    """M-estimation: the parameters with the least mean loss over a box.

    The loss is measured at the points of a grid, rounded to 2^-16 of the largest. Between them the
    mean loss is known by its convexity, or by a Lipschitz constant. The result is the estimate and
    the certified set of parameters that can be the minimum: for the private table at any data, for
    the population with rows drawn independently.

    Values outside the bounds of the schema are clamped, so that the loss is bounded.

    Parameters
    ----------
    loss : str, loss or mapping
        ``"logistic"``, `HuberLoss`, `PinballLoss` (a quantile), or a `TabulatedLoss` of your own.
    formula : str, optional
        Such as ``"y ~ x + C(g)"``, without products, or ``"y ~ 1"``. Not for a `TabulatedLoss`.
        Numbers among the regressors are taken from the middle of their bounds: the intercept is
        then the prediction where they are in the middle.
    grid : mapping of coefficient to (low, high, points), optional
        A box that is public, and the number of points along it; at most three coefficients and
        2,048 points together. Noise grows with the root of their number (with the number itself
        under pure privacy).

    Raises
    ------
    RequestError
        For an unknown loss, or a grid that cannot be used.

    References
    ----------
    N. Bojkovic and P.-L. Loh (2024), Section V, "M-estimation".

    Examples
    --------
    >>> import dpstats as dps
    >>> grid = {"Intercept": (-2, 2, 21), "x": (-2, 2, 21)}
    >>> dps.LossGrid("logistic", "y ~ x", grid).formula
    'y ~ x'
    """

    kind: ClassVar[str] = "loss_grid"

    loss: Any
    formula: str | None = None
    grid: Grid | None = None

    def __post_init__(self) -> None:
        loss = self.loss
        plain = {"kind": loss} if isinstance(loss, str) else loss
        plain = plain.to_dict() if hasattr(plain, "to_dict") else plain
        if not isinstance(plain, Mapping):
            raise RequestError(
                "loss must be 'logistic', dps.HuberLoss(k), dps.PinballLoss(probability) or a "
                f"dps.TabulatedLoss; got {short(loss)}"
            )
        table = plain.get("kind") == TabulatedLoss.kind
        plain = TabulatedLoss.plain(plain) if table else loss_from_dict(plain).to_dict()
        if table != (self.formula is None) or table != (self.grid is None):
            raise RequestError(
                "a tabulated loss has its own columns and grid; any other needs a formula and a "
                "grid, such as dps.LossGrid('logistic', 'y ~ x', {'Intercept': (-2, 2, 21), 'x': "
                "(-2, 2, 21)})"
            )
        object.__setattr__(self, "loss", plain["kind"] if len(plain) == 1 else plain)
        object.__setattr__(self, "grid", _checked_grid(self.grid))

    def __hash__(self) -> int:
        return hash((self.formula, tuple(self.grid or ())))

    @property
    def _plain(self) -> Mapping[str, Any]:
        return {"kind": self.loss} if isinstance(self.loss, str) else self.loss

    def block(self, schema: Schema) -> LossBlock:
        """The losses at the grid points."""
        if self._plain["kind"] == TabulatedLoss.kind:
            return TabulatedLoss.block(self._plain, schema)
        assert self.formula is not None
        assert self.grid is not None
        return LinearLosses.of(schema, loss_from_dict(self._plain), self.formula, self.grid)

    def _title(self, schema: Schema) -> str:
        if self.formula is None:
            return f"M-estimation: {self._plain['kind']}"
        formula = linear_design(schema, self.formula).titled(self.formula, schema)
        return f"M-estimation: {_named(self._plain)}, {formula}"


@dataclass(frozen=True)
class Huber(OnGrid):
    """Robust linear regression: the coefficients with the least mean Huber loss.

    Outliers pull them with a bounded force. The loss is measured on a grid, see `LossGrid`, which
    gives a certified set for the coefficients.

    Parameters
    ----------
    formula : str
        Such as ``"income ~ age"``, without products, with at most three coefficients. Numbers among
        the regressors are taken from the middle of their bounds, so the intercept is the prediction
        where they are in the middle.
    k : float
        Residuals up to k have a quadratic loss, larger ones a linear one; in the unit of the
        response. It is public: 1.345 times the standard deviation that you expect of the errors.
    grid : mapping of coefficient to (low, high, points), optional
        Default: intercepts over the bounds of the response, slopes up to those at which the
        prediction crosses these bounds within those of the regressor, levels half as far; with 41,
        11 or 7 points each, of one to three coefficients. A tighter box has less noise and a finer
        grid.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.Huber("income ~ age", k=8)
    Huber(formula='income ~ age', k=8.0, grid=None)
    """

    kind: ClassVar[str] = "huber"

    formula: str
    k: float
    grid: Grid | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", HuberLoss(self.k).k)
        object.__setattr__(self, "grid", _checked_grid(self.grid))

    def __hash__(self) -> int:
        return hash((self.formula, self.k, tuple(self.grid or ())))

    def block(self, schema: Schema) -> LinearLosses:
        """The losses at the grid points."""
        grid = _default_grid(schema, self.formula) if self.grid is None else self.grid
        return LinearLosses.of(schema, HuberLoss(self.k), self.formula, grid)

    def _title(self, schema: Schema) -> str:
        return f"Huber regression: {self.formula} (k = {self.k:.10g})"


def _checked_grid(grid: Grid | None) -> Grid | None:
    """Axes as lists of plain numbers."""
    if grid is None:
        return None
    return {axis.name: [axis.low, axis.high, axis.points] for axis in axes_of(grid)}


def _default_grid(schema: Schema, formula: str) -> dict[str, tuple[float, float, int]]:
    """A box of coefficients from the bounds of the schema alone."""
    design = linear_design(schema, formula)
    response = schema[design.response[0]]
    if not isinstance(response, Number):
        raise RequestError(f"the response {response.name!r} must be a number")
    if len(design.regressors) > len(_POINTS):
        raise RequestError(
            f"{short(formula)} has {len(design.regressors)} coefficients, {design.names}, and a "
            f"grid at most {len(_POINTS)}; use fewer, or dps.OLS"
        )
    points = _POINTS[len(design.regressors) - 1]
    grid = {}
    for regressor in design.regressors:
        reach, middle = response.half_range, 0.0
        if not regressor.factors:
            middle = response.middle
        else:
            column = schema[regressor.factors[0][0]]
            if regressor.factors[0][1] is None:
                assert isinstance(column, Number)
                reach /= column.half_range
        grid[regressor.name] = (middle - reach, middle + reach, points)
    return grid


def _named(plain: Mapping[str, Any]) -> str:
    options = ", ".join(f"{name}={value:.10g}" for name, value in plain.items() if name != "kind")
    return f"{plain['kind']} loss" + (f" ({options})" if options else "")


def _notes(surface: RiskSurface) -> list[str]:
    block, near = surface.block, surface.near(USUAL_ALPHA, "table")
    notes = [_CERTIFIED]
    parts = surface.excess(USUAL_ALPHA, "table")
    shown = ", ".join(f"{significant(parts[name])} is due to {name}"
                      for name in ("noise", "gaps of the grid", "rounding"))  # fmt: skip
    total = significant(sum(parts.values()))
    notes.append(
        f"the least mean loss of the table is known within {total}, with {percent(USUAL_ALPHA)}: "
        f"{shown}"
    )
    edges = [
        f"{axis.name} = {end:.10g}"
        for axis, limits in zip(block.axes, near.hull, strict=True)
        for end, limit in zip((axis.low, axis.high), limits, strict=True)
        if abs(limit - end) <= 1e-9 * (axis.high - axis.low)
    ]
    if edges:
        notes.append(
            f"the set for the table reaches the end of the grid at {', '.join(edges)}: it says "
            "nothing beyond; a minimum over a wider box can be outside"
        )
    if not block.convex and np.any(np.isinf(block.reach)):
        notes.append(
            "the loss has neither convexity nor a Lipschitz constant in every parameter: nothing "
            "is known between grid points, and the set is about the minimum over these alone"
        )
    if isinstance(block, LinearLosses):
        middles = [
            f"{name} = {block.middle(feature):.10g}"
            for name, feature in zip((a.name for a in block.axes), block.regressors, strict=True)
            if feature is not None and feature[1] is None
        ]
        if middles and None in block.regressors:
            notes.append(f"the intercept is the predictor at {', '.join(middles)}")
    return notes


@dataclass(frozen=True, repr=False, eq=False)
class LossGridResult(Result):
    """The parameters with the least mean loss, and the certified set of those that can have it.

    Attributes
    ----------
    terms : list of str
        Names of the p parameters.
    params : (p,) Named
        Minimum of a quadratic fitted to the noisy mean losses near their least.
    surface : RiskSurface
        The noisy mean losses and their bounds.
    rows : RowCount
    budget : str
    notes : sequence of str

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number("pay", 0, 100, points=101, missing=0)])
    >>> grid = {"Intercept": (0, 100, 41)}
    >>> median = dps.LossGrid(dps.PinballLoss(), "pay ~ 1", grid)
    >>> plan = dps.plan(schema, {"median": median}, budget=dps.ZCDP(0.5))
    >>> rows = pd.DataFrame({"pay": [min(i % 60, 40) for i in range(20_000)]})
    >>> found = dps.release(plan, rows, m=1_000, k=100).infer(median)
    >>> found.contains({"Intercept": 30}), found.contains({"Intercept": 60})
    (True, False)
    >>> found.conf_int().shape, list(found.risks())
    ((1, 2), ['Intercept', 'risk', 'low', 'high', 'possible'])
    """

    terms: list[str]
    params: Named
    surface: RiskSurface = field(compare=False)
    rows: RowCount
    budget: str
    notes: Sequence[str] = ()

    methods: ClassVar[tuple[str, ...]] = ("certified",)
    figures = ("risk",)
    certified_target: ClassVar[Target] = "table"

    @property
    def headline(self) -> str:
        """The first estimates with their certified intervals, for the table."""
        return brief_list(self.terms, self.params, np.asarray(self.conf_int()))

    @property
    def interval_of(self) -> str:
        """Coefficients, in their own units."""
        return "parameters, for the table"

    @property
    def main_terms(self) -> list[str]:
        """All parameters."""
        return self.terms

    def preview_widths(self, method: Method, alpha: float = USUAL_ALPHA) -> Widths:
        """Widths of the certified intervals for the table, within the grid; there are no others."""
        if method not in self.methods:
            return super().preview_widths(method, alpha)
        ranges = np.array([np.ptp(axis.values) for axis in self.surface.block.axes])
        return Widths(self.terms, np.diff(np.asarray(self.conf_int(alpha=alpha)))[:, 0], ranges)

    def conf_int(self, *, alpha: float = USUAL_ALPHA, target: Target = "table") -> Named:
        """Least and largest value of each parameter over the certified set.

        They hold jointly with probability 1 - alpha, for any data.

        Parameters
        ----------
        alpha : float
        target : {"table", "population"}
            Minimisers of the mean loss of the private table, or of the population's.

        Returns
        -------
        (p, 2) Named
        """
        return Named(self._near(alpha, target).hull, self.terms)

    def _near(self, alpha: float, target: Target) -> NearMinimisers:
        check_alpha(alpha)
        check_target(target)
        return self.surface.near(alpha, target)

    def contains(
        self,
        parameters: Mapping[str, float] | Sequence[float],
        *,
        alpha: float = USUAL_ALPHA,
        target: Target = "table",
    ) -> bool:
        """Return True if a vector of parameters is in the certified set.

        Parameters
        ----------
        parameters : mapping of names, or sequence
            In the order of `terms`.
        alpha : float
        target : {"table", "population"}

        Returns
        -------
        bool

        Raises
        ------
        RequestError
            Unless every parameter has a value.
        """
        near = self._near(alpha, target)
        if isinstance(parameters, Mapping):
            lacking = set(self.terms) ^ set(parameters)
            values = [] if lacking else [parameters[name] for name in self.terms]
        else:
            values = list(parameters)
        point = np.asarray(values, dtype=np.float64)
        if point.shape != (len(self.terms),):
            raise RequestError(f"give a value of each of {self.terms}, got {short(parameters)}")
        return bool(near.possible(point[None])[0])

    def risks(self, *, alpha: float = USUAL_ALPHA, target: Target = "table") -> pd.DataFrame:
        """Risks at all grid points, with joint bounds.

        Parameters
        ----------
        alpha : float
            Probability that some bound fails.
        target : {"table", "population"}

        Returns
        -------
        DataFrame
            One row per grid point: the parameters; ``risk``, the noisy mean loss; ``low`` and
            ``high``, which bound it for all points jointly (where n is measured, up to a common
            factor); and ``possible``, true in the certified set.
        """
        import pandas as pd

        near = self._near(alpha, target)
        frame = pd.DataFrame(near.points, columns=self.terms)
        bounds = {"risk": self.surface.risks, "low": near.low, "high": near.high}
        return frame.assign(**bounds, possible=near.possible(near.points))

    def to_frame(self, *, alpha: float = USUAL_ALPHA) -> pd.DataFrame:
        """Estimates with certified intervals for the table and for the population.

        Parameters
        ----------
        alpha : float
            As in `conf_int`.

        Returns
        -------
        DataFrame
            Columns term, estimate, table_low, table_high, population_low and population_high.
        """
        import pandas as pd

        table = np.asarray(self.conf_int(alpha=alpha, target="table")).T
        population = np.asarray(self.conf_int(alpha=alpha, target="population")).T
        return pd.DataFrame({
            "term": self.terms, "estimate": np.asarray(self.params),
            "table_low": table[0], "table_high": table[1],
            "population_low": population[0], "population_high": population[1],
        })  # fmt: skip

    def summary(self, *, alpha: float = USUAL_ALPHA, target: Target = "table") -> str:
        """Text of `to_frame`.

        Parameters
        ----------
        alpha : float
            As in `conf_int`.
        target : {"table", "population"}
            Named in the footer; both are printed.

        Returns
        -------
        str
        """
        return self._page(alpha, target).text()

    def _page(self, alpha: float, target: Target) -> Page:
        rows = []
        numbers = self.to_frame(alpha=alpha).set_index("term").to_numpy(dtype=np.float64).tolist()
        for term, own in zip(self.terms, numbers, strict=True):
            show = Numerals.of(own, own[2] - own[1])
            ends = show.certified(*own[1:3]), show.certified(*own[3:])
            rows.append([term, show(own[0]), *ends])
        level = percent(alpha)
        header = ["", "estimate", f"{level} certified, table", f"{level} certified, population"]
        how = "certified (finite sample, any data, worst case)"
        persons = about_persons(self.rows, "population").strip() if target == "table" else ""
        after = [footer(self.rows, self.budget, how, target), *([persons] if persons else [])]
        return Page(
            self.title, [], header, rows, after=[*after, *(f"Note: {n}" for n in self.notes)]
        )


_ROUNDS = 5  # in which boxes are halved along every axis
_MOST_BOXES = 4_096
_ENTRIES = 2**20
_UNKNOWN = 1e200  # in place of an infinite slope, whose product with 0 is undefined


@dataclass(frozen=True, eq=False)
class RiskSurface(Cached):
    """Noisy mean losses at the points of a grid.

    The noise is within joint quantiles; for the population Hoeffding's bound in Chernoff's form
    holds jointly by Bonferroni's inequality. Dividing by an estimate of n moves no minimum; bounds
    on n enter the rounding and the population's mean loss. See
    docs/explanation/regression/m-estimation.md.
    """

    block: LossBlock
    answers: Answers  # to the block

    @cached_property
    def risks(self) -> Floats:
        """(d,) noisy mean losses."""
        return self.answers.sums * self.block.unit / self.answers.n

    def near(self, alpha: float, target: Target) -> NearMinimisers:
        """The certified set of minimisers over the box of the grid, level 1 - alpha."""

        def compute() -> NearMinimisers:
            low, high, slope = self._bounds(alpha, target)
            axes = [axis.values for axis in self.block.axes]
            reach = self.block.reach * slope
            return NearMinimisers(axes, low, high, reach, self.block.convex)

        return self._once(("near", alpha, target), compute)

    def _shares(self, alpha: float, target: Target) -> tuple[float, float, float]:
        """Errors for the number of rows, the noise and sampling."""
        count = self.answers.rows.spent(alpha)
        if target == "table":
            return count, alpha - count, 0.0
        noise = for_noise(alpha - count, bound_only=self.answers.bound_only)
        return count, noise, alpha - count - noise

    def noise(self, alpha: float, target: Target) -> Floats:
        """Bounds (d,) on the noise of the mean losses, jointly."""
        _, beta, _ = self._shares(alpha, target)
        return joint_noise_quantiles(self.answers, beta) * self.block.unit / self.answers.n

    def _bounds(self, alpha: float, target: Target) -> tuple[Floats, Floats, float]:
        """Bounds (d,) on the mean losses, up to a common factor, and that factor."""
        count, _, sampling = self._shares(alpha, target)
        fewest, most = self.answers.rows.bounds(count)
        noise, rounding = self.noise(alpha, target), self.block.rounding
        low, high = self.risks - noise, self.risks + noise
        if target == "table":
            factor = most / self.answers.n
            return low - factor * rounding, high + factor * rounding, factor
        low = np.maximum(low, 0) * self.answers.n / most - rounding
        high = np.maximum(high, 0) * self.answers.n / fewest + rounding
        largest = self.block.largest_loss
        each = bonferroni(sampling, self.block.size)
        low, high = chernoff_confint(low / largest, high / largest, fewest, each)
        return largest * low, largest * high, 1.0

    @cached_property
    def estimate(self) -> Floats:
        """(p,) the minimum of a quadratic fitted where the noise leaves the minimum possible."""
        if not self.block.convex and np.any(np.isinf(self.block.reach)):
            axes = [axis.values for axis in self.block.axes]
            best = np.unravel_index(int(np.argmin(self.risks)), [len(values) for values in axes])
            return np.array([values[i] for values, i in zip(axes, best, strict=True)])
        noise = self.noise(USUAL_ALPHA, "table")
        used = self.risks - noise <= np.min(self.risks + noise)
        return quadratic_minimiser([a.values for a in self.block.axes], self.risks, used)

    def excess(self, alpha: float, target: Target) -> dict[str, float]:
        """How much the least mean loss may be below its upper bound, and what that is due to."""
        near = self.near(alpha, target)
        first, last = near.boxes
        total = near.most - float(near.lower(first, last).min())
        best = int(np.argmin(near.high))
        width = float(near.high[best] - near.low[best])
        rounding = 2 * self.block.rounding
        noise = min(2 * float(self.noise(alpha, target)[best]), width - rounding)
        return {
            "noise": noise, "rounding": rounding,
            "sampling": width - rounding - noise,
            "gaps of the grid": max(total - width, 0.0),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class NearMinimisers:
    """The points of a box at which a function may have its minimum over that box.

    The minimum is at most U, the least of the upper bounds. With l = low(f) at a grid point f and s
    a subgradient, the function at b is at least l + sum_j min(s_j^- (b - f)_j, s_j^+ (b - f)_j): by
    convexity s_j^+ is at most (high(g) - l) / (g - f)_j for every grid point g after f along axis
    j, s_j^- alike, and |s_j| <= reach_j. Points where some f makes this larger than U are no
    minimisers (eq. slope-at-point and lower-bound-of-loss of
    docs/explanation/regression/m-estimation.md).
    """

    axes: Sequence[Floats]  # the grid: p axes of increasing values (k_j,); the box is its hull
    low: Floats  # (d,) bounds on the function at the grid points, the last axis running first
    high: Floats
    # (p,) Lipschitz constants: the function changes by at most sum_j reach_j |a_j - b_j| from a to
    # b. Infinite where nothing is known; if it is not convex either, the minimum is that over the
    # grid points alone.
    reach: Floats
    convex: bool = True

    @property
    def most(self) -> float:
        """U, an upper bound of the minimum."""
        return float(self.high.min())

    @cached_property
    def points(self) -> Floats:
        """(d, p) grid points."""
        return np.array(list(itertools.product(*self.axes)))

    @cached_property
    def slopes(self) -> tuple[Floats, Floats]:
        """(d, p) bounds s^- and s^+ on the subgradients at the grid points (eq. slope-at-point)."""
        shape = [len(axis) for axis in self.axes]
        low, high = self.low.reshape(shape), self.high.reshape(shape)
        sides = []
        for j, axis in enumerate(self.axes):
            least, most = np.full(shape, -self.reach[j]), np.full(shape, self.reach[j])
            if self.convex:
                own, other = np.moveaxis(low, j, -1), np.moveaxis(high, j, -1)
                below, above = np.moveaxis(least, j, -1), np.moveaxis(most, j, -1)
                for m in range(1, len(axis)):
                    width = axis[m:] - axis[:-m]
                    rise = (other[..., m:] - own[..., :-m]) / width
                    np.minimum(above[..., :-m], rise, out=above[..., :-m])
                    fall = (own[..., m:] - other[..., :-m]) / width
                    np.maximum(below[..., m:], fall, out=below[..., m:])
            sides.append((least.ravel(), most.ravel()))
        least, most = (np.stack(side, axis=1) for side in zip(*sides, strict=True))
        return np.maximum(least, -_UNKNOWN), np.minimum(most, _UNKNOWN)

    @property
    def finite(self) -> bool:
        """True if the box is only its grid points: nothing is known between them."""
        return not self.convex and bool(np.any(np.isinf(self.reach)))

    def lower(self, first: Floats, last: Floats) -> Floats:
        """Lower bounds (m,) on boxes from `first` to `last`, (m, p) (eq. lower-bound-of-loss)."""
        least, most = self.slopes
        bounds = np.empty(len(first))
        size = max(1, _ENTRIES // len(self.low))
        for start in range(0, len(first), size):
            piece = slice(start, start + size)
            total = np.broadcast_to(self.low, (len(first[piece]), len(self.low))).copy()
            for j in range(len(self.axes)):
                ends = [
                    _product(least[:, j], most[:, j], end[piece, j, None] - self.points[:, j])
                    for end in (first, last)
                ]
                inside = (first[piece, j, None] <= self.points[:, j]) & (
                    self.points[:, j] <= last[piece, j, None]
                )
                total += np.where(inside, np.minimum(np.minimum(*ends), 0), np.minimum(*ends))
            bounds[piece] = total.max(axis=1)
        return bounds

    def possible(self, points: Floats) -> NDArray[np.bool_]:
        """(m,) True for each of m points (m, p) of the box that can be a minimiser."""
        ends = np.array([(axis[0], axis[-1]) for axis in self.axes])
        inside = np.all((points >= ends[:, 0]) & (points <= ends[:, 1]), axis=1)
        if self.finite:
            pairs = zip(points.T, self.axes, strict=True)
            inside = np.all([np.isin(values, axis) for values, axis in pairs], axis=0)
        return np.asarray(inside & (self.lower(points, points) <= self.most))

    @cached_property
    def boxes(self) -> tuple[Floats, Floats]:
        """First and last corners (m, p) of one box or more that hold all minimisers."""
        if self.finite:
            low_enough = self.points[self.low <= max(self.most, float(self.low.min()))]
            return low_enough, low_enough
        cells = list(itertools.product(*(range(len(axis) - 1) for axis in self.axes)))
        place = np.array(cells)
        first = np.stack([axis[place[:, j]] for j, axis in enumerate(self.axes)], axis=1)
        last = np.stack([axis[place[:, j] + 1] for j, axis in enumerate(self.axes)], axis=1)
        for round_ in range(_ROUNDS + 1):
            lower = self.lower(first, last)
            kept = lower <= max(self.most, float(lower.min()))  # one at least
            first, last = first[kept], last[kept]
            if round_ == _ROUNDS or len(first) * 2 ** len(self.axes) > _MOST_BOXES:
                break
            middle = (first + last) / 2
            halves = list(itertools.product((False, True), repeat=len(self.axes)))
            first, last = (
                np.concatenate([np.where(upper, *ends) for upper in halves])
                for ends in ((middle, first), (last, middle))
            )
        return first, last

    @property
    def hull(self) -> Floats:
        """(p, 2) least and largest value of every coordinate over the boxes."""
        first, last = self.boxes
        return np.stack([first.min(axis=0), last.max(axis=0)], axis=1)


def _product(least: Floats, most: Floats, distance: Floats) -> Floats:
    """Least of s t over s in [least, most], at t = distance (m, d)."""
    return np.where(distance > 0, least * distance, most * distance)


def quadratic_minimiser(axes: Sequence[Floats], values: Floats, used: NDArray[np.bool_]) -> Floats:
    """Minimum (p,) of a quadratic fitted to values (d,) at the used grid points and the 3^p least.

    The grid point with the least value where the fit has no minimum among these points.
    """
    shape = [len(axis) for axis in axes]
    best = np.unravel_index(int(np.argmin(values)), shape)
    near = np.zeros(shape, dtype=np.bool_)
    first = [min(max(int(i) - 1, 0), k - 3) for i, k in zip(best, shape, strict=True)]
    near[tuple(slice(i, i + 3) for i in first)] = True
    used = used | near.ravel()
    points = np.array(list(itertools.product(*axes)))[used]
    p = points.shape[1]
    origin = np.array([axis[i] for axis, i in zip(axes, best, strict=True)])
    steps = np.array([axis[1] - axis[0] for axis in axes])
    z = (points - origin) / steps
    i, j = np.triu_indices(p)
    terms = np.column_stack([np.ones(len(z)), z, z[:, i] * z[:, j]])
    fitted = np.linalg.lstsq(terms, values[used], rcond=None)[0]
    hessian = np.zeros((p, p))
    hessian[i, j] += fitted[1 + p :]
    hessian += hessian.T
    if np.linalg.eigvalsh(hessian).min() <= 1e-9 * np.abs(hessian).max():
        return origin
    least = np.linalg.solve(hessian, -fitted[1 : 1 + p])
    if np.any(least < z.min(axis=0)) or np.any(least > z.max(axis=0)):
        return origin
    return np.asarray(origin + steps * least)
