"""Losses of a linear model at the points of a grid of its coefficients.

They are convex, Lipschitz, and the same on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import as_float, excerpt, short
from dpstats.errors import RequestError
from dpstats.families.features import Feature
from dpstats.families.formula import Design
from dpstats.families.losses.block import LARGEST, Axis, LossBlock, axes_of, grid_points
from dpstats.families.subgroups import require_answered
from dpstats.schema import Column, Number, Schema

_STEPS = 64  # knots of the softplus function per unit
_LAST = 40  # where log(1 + exp(-u)) is below the precision of float64


@dataclass(frozen=True)
class LinearLoss(ABC):
    """A loss that is convex in the linear predictor, and not negative."""

    kind: ClassVar[str]  # name in files
    binary: ClassVar[bool] = False  # whether the response is 0 or 1, rather than a number
    rounding: ClassVar[float] = 0.0  # bound on the error of `values` beyond that of float64

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Bound on the slope in the predictor and, of a number, in the response."""

    @abstractmethod
    def values(self, response: Floats, predictor: Floats) -> Floats:
        """Losses, by arithmetic that rounds alike on every machine; shapes broadcast."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the kind and the parameters."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class LogisticLoss(LinearLoss):
    """The negative log likelihood of a Boolean response, log(1 + exp(-t)) + (1 - y) t.

    t is the linear predictor. Between multiples of 1/64 it is interpolated linearly, which keeps it
    convex and adds at most 8e-6.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.LogisticLoss().to_dict()
    {'kind': 'logistic'}
    """

    kind: ClassVar[str] = "logistic"
    binary: ClassVar[bool] = True
    rounding: ClassVar[float] = 1 / (32 * _STEPS**2)  # h^2 / 8 times the second derivative, <= 1/4

    @property
    def lipschitz(self) -> float:
        """One."""
        return 1.0

    def values(self, response: Floats, predictor: Floats) -> Floats:
        """Losses for responses of 0 and 1."""
        wrong = np.where(response > 0, -predictor, predictor)
        knots = _log_one_plus_exp()
        place = np.minimum(np.abs(wrong), _LAST) * _STEPS
        k = np.minimum(place.astype(np.int64), len(knots) - 2)
        curved = knots[k] + (place - k) * (knots[k + 1] - knots[k])
        return np.asarray(np.maximum(wrong, 0) + curved)


@lru_cache(maxsize=1)
def _log_one_plus_exp() -> Floats:
    """log(1 + exp(-u)) at u = 0, 1/64, ..., 40; decimals, whose rounding is specified."""
    with localcontext() as context:
        context.prec = 20
        points = (Decimal(j) / _STEPS for j in range(_LAST * _STEPS + 1))
        return np.array([float((1 + (-u).exp()).ln()) for u in points])


@dataclass(frozen=True)
class HuberLoss(LinearLoss):
    """r^2 / 2 for residuals r up to k, and k (|r| - k / 2) beyond.

    Parameters
    ----------
    k : float
        Positive; in the unit of the response. It is public, as bounds are: 1.345 times the standard
        deviation that you expect of the errors loses 5% of the efficiency at normal errors.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.HuberLoss(k=1.5).lipschitz
    1.5
    """

    kind: ClassVar[str] = "huber"

    k: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", _number("k of a Huber loss", self.k, np.inf))

    @property
    def lipschitz(self) -> float:
        """The constant k."""
        return self.k

    def values(self, response: Floats, predictor: Floats) -> Floats:
        """Losses, in the unit of the response squared."""
        residual = np.abs(response - predictor)
        inner = np.minimum(residual, self.k)
        return np.asarray(inner * (residual - inner / 2))


@dataclass(frozen=True)
class PinballLoss(LinearLoss):
    """Pinball loss of a quantile: p r for positive residuals r, (p - 1) r for negative ones.

    Parameters
    ----------
    probability : float
        p, in (0, 1); 0.5 for the median, least absolute deviations.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.PinballLoss().lipschitz
    0.5
    """

    kind: ClassVar[str] = "pinball"

    probability: float = 0.5

    def __post_init__(self) -> None:
        checked = _number("probability of a pinball loss", self.probability, 1)
        object.__setattr__(self, "probability", checked)

    @property
    def lipschitz(self) -> float:
        """The larger of p and 1 - p."""
        return max(self.probability, 1 - self.probability)

    def values(self, response: Floats, predictor: Floats) -> Floats:
        """Losses, in the unit of the response."""
        residual = response - predictor
        slopes = self.probability, self.probability - 1
        return np.asarray(np.maximum(slopes[0] * residual, slopes[1] * residual))


LOSSES: Mapping[str, type[LinearLoss]] = {
    loss.kind: loss for loss in (LogisticLoss, HuberLoss, PinballLoss)
}


def loss_from_dict(plain: Mapping[str, Any]) -> LinearLoss:
    """Build a loss from its kind and parameters."""
    parameters = dict(plain)
    kind = parameters.pop("kind", None)
    if not isinstance(kind, str) or kind not in LOSSES:
        raise RequestError(
            f"unknown loss {short(kind)}; known: {list(LOSSES)}, or a dps.TabulatedLoss"
        )
    try:
        return LOSSES[kind](**parameters)
    except TypeError:
        known = [field.name for field in fields(LOSSES[kind])]
        raise RequestError(
            f"the loss {kind!r} takes the parameters {known}, got {sorted(parameters)}"
        ) from None


def _number(what: str, value: Any, below: float) -> float:
    try:
        found = np.nan if isinstance(value, bool | str) else as_float(value)
    except (TypeError, ValueError, OverflowError):
        found = np.nan
    if not 0 < found < below:
        allowed = "a positive number" if below == np.inf else f"between 0 and {below:g}"
        raise RequestError(f"{what} must be {allowed}, got {short(value)}")
    return found


@dataclass(frozen=True)
class LinearLosses(LossBlock):
    """The loss of a linear model at the points of a grid of its coefficients.

    The linear predictor is b_1 x_1 + ... + b_p x_p. Numbers among the regressors are taken from the
    middle of their bounds, in original units: then an intercept and a slope depend on each other
    less, and few grid points suffice.

    Examples
    --------
    >>> import dpstats as dps
    >>> from dpstats.families.losses.linear import LinearLosses
    >>> schema = dps.Schema([dps.Number("x", -1, 1, points=3, missing=0), dps.Boolean("y")])
    >>> grid = {"Intercept": (-1, 1, 3), "x": (-2, 2, 3)}
    >>> block = LinearLosses.of(schema, dps.LogisticLoss(), "y ~ x", grid)
    >>> block.size, block.names[1], block.sensitivity("replace").l1 < 9
    (9, 'loss at Intercept=-1, x=0', True)
    """

    columns: tuple[Column, ...]
    loss: LinearLoss
    response: Feature  # a number, or the indicator of one of two levels
    # a number, the indicator of a level, or None for the intercept; one per axis
    regressors: tuple[Feature | None, ...]
    axes: tuple[Axis, ...]

    kind: ClassVar[str] = "linear_losses"
    convex: ClassVar[bool] = True

    @staticmethod
    def of(schema: Schema, loss: LinearLoss, formula: str, grid: Mapping[str, Any]) -> LinearLosses:
        """The losses of a formula's model."""
        design = linear_design(schema, formula)
        if loss.binary != (design.response[1] is not None):
            needed = "a column with two levels" if loss.binary else "a number"
            raise RequestError(
                f"the {loss.kind} loss needs {needed} on the left of {excerpt(formula)}"
            )
        axes = {axis.name: axis for axis in axes_of(grid)}
        if set(axes) != set(design.names):
            raise RequestError(
                f"the grid must name the coefficients of {excerpt(formula)}, {design.names}; got "
                f"{list(axes)}"
            )
        factors = [regressor.factors for regressor in design.regressors]
        regressors = tuple(own[0] if own else None for own in factors)
        return LinearLosses.build(
            schema, loss, design.response, regressors, tuple(axes[name] for name in design.names)
        )

    @staticmethod
    def build(
        schema: Schema,
        loss: LinearLoss,
        response: Feature,
        regressors: tuple[Feature | None, ...],
        axes: tuple[Axis, ...],
    ) -> LinearLosses:
        """The block, from features of a schema."""
        used = {response[0], *(feature[0] for feature in regressors if feature is not None)}
        columns = tuple(column for column in schema if column.name in used)
        numbers = {name for name, level in (response, *filter(None, regressors)) if level is None}
        require_answered([c for c in columns if c.name in numbers or c.name == response[0]], None)
        for column in columns:
            if isinstance(column, Number) and column.name in numbers:
                _require_even(column)
                column.require_missing("losses")
        return LinearLosses(columns, loss, response, regressors, axes)

    @property
    def coded(self) -> tuple[Column, ...]:
        """The numbers."""
        return tuple(c for c in self.columns if isinstance(c, Number))

    def _values_of(self, feature: Feature, codes: Codes) -> Floats:
        """A response, or a regressor without its middle, (m,)."""
        column = self._by_name[feature[0]]
        if feature[1] is not None:
            return np.asarray(column.bins_of(codes) == feature[1], dtype=np.float64)
        assert isinstance(column, Number)
        return np.asarray(column.grid[codes + column.half_points])

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def middle(self, feature: Feature | None) -> float:
        """Offset subtracted from a regressor: the midpoint of a number's bounds, or zero."""
        column = None if feature is None or feature[1] is not None else self._by_name[feature[0]]
        return column.middle if isinstance(column, Number) else 0.0

    @cached_property
    def _spans(self) -> list[tuple[float, float]]:
        """Least and largest value of every regressor."""
        spans = []
        for feature in self.regressors:
            if feature is None:
                spans.append((1.0, 1.0))
            elif feature[1] is not None:
                spans.append((0.0, 1.0))
            else:
                number, middle = self._by_name[feature[0]], self.middle(feature)
                assert isinstance(number, Number)
                spans.append((float(number.grid[0]) - middle, float(number.grid[-1]) - middle))
        return spans

    @cached_property
    def _points(self) -> Floats:
        """(d, p) coefficients at the points of the grid."""
        return grid_points(self.axes)

    @property
    def reach(self) -> Floats:
        """(p,) bounds on how much the loss changes with each coefficient, per unit of it."""
        return self.loss.lipschitz * np.array([max(-low, high) for low, high in self._spans])

    @cached_property
    def largest_loss(self) -> float:
        """Bound on the loss over all rows and the whole box of coefficients.

        A convex function of response and predictor is largest at a corner of their box.
        """
        ends = [
            [b * x for b in (axis.low, axis.high) for x in span]
            for axis, span in zip(self.axes, self._spans, strict=True)
        ]
        predictor = np.array([sum(min(e) for e in ends), sum(max(e) for e in ends)])
        column = self._by_name[self.response[0]]
        response = column.grid[[0, -1]] if isinstance(column, Number) else np.array([0.0, 1.0])
        largest = float(self.loss.values(response[:, None], predictor).max())
        return largest * (1 + 1e-9)  # sums of floats round

    @property
    def unit(self) -> float:
        """The loss that one integer unit is."""
        return self.largest_loss / LARGEST

    @property
    def rounding(self) -> float:
        """Half a unit, and the rounding of the loss function."""
        return self.unit / 2 + self.loss.rounding + 1e-12 * self.largest_loss

    def values(self, codes: Mapping[str, Codes]) -> Codes:
        """Losses (m, d) int64, rounded to the nearest unit."""
        predictor = np.zeros((len(codes[self.columns[0].name]), self.size))
        for feature, coefficient in zip(self.regressors, self._points.T, strict=True):
            own = np.ones(len(predictor))
            if feature is not None:
                own = self._values_of(feature, codes[feature[0]]) - self.middle(feature)
            predictor += own[:, None] * coefficient
        response = self._values_of(self.response, codes[self.response[0]])
        losses = self.loss.values(response[:, None], predictor)
        return np.floor(losses / self.unit + 0.5).astype(np.int64)

    def distinguished(self, column: Column) -> Codes:
        """All codes of a column, or one of every bin where the value does not matter."""
        codes = super().distinguished(column)
        if (column.name, None) in (self.response, *self.regressors):
            return codes
        return np.asarray(codes[np.unique(column.bins_of(codes), return_index=True)[1]])

    @property
    def continuous(self) -> set[str]:
        """Numbers that enter by their value, and not by their bins too."""
        features = [self.response, *filter(None, self.regressors)]
        by_bin = {name for name, level in features if level is not None}
        return {name for name, level in features if level is None} - by_bin

    def slack(self, gaps: Mapping[str, float]) -> Codes:
        """A loss changes by at most its Lipschitz constant times the change of y - b'x.

        One unit more, for rounding (eq. slack-of-loss of
        ``docs/explanation/privacy/sensitivity.md``).
        """
        moved = np.zeros(self.size)
        for feature, coefficient in zip(self.regressors, self._points.T, strict=True):
            if feature is not None and feature[1] is None:
                moved += gaps.get(feature[0], 0.0) * np.abs(coefficient)
        if self.response[1] is None:
            moved += gaps.get(self.response[0], 0.0)
        units = self.loss.lipschitz * moved / self.unit
        return np.where(units > 0, np.ceil(units + 1e-6) + 1, 0).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "loss": self.loss.to_dict(),
            "response": list(self.response),
            "regressors": [f if f is None else list(f) for f in self.regressors],
            "axes": [[axis.name, axis.low, axis.high, axis.points] for axis in self.axes],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], schema: Schema) -> LinearLosses:
        """Inverse of `to_dict`."""
        loss = loss_from_dict(plain["loss"])
        grid = {name: (low, high, points) for name, low, high, points in plain["axes"]}
        response = _feature(plain["response"], schema)
        regressors = tuple(f if f is None else _feature(f, schema) for f in plain["regressors"])
        axes = axes_of(grid)
        if len(axes) != len(regressors) or loss.binary != (response[1] is not None):
            raise RequestError("the file holds losses whose grid or response does not fit them")
        return cls.build(schema, loss, response, regressors, axes)


def linear_design(schema: Schema, formula: str) -> Design:
    """The response and the regressors of a formula without products; ``y ~ 1`` has none."""
    design = Design.of(formula, schema, constant_alone=True)
    if any(len(regressor.factors) > 1 for regressor in design.regressors):
        raise RequestError(
            f"{excerpt(formula)} has a product or a square; losses on a grid are of single columns"
        )
    return design


def _require_even(column: Number) -> None:
    """Refuse a logarithmic grid: losses are integers, alike on every machine, and logarithms no."""
    if column.scale == "log":
        raise RequestError(
            f"{column.name!r} has scale='log' in the schema, and losses on a grid take numbers in "
            "original units alone; compute the logarithm beforehand, as a column of its own such "
            f"as dps.Number({'log_' + column.name!r}, ...), or declare {column.name!r} with an "
            "even grid"
        )


def _feature(plain: Any, schema: Schema) -> Feature:
    """A feature of a file, checked against the schema."""
    name, level = plain
    column = schema[name]
    number = level is None and isinstance(column, Number)
    if not number and not (type(level) is int and 0 <= level < column.bins):
        raise RequestError(f"the file holds losses of {name!r} that the schema does not have")
    return name, level
