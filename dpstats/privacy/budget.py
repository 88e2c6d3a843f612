"""Privacy budgets as exact rational numbers, and the neighbour relation they are stated for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar

from dpstats.checks import short
from dpstats.display import as_html
from dpstats.errors import BudgetError, FileFormatError
from dpstats.privacy.conversion import (
    Curve,
    epsilon_of,
    implies,
    log_delta,
    log_delta_of_gaussians,
    rho_of,
)
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import POWERS, DiscreteLaplace, LatticeLaw, Noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.privacy.rationals import (
    Rational,
    check_exact,
    decimal_text,
    parse_fraction,
    read_rational,
)


class Budget(ABC):
    """Base class of budgets: a block spends its price divided by its noise multiplier."""

    # kind, parameter: name of the definition of privacy in files, and of the parameter that adds up
    kind: ClassVar[str]
    parameter: ClassVar[str]
    cap_options: ClassVar[str]  # options of ``dpstats ledger new`` for this kind
    noise: ClassVar[Noise]  # {"laplace", "gaussian"}: the noise that it is spent on
    rows_of_one: ClassVar[str]  # the guarantee for a person with k rows

    def _repr_html_(self) -> str:
        return as_html("dpstats budget", [str(self)])

    @property
    @abstractmethod
    def total(self) -> Fraction:
        """The amount that blocks share and that a ledger adds up."""

    @abstractmethod
    def price(self, sensitivity: Sensitivity) -> Fraction:
        """Exact amount that a block spends at a multiplier of one."""

    @abstractmethod
    def law(self, scale: float, terms: int = 1) -> LatticeLaw:
        """Law of the sum of `terms` independent noises of this scale."""

    @abstractmethod
    def of_total(self, total: Rational) -> Budget:
        """A budget of the same kind (and delta) with another total."""

    @property
    def stated(self) -> tuple[str, Fraction]:
        """Parameter that states the budget, and its value."""
        return self.parameter, self.total

    def restated(self, value: Rational) -> Budget:
        """A budget of the same kind (and delta) with another value of the `stated` parameter."""
        return self.of_total(value)

    def cost(self, sensitivity: Sensitivity, multiplier: Fraction) -> Fraction:
        """Exact amount that a block spends.

        Parameters
        ----------
        sensitivity : Sensitivity
            Of the block's sums, each function in units of its bound B.
        multiplier : Fraction
            Scale of Laplace noise, squared scale of Gaussian noise, in the same units: so it is
            rational. See `noise.scale_for`.
        """
        return self.price(sensitivity) / check_exact(multiplier, "multiplier")

    def multiplier(self, sensitivity: Sensitivity, amount: Fraction) -> Fraction:
        """Multiplier of the noise at which a block spends `amount`."""
        return self.price(sensitivity) / check_exact(amount, "amount")

    def natural_scale(self, multiplier: Fraction) -> float:
        """Noise scale in units of each function's bound, as a float; inf beyond floats."""
        try:
            return float(float(multiplier) ** (1 / POWERS[self.noise]))
        except OverflowError:
            return math.inf

    def to_dict(self) -> dict[str, str]:
        """Exact form for files, such as ``{"kind": "pure", "epsilon": "1/10"}``."""
        return {"kind": self.kind, self.parameter: str(self.total)}


@dataclass(frozen=True, init=False)
class PureDP(Budget):
    """Budget of pure (epsilon) differential privacy, spent on discrete Laplace noise.

    Noise of scale s on sums of L1 sensitivity D costs D / s (eq. laplace-cost of
    docs/explanation/privacy/privacy.md).

    Parameters
    ----------
    epsilon : int, float, Fraction or Decimal
        Positive. A float is read as its shortest decimal.

    Attributes
    ----------
    epsilon : Fraction
        The exact budget.

    Examples
    --------
    >>> import dpstats as dps
    >>> print(dps.PureDP(0.1))
    epsilon = 0.1 (pure differential privacy)
    """

    epsilon: Fraction
    kind: ClassVar[str] = "pure"
    parameter: ClassVar[str] = "epsilon"
    cap_options: ClassVar[str] = "--kind pure --cap EPSILON"
    noise: ClassVar[Noise] = "laplace"
    rows_of_one: ClassVar[str] = "k rows of one person are protected at k times epsilon"

    def __init__(self, epsilon: Rational) -> None:
        object.__setattr__(self, "epsilon", read_rational(epsilon, self.parameter))

    def __str__(self) -> str:
        return f"epsilon = {decimal_text(self.epsilon)} (pure differential privacy)"

    @property
    def total(self) -> Fraction:
        """The amount that blocks share and that a ledger adds up."""
        return self.epsilon

    def price(self, sensitivity: Sensitivity) -> Fraction:
        """L1 sensitivity."""
        return check_exact(sensitivity.l1, "sensitivity.l1")

    def law(self, scale: float, terms: int = 1) -> DiscreteLaplace:
        """Law of the sum of `terms` independent noises of this scale."""
        return DiscreteLaplace(scale, terms)

    def of_total(self, total: Rational) -> PureDP:
        """A budget of another epsilon."""
        return PureDP(total)


@dataclass(frozen=True, init=False)
class ZCDP(Budget):
    """Budget of zero-concentrated (rho) differential privacy, spent on discrete Gaussian noise.

    Noise of scale sigma on sums of squared L2 sensitivity D2 costs D2 / (2 sigma^2) [1]_ (eq.
    gaussian-cost of docs/explanation/privacy/privacy.md): many functions together need far less
    noise than under `PureDP`. In exchange the privacy loss exceeds epsilon with a small probability
    delta, for every pair (epsilon, delta) on a curve. If one pair is all you need, `ApproxDP` has
    less noise for it.

    Parameters
    ----------
    rho : int, float, Fraction or Decimal
        Positive. A float is read as its shortest decimal.
    delta : int, float, Fraction or Decimal
        In (0, 1): the delta at which summaries state epsilon. It changes neither noise nor privacy.

    Attributes
    ----------
    rho, delta : Fraction

    References
    ----------
    .. [1] C. Canonne, G. Kamath and T. Steinke (2020), The discrete Gaussian for differential
       privacy, NeurIPS 33 (after Bun and Steinke 2016 for the continuous one).

    Examples
    --------
    >>> import dpstats as dps
    >>> print(dps.ZCDP(0.5))
    rho = 0.5 (zero-concentrated differential privacy: epsilon = 6.475 at delta = 1e-09)
    """

    rho: Fraction
    delta: Fraction
    kind: ClassVar[str] = "zcdp"
    parameter: ClassVar[str] = "rho"
    cap_options: ClassVar[str] = "--kind zcdp --cap RHO"
    curve: ClassVar[Curve] = staticmethod(log_delta)
    noise: ClassVar[Noise] = "gaussian"
    rows_of_one: ClassVar[str] = "k rows of one person are protected at k squared times rho"

    def __init__(self, rho: Rational, delta: Rational = Fraction(1, 10**9)) -> None:
        object.__setattr__(self, "rho", read_rational(rho, self.parameter))
        object.__setattr__(self, "delta", _read_delta(delta))

    @classmethod
    def from_epsilon_delta(cls, epsilon: Rational, delta: Rational) -> ZCDP:
        """Largest budget that guarantees (epsilon, delta)-differential privacy.

        Parameters
        ----------
        epsilon : int, float, Fraction or Decimal
            Positive.
        delta : int, float, Fraction or Decimal
            In (0, 1); far below one over the number of rows.

        Returns
        -------
        ZCDP

        Notes
        -----
        rho is rounded down to six digits; the conversion is that of Canonne, Kamath and Steinke
        (2020), see `conversion.log_delta`.

        Raises
        ------
        BudgetError
            If `epsilon` is not positive or `delta` not between 0 and 1.

        Examples
        --------
        >>> import dpstats as dps
        >>> dps.ZCDP.from_epsilon_delta(1, 1e-9).rho
        Fraction(14973, 1000000)
        """
        exact = read_rational(epsilon, "epsilon"), _read_delta(delta)
        return cls(rho_of(*exact), exact[1])

    def epsilon_at(self, delta: Rational | None = None) -> float:
        """Smallest known epsilon of (epsilon, delta)-privacy, rounded up.

        Parameters
        ----------
        delta : int, float, Fraction or Decimal, optional
            In (0, 1); the budget's own if not given.

        Returns
        -------
        float
        """
        own = self.delta if delta is None else _read_delta(delta)
        return epsilon_of(self.rho, own, type(self).curve)

    @property
    def reading(self) -> str:
        """Epsilon, rounded up, at the budget's delta."""
        epsilon = float(_rounded_up(self.epsilon_at(), 4))
        return f"epsilon = {epsilon:g} at delta = {float(self.delta):.3g}"

    def __str__(self) -> str:
        name = "zero-concentrated differential privacy"
        return f"rho = {decimal_text(self.rho)} ({name}: {self.reading})"

    @property
    def total(self) -> Fraction:
        """The amount that blocks share and that a ledger adds up."""
        return self.rho

    def price(self, sensitivity: Sensitivity) -> Fraction:
        """Half the squared L2 sensitivity."""
        return check_exact(sensitivity.l2_squared, "sensitivity.l2_squared") / 2

    def law(self, scale: float, terms: int = 1) -> DiscreteGaussian:
        """Law of the sum of `terms` independent noises of this scale."""
        return DiscreteGaussian(scale, terms)

    def of_total(self, total: Rational) -> ZCDP:
        """A budget of another rho, read at the same delta."""
        return ZCDP(total, self.delta)

    def to_dict(self) -> dict[str, str]:
        """Exact form for files."""
        return super().to_dict() | {"delta": str(self.delta)}


@dataclass(frozen=True, init=False)
class ApproxDP(ZCDP):
    """Budget of approximate (epsilon, delta) differential privacy, on discrete Gaussian noise.

    Blocks and releases spend it as rho, as under `ZCDP`: their noise is discrete Gaussian, and rho
    is half the squared distance, in units of the noise, that a row can move all sums. The (epsilon,
    delta) of all of them together follows from that distance by the curve of the Gaussian itself
    [1]_, with a proven allowance for noise that is discrete (eq. delta-of-gaussians of
    docs/explanation/privacy/approximate-dp.md). It is never worse than `ZCDP.from_epsilon_delta`,
    whose curve holds for any mechanism of that rho, and the noise has 4.5% less standard deviation
    at (1, 1e-9), 6% at (1, 1e-6), 7% at (1, 1e-5).

    Parameters
    ----------
    epsilon : int, float, Fraction or Decimal
        Positive. A float is read as its shortest decimal.
    delta : int, float, Fraction or Decimal
        In (0, 1); far below one over the number of rows.
    rho : int, float, Fraction or Decimal, optional
        What is spent; at most, and by default, the largest that is proven, to six digits.

    Attributes
    ----------
    epsilon, delta, rho : Fraction

    Raises
    ------
    BudgetError
        If `epsilon` is not positive, `delta` not between 0 and 1, or `rho` too large for them.

    References
    ----------
    .. [1] B. Balle and Y.-X. Wang (2018), Improving the Gaussian mechanism for differential
       privacy: analytical calibration and optimal denoising, ICML.

    Examples
    --------
    >>> import dpstats as dps
    >>> print(dps.ApproxDP(1, 1e-9))
    epsilon = 1, delta = 1e-09 (approximate differential privacy: rho = 0.0164161)
    """

    epsilon: Fraction
    kind: ClassVar[str] = "approx"
    cap_options: ClassVar[str] = "--kind approx --cap EPSILON --delta DELTA"
    curve: ClassVar[Curve] = staticmethod(log_delta_of_gaussians)

    def __init__(self, epsilon: Rational, delta: Rational, rho: Rational | None = None) -> None:
        exact = read_rational(epsilon, "epsilon"), _read_delta(delta)
        most = rho_of(*exact, log_delta_of_gaussians)
        super().__init__(most if rho is None else rho, exact[1])
        object.__setattr__(self, "epsilon", exact[0])
        if not (self.rho <= most or implies(self.rho, *exact, log_delta_of_gaussians)):
            raise BudgetError(
                f"rho must be at most {decimal_text(most)} for epsilon = {short(epsilon)} and "
                f"delta = {short(delta)}, got {short(rho)}; leave rho out for the largest"
            )

    @classmethod
    def from_epsilon_delta(cls, epsilon: Rational, delta: Rational) -> ApproxDP:
        """Budget of this epsilon and delta, as ``ApproxDP(epsilon, delta)`` makes it.

        Parameters
        ----------
        epsilon, delta : int, float, Fraction or Decimal
            As of `ApproxDP`.

        Returns
        -------
        ApproxDP
        """
        return cls(epsilon, delta)

    @classmethod
    def from_rho(cls, rho: Rational, delta: Rational) -> ApproxDP:
        """Budget of the least epsilon, rounded up to six digits, that `rho` guarantees at `delta`.

        Parameters
        ----------
        rho : int, float, Fraction or Decimal
            Positive.
        delta : int, float, Fraction or Decimal
            In (0, 1).

        Returns
        -------
        ApproxDP

        Examples
        --------
        >>> import dpstats as dps
        >>> print(dps.ApproxDP.from_rho(0.01, 1e-6))
        epsilon = 0.576822, delta = 1e-06 (approximate differential privacy: rho = 0.01)
        """
        exact = read_rational(rho, cls.parameter), _read_delta(delta)
        # a budget is positive; a few rho of nearly one delta are private at no epsilon at all
        epsilon = max(epsilon_of(*exact, log_delta_of_gaussians), 1e-9)
        return cls(Fraction(_rounded_up(epsilon, 6)), exact[1], exact[0])

    def of_total(self, total: Rational) -> ApproxDP:
        """A budget of another rho at the same delta."""
        return self.from_rho(total, self.delta)

    @property
    def stated(self) -> tuple[str, Fraction]:
        """Epsilon and its value: rho is what it spends."""
        return "epsilon", self.epsilon

    def restated(self, value: Rational) -> ApproxDP:
        """A budget of another epsilon at the same delta, with as much of its largest rho."""
        part = min(self.rho / ApproxDP(self.epsilon, self.delta).rho, Fraction(1))
        largest = ApproxDP(value, self.delta)
        return largest if part == 1 else ApproxDP(value, self.delta, part * largest.rho)

    def __str__(self) -> str:
        return (
            f"epsilon = {decimal_text(self.epsilon)}, delta = {float(self.delta):.3g} "
            f"(approximate differential privacy: rho = {decimal_text(self.rho)})"
        )

    def to_dict(self) -> dict[str, str]:
        """Exact form for files; rho is what blocks add up to."""
        return super().to_dict() | {"epsilon": str(self.epsilon)}


KINDS: dict[str, type[PureDP] | type[ZCDP] | type[ApproxDP]] = {
    cls.kind: cls for cls in (PureDP, ZCDP, ApproxDP)
}


def _rounded_up(value: float, digits: int) -> Decimal:
    return Context(prec=digits, rounding=ROUND_UP).create_decimal(Decimal(value))


def _read_delta(delta: object) -> Fraction:
    try:
        exact = read_rational(delta, "delta")
    except BudgetError:
        exact = Fraction(1)
    if exact >= 1:
        raise BudgetError(
            f"delta must be above 0 and below 1, got {short(delta)}; it is the probability of a "
            "larger privacy loss and should be far below one over the number of rows, such as "
            "1e-9; pure privacy, which has none, is dps.PureDP"
        )
    return exact


def check_budget(value: object, name: str = "budget") -> Budget:
    """Return a budget of the library, or raise BudgetError."""
    if not isinstance(value, PureDP | ZCDP):
        raise BudgetError(
            f"{name} must be a dps.PureDP(epsilon), a dps.ZCDP(rho) or a "
            f"dps.ApproxDP(epsilon, delta), got {short(value)}"
        )
    return value


def budget_from_dict(d: Mapping[str, object]) -> Budget:
    """Budget written by its ``to_dict``.

    Raises
    ------
    FileFormatError
        If the kind is unknown or the amount is not an exact positive fraction.
    """
    kind = d.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise FileFormatError(
            f"unknown kind of privacy budget {short(kind)}; "
            f"this version of dpstats reads: {', '.join(KINDS)}"
        )
    required = ("rho", "delta", "epsilon") if cls is ApproxDP else (cls.parameter,)
    given = {name: d.get(name) for name in required}
    if cls is ZCDP and "delta" in d:
        given["delta"] = d["delta"]
    exact: dict[str, Any] = {name: parse_fraction(text) for name, text in given.items()}
    try:
        if None in exact.values():
            raise BudgetError
        return cls(**exact)
    except BudgetError:
        raise FileFormatError(
            f"a budget of kind {kind!r} needs positive fractions such as '1/10' (delta below 1, "
            f"rho no larger than epsilon and delta allow), got {short(given)}"
        ) from None
