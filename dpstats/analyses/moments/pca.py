"""Principal components of some numbers, from their noisy first and second moments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.analyses.moments.clipping import ClippedColumns, clipping_notes
from dpstats.analyses.moments.covariance import notes_of
from dpstats.analyses.moments.eigen_intervals import ROUNDING, EigenIntervals
from dpstats.analyses.notes import cell_rules
from dpstats.arrays import Floats
from dpstats.checks import Method, Target, check_interval, check_numbers, check_whole, listed, short
from dpstats.errors import RequestError
from dpstats.measured.radius import SpectralRadius
from dpstats.measured.view import ReleaseView
from dpstats.results.base import Widths
from dpstats.results.estimates import EstimateResult
from dpstats.results.named import Named
from dpstats.schema import Number
from dpstats.schema.dates import day_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PCA(ClippedColumns):
    """Principal components: eigenvalues, their shares of the variance, and loadings.

    Parameters
    ----------
    columns : sequence of str
        At least two Numbers with ``missing=`` or ``allow_missing=True``, which leaves out the rows
        without a value of one of them; values are clamped to the declared bounds.
    standardize : bool
        False: columns in unit scale, which runs from -1 to 1 between the declared bounds; public
        bounds make the columns comparable at no cost. True: columns divided by their standard
        deviations (the correlation matrix); those are noisy too, and noise exceeds the signal
        first in columns that vary little within their bounds.
    n_components : int, optional
        How many components to report; all of them by default.
    clip_norm, center, scale : optional
        Shrink every row to at most this Euclidean norm, as in `dpstats.Covariance`. Columns are
        divided by their scales instead of being in unit scale.

    Raises
    ------
    RequestError

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.PCA(["age", "income", "bmi"], n_components=2)
    PCA(columns=('age', 'income', 'bmi'), standardize=False, n_components=2, clip_norm=None,
        center=None, scale=None)
    """

    kind: ClassVar[str] = "pca"
    preview_remark: ClassVar[str] = (
        "Even rows have nearly equal eigenvalues. Related columns have some larger ones with "
        "wider intervals, and some smaller ones with narrower intervals."
    )

    columns: Sequence[str]
    standardize: bool = False
    n_components: int | None = None
    clip_norm: float | None = None
    center: Mapping[str, float] | None = field(default=None, hash=False)
    scale: Mapping[str, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.standardize, bool):
            raise RequestError(f"standardize must be True or False, got {short(self.standardize)}")
        if self.n_components is not None:
            said = "n_components, at most one per column,"
            check_whole(said, self.n_components, 1, len(self.columns))

    def spectral_radius(
        self, release: ReleaseView, shares: Floats, alpha: float
    ) -> SpectralRadius | None:
        """Distance of the covariance matrix of synthetic rows from the private one, as a whole."""
        if self.standardize:
            return None  # its error is relative to variances, which have an error of their own
        return self.radius_of_rows(release, shares, alpha)

    def infer(self, release: ReleaseView) -> PCAResult:
        """Estimates with noise-aware and certified intervals."""
        columns = tuple(self.columns)
        covariance = self.noisy_covariance(release, standardize=self.standardize)
        ball = covariance.moments.ball
        k = len(columns) if self.n_components is None else self.n_components
        middles, units = covariance.moments.origin, covariance.moments.spread
        unit, spread = 1.0, units
        if self.standardize:
            spread = units * np.sqrt(np.maximum(covariance.variances, 0))
        elif ball is not None:  # columns divided by their scales
            radius = float(ball.clip_norm)
            unit, spread = radius**2, units / radius
        intervals = EigenIntervals(covariance, k, unit)
        sampling, privacy = intervals.variances
        numbers = [f"PC{i}" for i in range(1, k + 1)]
        notes = notes_of(covariance) + clipping_notes(covariance.moments)
        if self.standardize:
            notes.insert(0, "columns are standardised")
            if len(columns) == 2:
                notes.insert(1, "loadings of two standardised columns are 0.7071 or -0.7071 "
                    "whatever the data; only their signs are estimated")  # fmt: skip
        elif ball is None:
            notes.insert(0, "columns run from -1 to 1 between their declared bounds (unit scale)")
        notes.append(
            f"noise-aware limits are read off {covariance.draws} draws; at an alpha below "
            f"{intervals.least_alpha:.2g} they are the certified ones, or wider"
        )
        distinct = intervals.distinct(0.05, "population")
        unknown = [name for name, known in zip(numbers, distinct, strict=True) if not known]
        if unknown:
            notes.append(
                f"the direction of {', '.join(unknown)} is unknown: its eigenvalue cannot be "
                "distinguished from its neighbours"
            )
        terms = [
            *(f"{name} variance" for name in numbers),
            *(f"{name} ratio" for name in numbers),
            *(f"{name}: {column}" for name in numbers for column in columns),
        ]
        params = (intervals.corrected[:k] * unit, intervals.shares[:k], intervals.vectors[:k])
        return PCAResult(
            title=f"Principal components of {', '.join(columns)}",
            terms=terms,
            params=Named(np.concatenate([values.ravel() for values in params]), terms),
            sampling_variance=sampling,
            privacy_variance=privacy,
            intervals=intervals,
            rows=covariance.moments.answers.rows,
            budget=str(release.budget),
            notes=[*notes, cell_rules(release.schema, self)],
            columns=columns,
            mean_=middles + units * covariance.mean,
            spread=spread,
        )


@dataclass(frozen=True, repr=False, eq=False)
class PCAResult(EstimateResult):
    """Principal components with scikit-learn's names, each also without its last underscore.

    The parameters are the k eigenvalues, then their k shares of the variance, then the loadings
    of the first component, of the second, and so on; `conf_int` and `to_frame` follow that order.

    Attributes
    ----------
    columns : tuple of str
    mean_ : (p,) float64
        Noisy means, original units.
    spread : (p,) float64
        The divisor of each column: half its declared range, its noisy standard deviation, or its
        public scale.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Number(name, 0, 99, missing=0) for name in ("math", "physics")])
    >>> shape = dps.PCA(["math", "physics"])
    >>> plan = dps.plan(schema, {"shape": shape}, budget=dps.PureDP(1))
    >>> numbers = pd.Series(range(10_000))
    >>> rows = pd.DataFrame({"math": numbers % 100, "physics": numbers % 100 // 2})
    >>> result = dps.release(plan, rows, m=2_000).infer(shape)
    >>> print(result.params["PC1 variance"] == result.explained_variance_[0])
    True
    >>> result.components_.shape, result.loadings().shape
    ((2, 2), (4, 5))
    >>> result.transform(rows).shape, result.scores(rows).shape, len(result.angles())
    ((10000, 2), (10000, 2), 2)
    """

    interval_of: ClassVar[str] = "eigenvalues, in squares of the scaled columns"

    figures = ("scree", "loadings")

    columns: tuple[str, ...] = ()
    mean_: Floats = ()  # type: ignore[assignment]
    spread: Floats = ()  # type: ignore[assignment]

    @property
    def n_components_(self) -> int:
        """Number of components k."""
        return self._intervals.k

    @property
    def explained_variance_(self) -> Floats:
        """(k,) eigenvalues, less the bias of the noise; divisor n - 1 as scikit-learn's."""
        return np.asarray(self.params)[: self.n_components_]

    @property
    def explained_variance_ratio_(self) -> Floats:
        """(k,) their shares of the sum of all."""
        return np.asarray(self.params)[self.n_components_ : 2 * self.n_components_]

    @property
    def components_(self) -> Floats:
        """(k, p) unit vectors as rows; the largest loading of each is positive."""
        return np.asarray(self.params)[2 * self.n_components_ :].reshape(self.n_components_, -1)

    @property
    def singular_values_(self) -> Floats:
        """(k,) of the centred private rows: roots of the eigenvalues times n - 1."""
        return np.sqrt(self.explained_variance_ * max(self.nobs - 1, 0))

    @property
    def mean(self) -> Floats:
        """The field `mean_`."""
        return self.mean_

    n_components = n_components_
    explained_variance = explained_variance_
    explained_variance_ratio = explained_variance_ratio_
    components = components_
    singular_values = singular_values_

    @property
    def main_terms(self) -> list[str]:
        """The eigenvalues."""
        return self.terms[: self.n_components_]

    def preview_widths(self, method: Method, alpha: float = 0.05) -> Widths:
        """Widths of the intervals of the eigenvalues, whose ranges follow from the bounds."""
        first = self._intervals.subset(slice(0, self.n_components_))
        low, high = first.conf_int(alpha, method, "population")
        return Widths(self.main_terms, high - low, np.asarray(first.range_widths))

    def _shown(self, alpha: float, target: Target, most: int) -> pd.DataFrame:
        frame = super()._shown(alpha, target, most)
        ends = ["estimate", "conf_low", "conf_high", "certified_low", "certified_high"]
        numbers = frame[ends].to_numpy()
        loadings = numbers[2 * self.n_components_ :]
        loadings[:] = np.round(loadings / ROUNDING) * ROUNDING
        return frame.assign(**dict(zip(ends, numbers.T, strict=True)))

    @property
    def _intervals(self) -> EigenIntervals:
        assert isinstance(self.intervals, EigenIntervals)
        return self.intervals

    def angles(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Bounds on how far the directions are from the true ones.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`; certified are those of Davis and Kahan's sine theorem (1970).

        Returns
        -------
        DataFrame
            One row per component: ``vector``, the angle of the component, and ``subspace``, the
            largest angle between the spaces of the components up to it; in degrees, 90 if
            unknown.
        """
        import pandas as pd

        check_interval(alpha, method, target)
        own = self._intervals
        sines = own.certified_sines if method == "certified" else own.sines
        single, spaces = sines(alpha, target)
        names = [f"PC{i}" for i in range(1, self.n_components_ + 1)]
        angles = {"component": names, "vector": single, "subspace": spaces}
        return pd.DataFrame(angles).assign(
            vector=np.degrees(np.arcsin(single)), subspace=np.degrees(np.arcsin(spaces))
        )

    def loadings(
        self, *, alpha: float = 0.05, method: Method = "noise_aware", target: Target = "population"
    ) -> pd.DataFrame:
        """Loadings of the columns on the components, with intervals.

        Parameters
        ----------
        alpha, method, target :
            As in `conf_int`.

        Returns
        -------
        DataFrame
            Columns component, column, estimate, conf_low and conf_high.
        """
        import pandas as pd

        k = self.n_components_
        ends = self.conf_int(alpha=alpha, method=method, target=target)[2 * k :]
        return pd.DataFrame(
            {
                "component": np.repeat([f"PC{i}" for i in range(1, k + 1)], len(self.columns)),
                "column": list(self.columns) * k,
                "estimate": self.components_.ravel(),
                "conf_low": ends[:, 0],
                "conf_high": ends[:, 1],
            }
        )

    def scores(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Scores of rows on the components, such as those of ``release.to_frame()``.

        Parameters
        ----------
        frame : DataFrame
            Rows in original units with all the columns of the analysis, as they are: none is
            clamped or shrunk. Dates as such, as text, or as days since 1970-01-01. Further columns
            are ignored. Scores of private rows are private.

        Returns
        -------
        DataFrame
            Columns PC1, PC2, ..; the index of `frame`.

        Raises
        ------
        RequestError
            If a column is missing, or the noise exceeds a variance to divide by.
        """
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise RequestError(
                f"scores need a DataFrame with the columns {list(self.columns)}, got "
                f"{type(frame).__name__}"
            )
        lacking = [name for name in self.columns if name not in frame.columns]
        if lacking:
            raise RequestError(f"scores need the columns {lacking}; the frame does not have them")
        if not np.all(np.asarray(self.spread) > 0):
            raise RequestError(
                "the noise exceeds a variance, and scores divide by its root; use standardize=False"
            )
        blocks = self._intervals.covariance.moments.answers.blocks
        columns = itertools.chain.from_iterable(block.columns for block in blocks)
        dated = {column.name for column in columns if isinstance(column, Number) and column.dates}
        dated.intersection_update(self.columns)
        days = {name: [_day(value) for value in listed(frame[name])] for name in dated}
        rows = check_numbers("the columns to score", frame[list(self.columns)].assign(**days))
        scores = (rows - self.mean_) / self.spread @ self.components_.T
        names = [f"PC{i}" for i in range(1, self.n_components_ + 1)]
        return pd.DataFrame(scores, columns=names, index=frame.index)

    transform = scores


def _day(value: Any) -> Any:
    """A date as a day since 1970-01-01, a missing one as nan."""
    import pandas as pd

    day = day_of(value)
    return (np.nan if pd.isna(value) is True else value) if day is None else day
