"""M-estimation on a grid: a loss is measured at points of the parameters, and minimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.analyses.notes import cell_rules
from dpstats.analyses.regression.risk_surface import NearMinimisers, RiskSurface
from dpstats.checks import Method, Target, check_alpha, check_target, short
from dpstats.error_rates import USUAL_ALPHA, percent
from dpstats.errors import RequestError
from dpstats.families.block import Family
from dpstats.families.losses.block import LossBlock
from dpstats.families.losses.functions import HuberLoss, loss_from_dict
from dpstats.families.losses.grid import axes_of
from dpstats.families.losses.linear import LinearLosses, linear_design
from dpstats.families.losses.tabulated import TabulatedLoss
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


@dataclass(frozen=True)
class LossGrid:
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

    def family(self, schema: Schema) -> Family:
        """The losses at the grid points."""
        return Family((self.block(schema),))

    def infer(self, release: ReleaseView) -> LossGridResult:
        """The estimate and the certified set."""
        block = self.block(release.schema)
        what = (
            self._plain["kind"]
            if self.formula is None
            else f"{_named(self._plain)}, "
            + linear_design(release.schema, self.formula).titled(self.formula, release.schema)
        )
        return _fitted(release, block, f"M-estimation: {what}", cell_rules(release.schema, self))


@dataclass(frozen=True)
class Huber:
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

    def family(self, schema: Schema) -> Family:
        """The losses at the grid points."""
        return Family((self.block(schema),))

    def infer(self, release: ReleaseView) -> LossGridResult:
        """The estimate and the certified set."""
        rules = cell_rules(release.schema, self)
        title = f"Huber regression: {self.formula} (k = {self.k:g})"
        return _fitted(release, self.block(release.schema), title, rules)


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
    options = ", ".join(f"{name}={value:g}" for name, value in plain.items() if name != "kind")
    return f"{plain['kind']} loss" + (f" ({options})" if options else "")


def _fitted(release: ReleaseView, block: LossBlock, title: str, rules: str) -> LossGridResult:
    """The result of an analysis whose losses these are."""
    surface = RiskSurface(block, release.answers(block))
    terms = [axis.name for axis in block.axes]
    return LossGridResult(
        title=title,
        terms=terms,
        params=Named(surface.estimate, terms),
        surface=surface,
        rows=surface.answers.rows,
        budget=str(release.budget),
        notes=[*_notes(surface), rules],
    )


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
        f"{axis.name} = {end:g}"
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
            f"{name} = {block.middle(feature):g}"
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
        if method != "certified":
            return super().preview_widths(method, alpha)
        ranges = np.array([np.ptp(axis.values) for axis in self.surface.block.axes])
        return Widths(self.terms, np.diff(np.asarray(self.conf_int(alpha=alpha)))[:, 0], ranges)

    def conf_int(self, *, alpha: float = USUAL_ALPHA, target: Target = "table") -> Named:
        """Least and largest value of each parameter over the certified set, (p, 2).

        They hold jointly with probability 1 - alpha, for any data.

        Parameters
        ----------
        alpha : float
        target : {"table", "population"}
            Minimisers of the mean loss of the private table, or of the population's.
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
        """Whether some values of all parameters are in the certified set.

        Parameters
        ----------
        parameters : mapping of names, or sequence
            In the order of `terms`.
        alpha : float
        target : {"table", "population"}

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
        """One row per grid point: the parameters, risk, low, high and possible.

        ``risk`` is the noisy mean loss; ``low`` and ``high`` bound it for all grid points jointly,
        with probability 1 - alpha (where n is measured, up to a common factor); ``possible`` is
        whether the point is in the certified set.
        """
        import pandas as pd

        near = self._near(alpha, target)
        frame = pd.DataFrame(near.points, columns=self.terms)
        bounds = {"risk": self.surface.risks, "low": near.low, "high": near.high}
        return frame.assign(**bounds, possible=near.possible(near.points))

    def to_frame(self, *, alpha: float = USUAL_ALPHA) -> pd.DataFrame:
        """Columns term, estimate, and the limits for the table and for the population."""
        import pandas as pd

        table = np.asarray(self.conf_int(alpha=alpha, target="table")).T
        population = np.asarray(self.conf_int(alpha=alpha, target="population")).T
        return pd.DataFrame({
            "term": self.terms, "estimate": np.asarray(self.params),
            "table_low": table[0], "table_high": table[1],
            "population_low": population[0], "population_high": population[1],
        })  # fmt: skip

    def summary(self, *, alpha: float = USUAL_ALPHA, target: Target = "table") -> str:
        """Text table with the certified intervals for the table and for the population.

        Parameters
        ----------
        alpha : float
        target : {"table", "population"}
            Named in the footer; both are printed.
        """
        return self._page(alpha, target).text()

    def _repr_html_(self) -> str:
        return self._page(USUAL_ALPHA, "table").html()

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
