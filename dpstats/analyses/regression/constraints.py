"""Linear constraints on named coefficients, from text or from a matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_finite, excerpt
from dpstats.errors import RequestError

Constraints = str | ArrayLike | tuple[ArrayLike, ArrayLike]

_NUMBER = r"(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LEVEL = re.compile(r"C\((?:[^()]|\([^()]*\))*\)(?:\[[^\]]*\])?")  # such as C(region)[T.north]


def read_constraints(wanted: Constraints, terms: Sequence[str]) -> tuple[Floats, Floats, list[str]]:
    """Combinations (k, d) of coefficients, the values (k,) they should equal, and their names.

    `wanted` is text such as ``"age = 0.5, C(region)[T.south] - C(region)[T.east]"``, read by
    formulaic; or one row per combination, tested against 0; or such rows and values. What is in
    backticks is a name.
    """
    if isinstance(wanted, str):
        matrix, values = _read(wanted, terms)
    else:
        rows, given = _pair(wanted)
        matrix = np.atleast_2d(check_finite("r_matrix", rows))
        if matrix.ndim != 2 or matrix.shape[1] != len(terms):
            raise RequestError(
                f"r_matrix has shape {matrix.shape}; it needs a row per combination, with one "
                f"number per coefficient, {len(terms)}: {terms}"
            )
        values = check_finite("the values to test against", given, (len(matrix),))
    if not len(matrix) or not np.all(np.any(matrix != 0, axis=1)):
        raise RequestError(
            "a combination without any coefficient has nothing to test; give every row of r_matrix "
            f"a number that is not 0, or write '{terms[-1]} = 0'"
        )
    return matrix, values, [_text(row, terms) for row in matrix]


def _pair(wanted: Any) -> tuple[ArrayLike, ArrayLike]:
    """Rows and values, as statsmodels takes a tuple; two rows in a tuple are rows."""
    if isinstance(wanted, tuple) and len(wanted) == 2:
        first, second = (check_finite("r_matrix", part) for part in wanted)
        if second.shape in ((), (1,), np.atleast_2d(first).shape[:1]):
            return first, second
    return wanted, 0.0


def _text(row: Floats, terms: Sequence[str]) -> str:
    parts = [(v, t) for v, t in zip(row.tolist(), terms, strict=True) if v != 0]
    named = [(v, f"`{t}`" if _reads_otherwise(t, terms) else t) for v, t in parts]
    text = " + ".join(t if v == 1 else f"{v:g} {t}" for v, t in named)
    return text.replace("+ -1 ", "- ").replace("+ -", "- ") or "0"


def _read(text: str, terms: Sequence[str]) -> tuple[Floats, Floats]:
    from formulaic.errors import FormulaicError
    from formulaic.utils.constraints import LinearConstraints

    stand_ins = {name: f"v{i}_" for i, name in enumerate(terms)}

    def stand_in(match: re.Match[str]) -> str:
        """Text that formulaic reads in place of a name, or a number without an exponent."""
        if match["number"]:
            return f"{Decimal(match[0]):f}"
        name = match["quoted"] or match["bare"]
        if name is None:
            level = _LEVEL.match(text, match.start())
            unknown = match["unknown"] or (level or match)[0]
            raise RequestError(f"{unknown!r} is not a coefficient; coefficients: {terms}")
        if match["bare"] and _reads_otherwise(name, terms):
            raise RequestError(
                f"{name} in {excerpt(text)} is a coefficient and also a combination of others; put "
                "the names in backticks, as in `a` - `b` or `a - b`"
            )
        return stand_ins[name]

    if not text.strip():
        raise RequestError(f"there is nothing to test; coefficients: {terms}")
    written = _tokens(tuple(terms)).sub(stand_in, text).replace("==", "=")
    written = re.sub(r"=\s*-", "= 0 - ", written)  # formulaic reads no sign after =
    try:
        read = LinearConstraints.from_spec(written, list(stand_ins.values()))
        matrix = np.asarray(read.constraint_matrix, dtype=np.float64)
        values = np.asarray(read.constraint_values, dtype=np.float64)
    except (FormulaicError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise RequestError(
            f"{text!r} cannot be read; write combinations such as '{terms[-1]} = 0', with "
            f"commas between, of: {terms}"
        ) from error
    return matrix, values


@lru_cache(maxsize=64)
def _tokens(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Names in backticks and by themselves, the longest first, numbers, and other words."""
    names = sorted(terms, key=len, reverse=True)
    quoted, whole = "|".join(map(re.escape, names)), "|".join(map(_whole, names))
    return re.compile(
        f"`(?P<quoted>{quoted})`|`(?P<unknown>[^`]*)`|(?P<number>{_NUMBER})(?!\\w)|(?P<bare>{whole})"
        r"|[^\W\d][\w.]*"
    )


def _whole(name: str) -> str:
    """A pattern for a name that is no part of a longer word."""
    word = re.compile(r"\w")
    before = r"(?<![\w.])" if word.match(name[0]) else ""
    return before + re.escape(name) + (r"(?!\w)" if word.match(name[-1]) else "")


def _reads_otherwise(name: str, terms: Sequence[str]) -> bool:
    """Whether a name without backticks is also a number, or a combination of other coefficients."""
    others = [term for term in terms if term != name]
    if name.isidentifier() or not others:
        return False
    try:
        _read(name, others)
    except RequestError:
        return False
    return True
