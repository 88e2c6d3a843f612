"""Linear constraints on named coefficients, from text or from a matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_finite
from dpstats.errors import RequestError

Constraints = str | ArrayLike | tuple[ArrayLike, ArrayLike]

_WHOLE = re.compile(r"(?<![\w.])(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+")  # such as 1e-3
_LEVEL = re.compile(r"C\((?:[^()]|\([^()]*\))*\)(?:\[[^\]]*\])?")  # such as C(region)[T.north]


def read_constraints(wanted: Constraints, terms: Sequence[str]) -> tuple[Floats, Floats, list[str]]:
    """Combinations of coefficients, the values they should equal, and their names.

    Parameters
    ----------
    wanted : str, (k, d) array_like, or a pair of such an array and (k,) values
        Such as ``"age = 0.5, C(region)[T.south] - C(region)[T.east]"``, read by formulaic; or one
        row per combination, whose values are 0 unless given.
    terms : sequence of str
        Names of the d coefficients.

    Returns
    -------
    matrix : (k, d) float64
    values : (k,) float64
    names : list of str

    Raises
    ------
    RequestError
        For text that cannot be read, a matrix of another width, or a combination of nothing.
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
    text = " + ".join(t if v == 1 else f"{v:g} {t}" for v, t in parts)
    return text.replace("+ -1 ", "- ").replace("+ -", "- ") or "0"


def _read(text: str, terms: Sequence[str]) -> tuple[Floats, Floats]:
    from formulaic.errors import FormulaicError
    from formulaic.utils.constraints import LinearConstraints

    # Longest names first, so that a name inside another one is not matched.
    stand_ins = {name: f"v{i}_" for i, name in enumerate(terms)}
    written = _WHOLE.sub(lambda match: f"{Decimal(match[0]):f}", text)
    written = re.sub(
        r"=\s*-", "= 0 - ", written.replace("==", "=")
    )  # formulaic reads no sign after =
    for name in sorted(stand_ins, key=len, reverse=True):
        written = written.replace(f"`{name}`", stand_ins[name])
        if not name.isidentifier():
            written = written.replace(name, stand_ins[name])
    if not written.strip():
        raise RequestError(f"there is nothing to test; coefficients: {terms}")
    variables = [stand_ins[n] if stand_ins[n] in written else n for n in terms]
    unknown = [n for n in re.findall(r"[^\W\d]\w*", written) if n not in variables]
    if unknown:
        level = _LEVEL.search(written) if unknown[0] == "C" else None
        named = unknown[0] if level is None else level[0]
        raise RequestError(f"{named!r} is not a coefficient; coefficients: {terms}")
    try:
        read = LinearConstraints.from_spec(written, variables)
        matrix = np.asarray(read.constraint_matrix, dtype=np.float64)
        values = np.asarray(read.constraint_values, dtype=np.float64)
    except (FormulaicError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise RequestError(
            f"{text!r} cannot be read; write combinations such as '{terms[-1]} = 0', with "
            f"commas between, of: {terms}"
        ) from error
    return matrix, values
