"""Rows invented from public guesses: margins on the grid, joined by a normal copula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.checks import short
from dpstats.errors import RequestError, SchemaError
from dpstats.inference.simulation import Seed, make_generator
from dpstats.measured.strategy import check_rows
from dpstats.schema import Category, Column, Design, Guesses, Number, Schema
from dpstats.schema.guesses import moments_of
from dpstats.schema.repairs import let_views_agree

if TYPE_CHECKING:
    import pandas as pd

_CLOSE = 1e-2  # of a mean and a variance, in those of the guess
_NEWTON = 60
_NODES, _INNER = 512, 128  # equally likely normal scores, of the first column and of the rest
_EXTREME = 0.9999
_ROOT = 1e-4
_PROJECTIONS = 2_000
_TOLERANCE = 1e-3  # of a correlation


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
        n rows with the columns of the table, holding values as it stores them: those of the schema
        without views, and the ends of differences instead of these; two declared ends decide about
        their difference. Columns of a survey design that the schema does not declare have the mean
        weight, and units spread evenly over the declared ones. Missing cells are empty where the
        schema has ``allow_missing``, and otherwise hold what they count as.

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
    rng = make_generator(rng)
    drawn = invented(schema, schema.guesses if guesses is None else guesses, n, rng)
    cells = {c.name: _stored(c, drawn[c.name]) for c in schema.stored if c.raw_names == (c.name,)}
    for column in schema.stored:
        if isinstance(column, Number) and column.ends is not None:
            _add_ends(cells, column.ends, np.asarray(column.decode(drawn[column.name]), float))
    if schema.design is not None:
        cells = _of_design(schema.design, cells, n, rng) | cells
    return pd.DataFrame({name: cells[name] for name in schema.raw.names})


def invented(
    schema: Schema, guesses: Guesses | None, m: int, rng: np.random.Generator
) -> dict[str, Codes]:
    """Codes (m,) of invented rows, column by column, from guesses that fit the schema."""
    guesses = Guesses() if guesses is None else guesses.select(schema.names)
    margins = {column.name: _margin(column, guesses) for column in schema}
    joined = list(dict.fromkeys(name for pair in guesses.correlations for name in pair))
    scores_of: Mapping[str, Floats] = {}  # uniform, of columns that are joined
    if joined:
        from scipy.special import ndtr

        factor = _normal_factor(joined, margins, guesses.correlations)
        scores = factor @ rng.standard_normal((len(joined), m))
        scores_of = dict(zip(joined, ndtr(scores), strict=True))
    drawn = {}
    for column in schema:
        codes, shares = margins[column.name]
        uniform = scores_of[column.name] if column.name in scores_of else rng.random(m)
        cells = codes[_places(shares, uniform)]
        if missing := _missing(column, guesses):
            cells = np.where(rng.random(m) < missing, column.missing_code, cells)
        drawn[column.name] = cells
    guessed = {*guesses.typical, *guesses.shares}
    return schema.repairs(schema.names).repair(let_views_agree(schema, drawn, guessed))


def _margin(column: Column, guesses: Guesses) -> tuple[Codes, Floats]:
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
    tilted = _tilted(rounded, np.array([steps, steps**2]), np.array([0.0, 1.0]))
    if tilted is None:
        tilted = _tilted(rounded, steps[None], np.zeros(1))
    return rounded if tilted is None else tilted


def _tilted(shares: Floats, functions: Floats, wanted: Floats) -> Floats | None:
    """Shares (c,) times exp(a f + ...) with wanted means of functions (k, c); None without any."""
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
    if isinstance(column, Number):
        return column.decode(codes)
    if not column.holds_text and not column.allow_missing:
        return np.asarray(column.stored)[codes]
    table = np.array([*column.stored, None], dtype=object)
    return table[codes]


def _add_ends(cells: dict[str, Any], ends: tuple[str, str], differences: Floats) -> None:
    """Add the columns of differences (n,), unless both are there; the second is 0 by itself."""
    first, second = ends
    if first not in cells:
        origin = cells.setdefault(second, np.zeros(len(differences)))
        cells[first] = _moved(origin, differences)
    elif second not in cells:
        cells[second] = _moved(cells[first], -differences)


def _of_design(
    design: Design, cells: Mapping[str, Any], n: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns (n,) of a survey: the mean weight, and units, of the row's stratum if that is known.

    As many units as rows where their number is not declared.
    """
    units = [(stratum, key) for stratum, keys in design.listed_units for key in keys]
    units = units or [("1", key) for key in range(1, (design.number_of_units or n) + 1)]
    names = (design.strata, design.unit)
    known: list[tuple[int, str]] = [
        (place, name) for place, name in enumerate(names) if name is not None and name in cells
    ]
    fitting: dict[tuple[str, ...], list[tuple[Any, Any]]] = {}
    for unit in units:
        fitting.setdefault(tuple(str(unit[place]) for place, _ in known), []).append(unit)
    said = (map(str, cells[name]) for _, name in known)
    within = [fitting.get(row, units) for row in zip(*said, strict=True)] or [units] * n
    chosen = [few[int(u * len(few))] for few, u in zip(within, rng.random(n), strict=True)]
    columns = dict(zip(names, map(list, zip(*chosen, strict=True)), strict=True))
    return {design.weights: np.full(n, float(design.mean))} | {
        name: column for name, column in columns.items() if name is not None
    }


def _moved(origin: Any, differences: Floats) -> Any:
    """Numbers, or dates, that differ by so much from others (n,)."""
    if origin.dtype.kind == "M":
        days = np.where(np.isnan(differences), 0, np.rint(differences)).astype(np.int64)
        none = np.datetime64("NaT", "D")
        return np.where(np.isnan(differences), none, origin + days.astype("timedelta64[D]"))
    return np.asarray(origin, float) + differences if origin.dtype.kind in "iuf" else differences


def _normal_factor(
    names: Sequence[str],
    margins: Mapping[str, tuple[Codes, Floats]],
    correlations: Mapping[tuple[str, str], float],
) -> Floats:
    """Matrix (p, p) that gives normal scores the wanted correlations, others near zero."""
    wanted = np.eye(len(names))
    known = np.eye(len(names), dtype=bool)
    for (one, other), r in correlations.items():
        i, j = names.index(one), names.index(other)
        wanted[i, j] = wanted[j, i] = _latent(one, other, margins[one], margins[other], r)
        known[i, j] = known[j, i] = True
    scores = wanted
    for _ in range(_PROJECTIONS):  # between the two sets, which meet if there is such a matrix
        values, vectors = np.linalg.eigh(scores)
        if values[0] >= -(_TOLERANCE**2):
            break
        scores = (vectors * np.maximum(values, 0)) @ vectors.T
        scores = np.where(known, wanted, scores)
    values, vectors = np.linalg.eigh(scores)
    if values[0] < -_TOLERANCE:
        pairs = ", ".join(f"{one}-{other}" for one, other in correlations)
        raise SchemaError(
            f"no rows have all of the guessed correlations ({pairs}): where two columns are close "
            "to a third, they are close to each other; make some of them smaller"
        )
    factor = vectors * np.sqrt(np.maximum(values, 0))
    scaled: Floats = factor / np.sqrt((factor**2).sum(axis=1, keepdims=True))
    return scaled


def _latent(
    one: str, other: str, first: tuple[Codes, Floats], second: tuple[Codes, Floats], r: float
) -> float:
    """The correlation of normal scores that gives two columns the correlation r."""
    lowest, root, highest = _root(*(a.tobytes() for pair in (first, second) for a in pair), r)
    if root is None:
        raise SchemaError(
            f"the guessed correlation of {one!r} and {other!r} is {r:g}; with their guessed "
            f"distributions it lies between {lowest:.2f} and {highest:.2f}"
        )
    return root


@lru_cache(maxsize=512)
def _root(
    codes: bytes, shares: bytes, other_codes: bytes, other_shares: bytes, r: float
) -> tuple[float, float | None, float]:
    """The least correlation of two margins, the normal one that gives r, and the largest."""
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri

    first = np.frombuffer(codes, np.int64), np.frombuffer(shares, np.float64)
    second = np.frombuffer(other_codes, np.int64), np.frombuffer(other_shares, np.float64)
    middles = (np.arange(_NODES) + 0.5) / _NODES
    outer, inner = ndtri(middles)[:, None], ndtri((np.arange(_INNER) + 0.5) / _INNER)
    scores = _standard(first[0][_places(first[1], middles)], *first)

    def reached(rho: float) -> float:
        """Pearson correlation of the columns where that of their normal scores is rho."""
        mixed = rho * outer + np.sqrt(1 - rho**2) * inner
        cells = second[0][_places(second[1], ndtr(mixed))]
        return float(scores @ _standard(cells, *second).mean(axis=1)) / _NODES

    lowest, highest = reached(-_EXTREME), reached(_EXTREME)
    if not lowest < r < highest:
        return lowest, None, highest
    return lowest, brentq(lambda rho: reached(rho) - r, -_EXTREME, _EXTREME, xtol=_ROOT), highest


def _places(shares: Floats, uniform: Floats) -> Codes:
    return np.minimum(np.searchsorted(shares.cumsum(), uniform), len(shares) - 1)


def _standard(cells: Codes, codes: Codes, shares: Floats) -> Floats:
    mean = float(shares @ codes)
    variance = float(shares @ (codes - mean) ** 2)
    return (cells - mean) / np.sqrt(variance) if variance else np.zeros(cells.shape)
