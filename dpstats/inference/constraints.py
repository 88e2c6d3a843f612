"""Linear constraints on named coefficients, from text or from a matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dpstats.errors import RequestError
from dpstats.families.block import Floats
from dpstats.inference.checks import check_finite


def read_constraints(
    wanted: str | ArrayLike, terms: Sequence[str]
) -> tuple[Floats, Floats, list[str]]:
    """Combinations of coefficients, the values they should equal, and their names.

    Parameters
    ----------
    wanted : str or (k, d) array_like
        Such as ``"age = 0.5, C(region)[T.south] - C(region)[T.east]"``, read by formulaic; or one
        row per combination, whose values are then 0.
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
        For text that cannot be read, or a matrix of another width.
    """
    if isinstance(wanted, str):
        matrix, values = _read(wanted, terms)
    else:
        matrix = np.atleast_2d(check_finite("r_matrix", wanted))
        values = np.zeros(len(matrix))
    if matrix.shape[1] != len(terms):
        raise RequestError(
            f"r_matrix has {matrix.shape[1]} columns; it needs one per coefficient, "
            f"{len(terms)}: {terms}"
        )
    return matrix, values, [_text(row, terms) for row in matrix]


def _text(row: Floats, terms: Sequence[str]) -> str:
    parts = [(v, t) for v, t in zip(row.tolist(), terms, strict=True) if v != 0]
    text = " + ".join(t if v == 1 else f"{v:g} {t}" for v, t in parts)
    return text.replace("+ -1 ", "- ").replace("+ -", "- ") or "0"


def _read(text: str, terms: Sequence[str]) -> tuple[Floats, Floats]:
    from formulaic.errors import FormulaicError
    from formulaic.utils.constraints import LinearConstraints

    # Names in their order of length, so that one inside another is not taken for it.
    stand_ins = {name: f"v{i}_" for i, name in enumerate(terms)}
    written = re.sub(r"=\s*-", "= 0 - ", text)  # formulaic reads no sign after =
    for name in sorted(stand_ins, key=len, reverse=True):
        written = written.replace(f"`{name}`", stand_ins[name])
        if not name.isidentifier():
            written = written.replace(name, stand_ins[name])
    variables = [stand_ins[n] if stand_ins[n] in written else n for n in terms]
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
