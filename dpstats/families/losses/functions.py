"""Losses of a response and a linear predictor: convex, Lipschitz, the same on every machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import as_float, short
from dpstats.errors import RequestError

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
