"""Privacy budgets as exact rational numbers, and the neighbour relation they are stated for."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from dpstats.errors import BudgetError, FileFormatError, RequestError
from dpstats.privacy.laws import DiscreteLaplace

if TYPE_CHECKING:
    from dpstats.families.block import Sensitivity

Unit: TypeAlias = Literal["replace", "add_remove"]
Rational: TypeAlias = int | float | Fraction | Decimal


def check_unit(unit: object) -> Unit:
    """Neighbour relation, if it is one that can be used.

    Parameters
    ----------
    unit : {"replace", "add_remove"}
        What two neighbouring tables differ by. There is no silent default.

    Raises
    ------
    RequestError
        If the relation is unknown, or known but not available yet.
    """
    if isinstance(unit, str) and unit == "replace":
        return "replace"
    if isinstance(unit, str) and unit == "add_remove":
        raise RequestError(
            "unit='add_remove' is not available yet; use unit='replace', "
            "where neighbours differ by replacing one row and the number of rows n is public"
        )
    raise RequestError(
        f"unit must be 'replace' or 'add_remove', got {reprlib.repr(unit)}; "
        "it says what two neighbouring tables differ by"
    )


def read_rational(value: object, name: str) -> Fraction:
    """Positive exact rational that a number stands for.

    A float is read as its shortest decimal, so 0.1 is 1/10 and ten tenths make one.

    Parameters
    ----------
    value : int, float, Fraction or Decimal
        Positive and finite; NumPy integers and floats are numbers too.
    name : str
        The parameter, for the error message.

    Raises
    ------
    BudgetError
        For bool, None, text, NaN, infinities, zero and negative numbers.

    Examples
    --------
    >>> read_rational(0.1, "epsilon")
    Fraction(1, 10)
    """
    result: Fraction | None = None
    if isinstance(value, bool):  # a bool is an int in Python, never a budget
        pass
    elif isinstance(value, (int, Fraction)):
        result = Fraction(value)
    elif isinstance(value, np.integer):
        result = Fraction(int(value))
    elif isinstance(value, Decimal) and value.is_finite():
        result = Fraction(value)
    elif isinstance(value, (float, np.floating)) and math.isfinite(value):
        result = Fraction(str(value))  # str gives the shortest decimal that reads back the same
    if result is None or result <= 0:
        raise BudgetError(
            f"{name} must be a positive finite number, got {reprlib.repr(value)}; "
            "give an int, float, Decimal or Fraction such as 1, 0.5 or Fraction(1, 3)"
        )
    return result


def parse_fraction(text: object) -> Fraction | None:
    """Fraction written in a file as ``"1/10"`` or ``"2"``; None if it is anything else."""
    if not isinstance(text, str) or re.fullmatch(r"[0-9]+(/0*[1-9][0-9]*)?", text) is None:
        return None
    return Fraction(text)


def decimal_text(value: Fraction) -> str:
    """Short text of a rational: its decimal if that is exact, else the fraction itself."""
    decimal = f"{Decimal(value.numerator) / value.denominator:.12g}"
    return decimal if Fraction(decimal) == value else str(value)


def _exact(value: object, name: str) -> Fraction:
    """Positive int or Fraction; floats are refused because privacy is checked exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        raise BudgetError(
            f"{name} must be a positive int or Fraction, got {reprlib.repr(value)}; "
            "floats and booleans are refused because privacy is checked in exact rationals"
        )
    return Fraction(value)


@dataclass(frozen=True, init=False)
class PureDP:
    """Budget of pure (epsilon) differential privacy.

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
    >>> print(PureDP(0.1))
    epsilon = 0.1 (pure differential privacy)
    """

    epsilon: Fraction
    kind: ClassVar[str] = "pure"
    parameter: ClassVar[str] = "epsilon"

    def __init__(self, epsilon: Rational) -> None:
        object.__setattr__(self, "epsilon", read_rational(epsilon, self.parameter))

    def __str__(self) -> str:
        return f"epsilon = {decimal_text(self.epsilon)} (pure differential privacy)"

    @property
    def total(self) -> Fraction:
        """The amount that blocks share and that a ledger adds up."""
        return self.epsilon

    def cost(self, sensitivity: Sensitivity, multiplier: Fraction) -> Fraction:
        """Exact amount that a block spends.

        Parameters
        ----------
        sensitivity : Sensitivity
            Of the block's sums, each function in units of its bound B.
        multiplier : Fraction
            Noise scale in the same units: a function with bound B gets noise of scale
            ``multiplier * B``.
        """
        return _exact(sensitivity.l1, "sensitivity.l1") / _exact(multiplier, "multiplier")

    def multiplier(self, sensitivity: Sensitivity, amount: Fraction) -> Fraction:
        """Noise scale, in units of each function's bound, at which a block spends `amount`."""
        return _exact(sensitivity.l1, "sensitivity.l1") / _exact(amount, "amount")

    def law(self, scale: float, terms: int = 1) -> DiscreteLaplace:
        """Law of the sum of `terms` independent noises of this scale."""
        return DiscreteLaplace(scale, terms)

    def to_dict(self) -> dict[str, str]:
        """Exact form for files, such as ``{"kind": "pure", "epsilon": "1/10"}``."""
        return {"kind": self.kind, self.parameter: str(self.total)}


Budget: TypeAlias = PureDP
KINDS: dict[str, type[Budget]] = {PureDP.kind: PureDP}


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
            f"unknown kind of privacy budget {reprlib.repr(kind)}; "
            f"this version of dpstats reads: {', '.join(KINDS)}"
        )
    amount = parse_fraction(d.get(cls.parameter))
    if not amount:
        raise FileFormatError(
            f"a budget of kind {kind!r} needs {cls.parameter!r} as a positive fraction such as "
            f"'1/10', got {reprlib.repr(d.get(cls.parameter))}"
        )
    return cls(amount)
