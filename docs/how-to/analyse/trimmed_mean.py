"""The trimmed mean of a number with declared edges: an analysis outside dpstats."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import dpstats as dps


@dps.register
@dataclass(frozen=True)
class TrimmedMean:
    """Mean of a number without the lowest and the highest share of the rows.

    With Q the quantile function in the population, it is the mean of Q(t) over t from `trim` to
    1 - `trim`. Intervals cover that value of the number itself, not of its bins.
    """

    kind: ClassVar[str] = "trimmed_mean"

    column: str
    trim: float = 0.1

    def __post_init__(self):
        if not 0 <= self.trim < 0.5:
            raise dps.RequestError(f"trim must be at least 0 and below 0.5, got {self.trim!r}")

    def family(self, schema):
        """The table of the column."""
        if not getattr(schema[self.column], "edges", ()):
            raise dps.RequestError(f"{self.column!r} needs edges in the schema; add edges=[...]")
        return dps.Family((dps.Cells.table(schema, [self.column]),))

    def infer(self, release):
        """Estimate from the midpoints of the bins; an interval from all their ends."""
        number = release.schema[self.column]
        sign = "<" if number.closed == "left" else "<="
        below = [f"`{self.column}` {sign} {edge!r}" for edge in number.edges]
        answers = release.answers([dps.Cells.condition(release.schema, text) for text in below])
        cuts = np.array([number.low, *number.edges, number.high], dtype=float)
        middles = (cuts[:-1] + cuts[1:]) / 2
        shares = np.clip(answers.means, 0, 1)
        # The estimate is linear in the shares between trim and 1 - trim: the delta method.
        inside = (self.trim < shares) & (shares < 1 - self.trim)
        slope = -np.diff(middles) * inside / (1 - 2 * self.trim)
        sampling = np.minimum.outer(shares, shares) - np.outer(shares, shares)
        rows = 0.0 if answers.rows.law is None else answers.rows.law.variance
        noise = slope @ answers.noise_covariance @ slope + (slope @ shares) ** 2 * rows
        return TrimmedMeanResult(
            title=f"Trimmed mean of {self.column}, {self.trim:g} of the rows cut at either end",
            terms=[self.column],
            params=np.array([trimmed(middles, shares, self.trim)]),
            sampling_variance=np.array([max(0.0, slope @ sampling @ slope) / answers.n]),
            privacy_variance=np.array([noise / answers.n**2]),
            intervals=TrimmedMeanIntervals(answers, cuts, self.trim),
            rows=answers.rows,
            budget=str(release.budget),
            scalar=True,
            notes=["the standard error does not allow for the positions of values in their bins"],
        )


def trimmed(points, shares, trim):
    """Trimmed mean of d + 1 increasing points, by the shares (d,) of the rows at the first ones."""
    kept = np.clip(np.concatenate([[0.0], shares, [1.0]]), trim, 1 - trim)
    return points @ np.diff(kept) / (1 - 2 * trim)


class TrimmedMeanResult(dps.EstimateResult):
    """An estimate in the unit of its column."""

    interval_of = property(lambda self: f"{self.terms[0]}, in its own unit")


@dataclass(frozen=True)
class TrimmedMeanIntervals(dps.Intervals):
    """The least and the largest trimmed mean over a joint confidence box for all shares."""

    from_bounds: ClassVar[bool] = True  # knows the noise by its quantiles alone

    answers: dps.Answers
    cuts: np.ndarray
    trim: float

    def box(self, alpha, target):
        """Joint limits (d,) for the shares of the rows below each edge."""
        answers, d = self.answers, len(self.answers.sums)
        fewest, most = answers.rows.bounds(0.0 if answers.rows.public else alpha / 25)
        width, noise = 0.0, alpha * 24 / 25
        if target == "population":  # Dvoretzky, Kiefer, Wolfowitz; Massart (1990)
            noise = alpha / 5
            width = np.sqrt(np.log(2 / (alpha * 19 / 25)) / (2 * fewest))
        q = np.array([answers.law(f).quantile(noise / d) for f in range(d)])  # Bonferroni
        low, high = (answers.sums - q) / most - width, (answers.sums + q) / fewest + width
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def __len__(self):
        """One parameter."""
        return 1

    def certified(self, alpha, target):
        """Limits (1,)."""
        low, high = self.box(alpha, target)
        least = trimmed(self.cuts[:-1], high, self.trim)  # values at the low ends of their bins
        most = trimmed(self.cuts[1:], low, self.trim)
        return np.array([least]), np.array([most])

    noise_aware = certified  # which is valid too

    def pvalues(self, value, alternative):
        """The smallest alpha whose interval excludes the value (1,), at most about 5% too large."""
        for alpha in np.geomspace(1e-4, 0.5, 175):
            (low,), (high,) = self.certified(float(alpha), "population")
            if (value < low and alternative != "smaller") or (
                value > high and alternative != "larger"
            ):
                return np.array([alpha])
        return np.ones(1)

    def subset(self, chosen):
        """There is one parameter."""
        return self
