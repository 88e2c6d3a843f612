"""Estimates from several plausible tables, pooled by Rubin's rules.

Equations are those of docs/explanation/inference/what-a-release-can-answer.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_finite, check_whole, short
from dpstats.error_rates import percent
from dpstats.errors import RequestError
from dpstats.results.named import Named
from dpstats.results.rendering import Numerals, Page, Printed, fixed, share

if TYPE_CHECKING:
    import pandas as pd


ENOUGH = 5
FEW = (
    "Note: of {} draws the variance between them is hardly known: where the privacy noise is most "
    "of the variance, a 95% interval covers less. Make 5 draws or more, better 20."
)


@dataclass(frozen=True, repr=False, eq=False)
class Pooled(Printed):
    """Pooled estimates.

    Attributes
    ----------
    params : (d,) float64
        Means of the estimates of the draws.
    within, between : (d,) float64
        Mean U of the sampling variances, and variance B of the estimates between draws, which is
        that of the privacy noise.
    df : (d,) float64
        Degrees of freedom of the t interval; infinite where draws agree and `n` is not given.
    draws : int
        Their number M.
    rows_per_person : int
        Most rows of one person, by which the sampling variances were multiplied.

    Examples
    --------
    >>> import dpstats as dps
    >>> pooled = dps.pool([0.30, 0.32, 0.31], [0.0001, 0.0001, 0.0001])
    >>> print(pooled.params.round(3), pooled.bse.round(4), pooled.df.round(0))
    [0.31] [0.0153] [6.]
    >>> print(pooled.conf_int(alpha=0.05).round(3))
    [[0.273 0.347]]
    >>> "df" in pooled.summary(), len(pooled.to_frame())
    (True, 1)
    """

    params: Named
    within: Floats
    between: Floats
    df: Floats
    draws: int
    rows_per_person: int = 1

    @property
    def terms(self) -> list[str]:
        """Names of the parameters."""
        return list(self.params.names)

    @property
    def variance(self) -> Floats:
        """T = U + (1 + 1/M) B, (d,)."""
        return self.within + (1 + 1 / self.draws) * self.between

    @property
    def bse(self) -> Named:
        """Standard errors (d,), of sampling and privacy noise together."""
        return Named(np.sqrt(self.variance), self.params.names)

    @property
    def privacy_share(self) -> Floats:
        """Share (d,) of the variance that is due to the privacy noise."""
        total = np.maximum(self.variance, 1e-300)
        return (1 + 1 / self.draws) * self.between / total

    def conf_int(self, *, alpha: float = 0.05) -> Named:
        """Intervals for the population, by Student's t.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.

        Returns
        -------
        (d, 2) Named
        """
        from scipy import special

        check_alpha(alpha)
        reach = special.stdtrit(self.df, 1 - alpha / 2) * np.asarray(self.bse)
        centre = np.asarray(self.params)
        return Named(np.stack([centre - reach, centre + reach], axis=1), self.params.names)

    def to_frame(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """One row per parameter.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.

        Returns
        -------
        DataFrame
            Columns term, estimate, std_error, df, conf_low, conf_high and privacy_share.
        """
        import pandas as pd

        low, high = np.asarray(self.conf_int(alpha=alpha)).T
        return pd.DataFrame(
            {
                "term": self.terms,
                "estimate": np.asarray(self.params),
                "std_error": np.asarray(self.bse),
                "df": self.df,
                "conf_low": low,
                "conf_high": high,
                "privacy_share": self.privacy_share,
            }
        )

    def summary(self, *, alpha: float = 0.05) -> str:
        """Text table.

        Parameters
        ----------
        alpha : float
            Error probability of each interval.

        Returns
        -------
        str
        """
        return self._page(alpha).text()

    def _page(self, alpha: float = 0.05) -> Page:
        rows = []
        ends = np.asarray(self.conf_int(alpha=alpha)).tolist()
        numbers = (np.asarray(self.params), np.asarray(self.bse), self.df, self.privacy_share)
        columns = [column.tolist() for column in numbers]
        for term, (low, high), *row in zip(self.terms, ends, *columns, strict=True):
            estimate, error, df, part = row
            show = Numerals.of([estimate, low, high], error)
            spread = Numerals.of([error], error)(error)
            rows.append([
                term, show(estimate), spread, fixed(df, 0), show.interval(low, high), share(part)
            ])  # fmt: skip
        k = self.rows_per_person
        independent = "rows" if k == 1 else f"persons with at most {k} rows each"
        return Page(
            f"Pooled estimates from {self.draws} plausible tables",
            [],
            ["", "estimate", "std err", "df", percent(alpha), "privacy"],
            rows,
            after=[
                "By Rubin's rules: sampling within the tables, privacy noise between them. For the "
                f"population ({independent} assumed independent draws).",
                *([FEW.format(self.draws)] if self.draws < ENOUGH else []),
            ],
        )


def pool(
    estimates: Sequence[Any],
    variances: Sequence[Any],
    *,
    n: int | None = None,
    rows_per_person: int = 1,
) -> Pooled:
    """Pool estimates from plausible tables, see `Release.draws`, by Rubin's rules.

    The variance is T = U + (1 + 1/M) B: within the tables sampling, between them privacy noise.
    That is the rule of multiple imputation; the one for synthetic data that carry sampling too
    would count it twice. The degrees of freedom are those of Welch [1]_ and Satterthwaite for this
    sum of two variances,

        T^2 / (U^2 / (n - 1) + ((1 + 1/M) B)^2 / (M - 1)),

    which are Rubin's [2]_ for large n, and n - 1 where the draws agree. The correction of Barnard
    and Rubin for small n is not for this: it takes B for information about the sample that is
    missing, and leaves hardly any degrees of freedom where B is most of T. Here B is the variance
    of a noise of known law, which the number of rows says nothing of.

    Where B is most of T, 95% intervals cover .94 to .95 from 5 draws on, .92 with 3 and .87 with 2.
    So make 5 draws or more, better 20.

    Parameters
    ----------
    estimates, variances : sequences of M numbers, (d,) arrays or pandas Series
        Of every draw: estimates, and their sampling variances as if it were the private table. The
        index of a Series names the parameters, and draws are matched by it, in the order of the
        first.
    n : int, optional
        Number of rows, for the degrees of freedom; without it they are those of large tables.
    rows_per_person : int
        Most rows of one person. The sampling variances are multiplied by it: for persons who are
        independent draws, that of a sum over rows is at most so many times that of independent
        rows. `Draws.combine` knows it from the release.

    Returns
    -------
    Pooled

    Raises
    ------
    RequestError
        For fewer than two draws, shapes or labels that differ, variances below zero, and an n that
        is of fewer than two persons.

    References
    ----------
    .. [1] Welch, B. L. (1947). The generalization of 'Student's' problem when several different
       population variances are involved. Biometrika 34, 28-35.
    .. [2] Rubin, D. B. (1987). Multiple imputation for nonresponse in surveys. Wiley. (3.1.6)

    Examples
    --------
    >>> import dpstats as dps
    >>> pooled = dps.pool([[0.30, 0.1], [0.34, 0.1]], [[0.0001, 0.01], [0.0001, 0.01]], n=1_000)
    >>> print(pooled.privacy_share.round(2))
    [0.92 0.  ]
    """
    check_whole("rows_per_person", rows_per_person, 1)
    independent = None if n is None else independent_rows(n, rows_per_person)
    for what, given in (("estimates", estimates), ("variances", variances)):
        if not hasattr(given, "__len__") or isinstance(given, str):
            raise RequestError(
                f"pool takes the {what} of every draw, a sequence of two or more; got "
                f"{short(given)}"
            )
    estimates, variances, names = _aligned(list(estimates), list(variances))
    found, within = (_rows_of(what, given) for what, given in
                     (("estimates", estimates), ("variances", variances)))  # fmt: skip
    if found.shape != within.shape or len(found) < 2:
        raise RequestError(
            "pool takes the estimates and variances of two or more draws, of one shape; got "
            f"shapes {found.shape} and {within.shape}"
        )
    if np.any(within < 0):
        raise RequestError("a variance is below zero; give squared standard errors")
    draws, d = found.shape
    u, b = rows_per_person * within.mean(axis=0), found.var(axis=0, ddof=1)
    return Pooled(
        params=Named(found.mean(axis=0), names or tuple(f"x{i}" for i in range(d))),
        within=u,
        between=b,
        df=_degrees(u, (1 + 1 / draws) * b, draws, independent),
        draws=draws,
        rows_per_person=rows_per_person,
    )


def independent_rows(n: int, rows_per_person: int) -> int:
    """Number of independent rows or persons among n rows, or RequestError for fewer than two."""
    check_whole("n", n, 1)
    if n < 2 * rows_per_person:
        of = "rows" if rows_per_person == 1 else f"persons of up to {rows_per_person} rows"
        raise RequestError(
            f"n = {n} private rows (or their noisy number) are fewer than two {of}, and say "
            "nothing of the variance between these: draws are not pooled; use release.infer, whose "
            "intervals allow for it"
        )
    return n // rows_per_person


def _degrees(within: Floats, between: Floats, draws: int, n: int | None) -> Floats:
    """Degrees of freedom of T = within + between (eq. pooled-variance, pooled-degrees)."""
    total = within + between
    share_within = np.where(total > 0, within / np.where(total > 0, total, 1.0), 1.0)
    rate = (1 - share_within) ** 2 / (draws - 1)
    if n is not None:
        rate = rate + share_within**2 / (n - 1)
    with np.errstate(divide="ignore"):
        return np.asarray(1 / rate)


def _aligned(
    estimates: list[Any], variances: list[Any]
) -> tuple[list[Any], list[Any], tuple[str, ...]]:
    """Estimates and variances of all draws in the order of the first one's index, and its labels.

    Draws without an index are left as they are.
    """
    first = _index_of(estimates[0]) if estimates else None
    if first is None or len(estimates) != len(variances):
        return estimates, variances, ()
    pairs = []
    for one, variance in zip(estimates, variances, strict=True):
        order = _order(_index_of(one), first)
        own = _index_of(variance)
        values = np.asarray(variance)
        if own is not None:
            values = values[_order(own, first)]
        elif values.shape == (len(first),):  # in the order of this draw's estimates
            values = values[order]
        pairs.append((np.asarray(one)[order], values))
    return [one for one, _ in pairs], [other for _, other in pairs], tuple(map(str, first))


def _order(index: Any, first: Any) -> NDArray[np.intp]:
    """Places in the index of a draw of the labels of the first one's."""
    if index is not None and index.equals(first):
        return np.arange(len(first))
    if index is not None and len(index) == len(first) and first.is_unique and index.is_unique:
        places: NDArray[np.intp] = index.get_indexer(first)
        if np.all(places >= 0):
            return places
    raise RequestError(
        "the draws differ in the labels of their estimates, or a label occurs twice; give every "
        "draw the same ones, as with series.reindex(labels, fill_value=0)"
    )


def _rows_of(what: str, given: Sequence[ArrayLike]) -> Floats:
    try:
        stacked = np.stack([np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in given])
    except (TypeError, ValueError):
        raise RequestError(f"the {what} must be numbers, of every draw as many") from None
    return check_finite(f"the {what}", stacked.reshape(len(stacked), -1))


def _index_of(given: object) -> Any:
    """The index of a pandas Series."""
    index = getattr(given, "index", None)
    return index if hasattr(index, "get_indexer") else None
