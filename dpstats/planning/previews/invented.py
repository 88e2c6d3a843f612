"""Rows invented from public guesses: margins on the grid, joined by a normal copula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import short
from dpstats.errors import RequestError
from dpstats.measured.strategy import check_rows
from dpstats.planning.previews.copula import normal_factor
from dpstats.schema import Category, Column, Guesses, Number, Schema
from dpstats.schema.guesses import moments_of

if TYPE_CHECKING:
    import pandas as pd

_CLOSE = 1e-2  # of a mean and a variance, in those of the guess
_NEWTON = 60
Seed = int | tuple[int, int] | np.random.Generator | None


def generator(seed: Seed) -> np.random.Generator:
    """Of a public simulation.

    Raises
    ------
    RequestError
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise RequestError(
            "rng must be a seed, a whole number of at least 0, or a numpy Generator, got "
            f"{short(seed)}"
        ) from None


def pretend(
    schema: Schema, n: int, guesses: Guesses | None = None, rng: Seed = None
) -> pd.DataFrame:
    """Invent rows that look like a private table, from public guesses alone.

    To rehearse a release, or to preview a plan with `like=`. Numbers follow a beta distribution
    with the guessed mean and standard deviation, rounded to the grid; levels their shares; and a
    normal copula joins them with the guessed correlations. Columns without a guess are spread
    evenly over their levels and bins.

    Parameters
    ----------
    schema : Schema
    n : int
        Number of rows.
    guesses : Guesses, optional
        Default: those of the schema.
    rng : seed or numpy Generator, optional
        The same seed gives the same rows.

    Returns
    -------
    DataFrame
        n rows with one column per declared column, holding values as the private table stores
        them. Missing cells are empty where the schema has ``allow_missing``, and otherwise hold
        what they count as.

    Raises
    ------
    RequestError
        If the guesses do not fit the schema, or no distribution has such correlations.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Number("age", 0, 120, points=121)])
    >>> guesses = dps.Guesses(typical={"age": {"mean": 45, "sd": 17}}, shares={"smoker": 0.2})
    >>> rows = dps.pretend(schema, 50_000, guesses, rng=1)
    >>> print(rows["age"].mean().round(), rows["age"].std().round(), rows["smoker"].mean().round(1))
    45.0 17.0 0.2
    """
    import pandas as pd

    if not isinstance(schema, Schema):
        raise RequestError(f"the first argument must be a dps.Schema, got {short(schema)}")
    check_rows(n)
    if guesses is not None and not isinstance(guesses, Guesses):
        raise RequestError(f"guesses must be dps.Guesses(...), got {short(guesses)}")
    if guesses is not None:
        guesses.check(schema)
    drawn = invented(schema, schema.guesses if guesses is None else guesses, n, generator(rng))
    return pd.DataFrame({column.name: _stored(column, drawn[column.name]) for column in schema})


def invented(
    schema: Schema, guesses: Guesses | None, m: int, rng: np.random.Generator
) -> dict[str, Codes]:
    """Codes (m,) of invented rows, column by column, from guesses that fit the schema.

    Raises
    ------
    SchemaError
        If no distribution has such correlations.
    """
    guesses = Guesses() if guesses is None else guesses.select(schema.names)
    margins = {column.name: margin(column, guesses) for column in schema}
    joined = list(dict.fromkeys(name for pair in guesses.correlations for name in pair))
    normal: Mapping[str, Floats] = {}
    if joined:
        factor = normal_factor(joined, margins, guesses.correlations)
        normal = dict(zip(joined, factor @ rng.standard_normal((len(joined), m)), strict=True))
    drawn = {}
    for column in schema:
        codes, shares = margins[column.name]
        if column.name in normal:
            from scipy.special import ndtr

            uniform = ndtr(normal[column.name])
        else:
            uniform = rng.random(m)
        cells = codes[np.minimum(np.searchsorted(shares.cumsum(), uniform), len(codes) - 1)]
        missing = _missing(column, guesses)
        if missing:
            cells = np.where(rng.random(m) < missing, column.missing_code, cells)
        drawn[column.name] = cells
    return drawn


def margin(column: Column, guesses: Guesses) -> tuple[Codes, Floats]:
    """Codes of values (c,), increasing, and their guessed probabilities (c,)."""
    shares = guesses.shares_of(column)
    if isinstance(column, Category):
        levels = column.bins - column.allow_missing
        even = np.full(levels, 1 / levels)
        return np.arange(levels), even if shares is None else np.array(shares)
    codes = column.codes_in_use
    bins = column.bins_of(codes)
    said = guesses.typical.get(column.name)
    if said is not None:
        base = _beta(column, *moments_of(column, said))
        if shares is None:
            return codes, base
    else:
        base = np.ones(len(codes))
    wanted = np.full(column.value_bins, 1 / column.value_bins) if shares is None else shares
    of_bin = np.bincount(bins, weights=base, minlength=column.value_bins)
    base = np.where(of_bin[bins] > 0, base, 1.0)  # a bin where the beta distribution has no mass
    of_bin = np.bincount(bins, weights=base, minlength=column.value_bins)
    return codes, base / of_bin[bins] * np.asarray(wanted)[bins]


def _beta(column: Number, mean: float, sd: float) -> Floats:
    """Probabilities (c,) of grid points, of a beta distribution with this mean and sd."""
    from scipy.special import betainc

    grid = column.grid[column.codes_in_use + column.half_points]
    grid = np.log(grid) if column.scale == "log" else np.asarray(grid, float)
    width = float(grid[-1] - grid[0])
    centre, variance = (mean - grid[0]) / width, (sd / width) ** 2
    total = centre * (1 - centre) / variance - 1
    cuts = ((grid[1:] + grid[:-1]) / 2 - grid[0]) / width
    below = betainc(centre * total, (1 - centre) * total, cuts)
    rounded: Floats = np.diff(below, prepend=0.0, append=1.0)
    steps = (grid - mean) / sd
    if abs(rounded @ steps) < _CLOSE and abs(rounded @ steps**2 - 1) < _CLOSE:
        return rounded
    both = _tilted(rounded, np.array([steps, steps**2]), np.array([0.0, 1.0]))
    found = _tilted(rounded, steps[None], np.zeros(1)) if both is None else both
    return rounded if found is None else found


def _tilted(shares: Floats, functions: Floats, wanted: Floats) -> Floats | None:
    """Shares (c,) times exp(a f + ...) with wanted means of the functions f (k, c), or None.

    By Newton's method. A few values can have no such mean and deviation: two of them have the
    deviation that follows from the mean.
    """
    slopes = np.zeros(len(functions))
    for _ in range(_NEWTON):
        exponent = slopes @ functions
        tilted = shares * np.exp(exponent - exponent.max())
        tilted /= tilted.sum()
        gap = functions @ tilted - wanted
        if np.abs(gap).max() < _CLOSE:
            return np.asarray(tilted)
        centred = functions - (functions @ tilted)[:, None]
        curvature = (centred * tilted) @ centred.T + 1e-9 * np.eye(len(slopes))
        step = np.linalg.solve(curvature, gap)
        slopes -= step / max(1.0, float(np.abs(step).max()))
    return None


def _missing(column: Column, guesses: Guesses) -> float:
    """Share of missing cells; even with the bins, where nothing is said of the column."""
    if column.name in guesses.missing:
        return float(guesses.missing[column.name])
    said = column.name in guesses.typical or column.name in guesses.shares
    return 1 / column.bins if column.allow_missing and not said else 0.0


def _stored(column: Column, codes: Codes) -> Any:
    """Cells (n,) as the private table stores them."""
    if isinstance(column, Number):
        return column.decode(codes)
    if not column.holds_text and not column.allow_missing:
        return np.asarray(column.stored)[codes]
    table = np.array([*column.stored, None], dtype=object)
    return table[codes]
