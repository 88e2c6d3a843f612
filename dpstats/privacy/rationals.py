"""Exact rational numbers: budgets, multipliers and shares, in code and in files."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dpstats.checks import short
from dpstats.errors import BudgetError

Rational: TypeAlias = int | float | Fraction | Decimal
_LONGEST_TEXT = 4_000  # characters of a fraction in a file
_READABLE = 24  # characters of a fraction that a person reads
_LARGEST = 2_000  # bits of a number, and the decimal exponent of one; far beyond any budget


def read_rational(value: object, name: str) -> Fraction:
    """Exact value of a positive number.

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
        if abs(value.adjusted()) <= _LARGEST and len(value.as_tuple().digits) <= _LARGEST:
            result = Fraction(value)
    elif isinstance(value, (float, np.floating)) and math.isfinite(value):
        result = Fraction(str(value))  # str gives the shortest decimal that reads back the same
    if result is None or result <= 0 or _bits(result) > _LARGEST:
        raise BudgetError(
            f"{name} must be a positive finite number, got {_shown(value)}; give one such as 1 or "
            "0.5, or a fraction: Fraction(1, 3) in Python, 1/3 in files and commands"
        )
    return result


def _shown(value: object) -> str:
    """A value for a message; fractions as files write them."""
    return str(value)[:_READABLE] if isinstance(value, Fraction) else short(value)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def parse_fraction(text: object) -> Fraction | None:
    """Fraction written in a file as ``"1/10"`` or ``"2"``; None if it is anything else."""
    if not isinstance(text, str) or re.fullmatch(r"[0-9]+(/0*[1-9][0-9]*)?", text) is None:
        return None
    return Fraction(text) if len(text) <= _LONGEST_TEXT else None  # Python reads 4,300 digits


def total_of(values: Sequence[Fraction]) -> Fraction:
    """Exact sum of many fractions, over their common denominator."""
    common = math.lcm(*{value.denominator for value in values})
    return Fraction(sum(v.numerator * (common // v.denominator) for v in values), common)


def decimal_text(value: Fraction) -> str:
    """Short text of a rational: its decimal if that is exact, else the fraction itself."""
    decimal = f"{Decimal(value.numerator) / value.denominator:.12g}"
    return decimal if Fraction(decimal) == value else str(value)


def amount_text(value: Fraction) -> str:
    """Text of a rational for people: as `decimal_text`, a fraction with its decimal beside it.

    Examples
    --------
    >>> amount_text(Fraction(1, 4)), amount_text(Fraction(2, 3))
    ('0.25', '2/3 (about 0.666667)')
    >>> amount_text(Fraction(10**30, 3 * 10**30 + 1))
    'about 0.333333'
    """
    exact = decimal_text(value)
    if "/" not in exact:
        return exact
    about = f"about {Decimal(value.numerator) / value.denominator:.6g}"
    return f"{exact} ({about})" if len(exact) <= _READABLE else about


def check_exact(value: object, name: str) -> Fraction:
    """Positive int or Fraction; floats are refused because privacy is checked exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        raise BudgetError(
            f"{name} must be a positive int or Fraction, got {short(value)}; "
            "floats and booleans are refused because privacy is checked in exact rationals"
        )
    return Fraction(value)
