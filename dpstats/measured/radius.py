"""The published radius of an analysis: how far means over the rows are from the private ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dpstats.arrays import Floats
from dpstats.checks import lines_shown
from dpstats.error_rates import percent

if TYPE_CHECKING:
    import pandas as pd

Rows = int | tuple[int, int]
_SHOWN = 12


@dataclass(frozen=True)
class SpectralRadius:
    """Bounds on the error of a covariance matrix (divisor n, unit scale) as a whole.

    They hold together with the probability of the radius that they belong to, but not jointly with
    its functions.
    """

    norm: float  # of the error, spectral
    trace: float
    mean: float  # Euclidean length of the error of the means
    n: tuple[int, int]  # bounds on the number of private rows, equal where it is public


@dataclass(frozen=True, repr=False, eq=False)
class Radius(Mapping[str, float]):
    """Function name -> bound on the distance of its mean over the rows from the private mean.

    In unit scale, in which functions lie in [-1, 1]. All bounds, and those on the number of rows,
    hold jointly with probability `level`.

    Attributes
    ----------
    analysis : str
        Whose functions they are.
    names : tuple of str
    values_of : (d,) float64
    alpha : float
        Probability that any of them fails.
    n : int, or (int, int)
        Number of private rows where it is public; else bounds on it.
    spectral : SpectralRadius or None
        Of principal components.
    rows_per_person : int
        The most rows of one person, which are not independent.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> radius = dps.release(plan, rows, rng=1).radius("smoking", alpha=0.025)
    >>> list(radius), radius.level, radius.max < 0.001
    (['smoker'], 0.975, True)
    >>> list(radius.to_frame())
    ['function', 'radius']
    """

    analysis: str
    names: tuple[str, ...]
    values_of: Floats
    alpha: float
    n: Rows
    spectral: SpectralRadius | None = None
    # Where n is not public, the same for sums over an estimate of n, and that estimate; sharper
    # than what follows from the means.
    of_sums: Floats | None = field(default=None)
    estimate: float | None = None
    rows_per_person: int = 1

    def __getitem__(self, name: str) -> float:
        return self._largest[name]

    @cached_property
    def _largest(self) -> dict[str, float]:
        """By name; two functions have one where a column is called like a square, as a^2."""
        largest: dict[str, float] = {}
        for name, value in zip(self.names, self.values_of.tolist(), strict=True):
            largest[name] = max(value, largest.get(name, 0.0))
        return largest

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def level(self) -> float:
        """Probability with which all of them hold, 1 - alpha."""
        return round(1 - self.alpha, 12)

    @property
    def max(self) -> float:
        """The largest: one number that bounds every function of the analysis."""
        return float(self.values_of.max())

    @property
    def worst(self) -> str:
        """The function with the largest."""
        return self.names[int(self.values_of.argmax())]

    def to_frame(self) -> pd.DataFrame:
        """One row per function.

        Returns
        -------
        DataFrame
            Columns function and radius; the level is in ``attrs``.
        """
        import pandas as pd

        frame = pd.DataFrame({"function": self.names, "radius": self.values_of})
        frame.attrs["level"] = self.level
        return frame

    def __str__(self) -> str:
        low, high = self.n if isinstance(self.n, tuple) else (self.n, self.n)
        rows = f"n = {low}" if low == high else f"n from {low} to {high}"
        shown = list(self)[: lines_shown(len(self), _SHOWN)]
        width = max(len(name) for name in shown)
        lines = [f"  {name:<{width}}  {self[name]:.3g}" for name in shown]
        more = len(self) - len(shown)
        return "\n".join([
            f"Radius of {self.analysis!r}: with probability {percent(self.alpha)} over the privacy "
            f"noise, jointly, {rows} and",
            "the mean of each function over the rows is within this of that over the private rows:",
            *lines,
            *([f"  and {more} more; the largest is {self.max:.3g}, of {self.worst!r}"]
              if more else []),
        ])  # fmt: skip

    __repr__ = __str__
