"""Sampling variances of means: of independent rows, and over persons from products of totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from dpstats.arrays import Floats
from dpstats.families.persons import PersonShares
from dpstats.inference.person_forms import MOST_NOISE, PersonForms, measured_totals, small_sample
from dpstats.inference.simulation import calibration_seed

if TYPE_CHECKING:
    from dpstats.analyses.moments.noisy_mean import NoisyMean
    from dpstats.measured.answers import Answers
    from dpstats.measured.view import ReleaseView

Slopes: TypeAlias = Sequence[Floats | float]
SHARES = (0.0, 1.0)  # the values of a row without the trait and with it
_PURPOSE = 7  # of draws, distinct from those of means


class MeanSampling:
    """Sampling variance of slopes times means of one or two groups of independent rows.

    Or `NoisyMean.clustering` times that, the most it can be where rows depend on each other.
    """

    from_totals: ClassVar[bool] = False

    def variance(self, groups: Sequence[NoisyMean], slopes: Sequence[float]) -> float:
        """Estimate."""
        pairs = zip(groups, slopes, strict=True)
        return sum(slope**2 * group.sampling_variance for group, slope in pairs)

    def drawn(self, groups: Sequence[NoisyMean], slopes: Slopes) -> Floats:
        """Draws (m,) of it without the noise, for draws (m,) of the slopes, or numbers."""
        pairs = zip(groups, slopes, strict=True)
        return np.asarray(sum(slope**2 * group.drawn[1] for group, slope in pairs))


@dataclass(frozen=True)
class PersonVariance(MeanSampling):
    """Sampling variance of slopes times means of one or two groups, if persons are independent.

    A mean has the error sum over persons of (y_i - m n_i) / n to first order, a combination of the
    person's totals of the low and of the high value; the sum of squares over persons is a quadratic
    form in the measured products. The treatment of its noise, and why it is valid: "From person
    totals" in docs/explanation/inference/persons.md.
    """

    from_totals = True

    products: Answers  # to a block of `PersonShares`
    # for each group, the numbers of its totals, such as of the low and of the high value
    places: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]  # those that the totals are of
    k: int  # the most rows of one person

    @classmethod
    def of(
        cls,
        release: ReleaseView,
        block: PersonShares,
        groups: Sequence[int],
        values: tuple[float, float] = (-1.0, 1.0),
    ) -> PersonVariance | None:
        """From the two totals of each group, in this order; None if they were not measured.

        Shares have the high value first: rows with the trait, then those without.
        """
        found = measured_totals(release, block)
        if found is None:
            return None
        low, high = (0, 1) if block.number is not None else (1, 0)
        places = tuple((2 * g + low, 2 * g + high) for g in groups)
        return cls(found, places, values, found.rows.rows_per_person)

    @cached_property
    def _forms(self) -> PersonForms:
        return PersonForms(self.products)

    def _along(self, means: Sequence[Floats], sizes: Sequence[Floats], slopes: Slopes) -> Floats:
        """Combinations (T, m) of the totals, whose squares add up to the variance."""
        (block,) = self.products.blocks
        assert isinstance(block, PersonShares)
        along = np.zeros((len(block.totals), np.size(means[0])))
        for places, mean, size, slope in zip(self.places, means, sizes, slopes, strict=True):
            for place, value in zip(places, self.values, strict=True):
                along[place] = slope * (value - mean) / size
        return along

    def _factor(self, sizes: Sequence[Floats]) -> Floats:
        return small_sample(np.sum(sizes, axis=0), self.k, len(sizes))

    def _at_estimate(
        self, groups: Sequence[NoisyMean], slopes: Sequence[float]
    ) -> tuple[float, float]:
        """The form, and the standard deviation of its noise."""
        means, sizes = ([np.array(x) for x in values] for values in
                        ([g.mean for g in groups], [g.size for g in groups]))  # fmt: skip
        along = self._along(means, sizes, slopes)
        return self._forms.squares(along).item(), self._forms.noise_sd(along).item()

    def variance(self, groups: Sequence[NoisyMean], slopes: Sequence[float]) -> float:
        """Estimate, at least the standard deviation of its noise; or the bound."""
        factor = float(self._factor([np.array(g.size) for g in groups]))
        most = super().variance(groups, slopes)
        form, sd = self._at_estimate(groups, slopes)
        return factor * (most if sd > MOST_NOISE * most else max(form, sd))

    def drawn(self, groups: Sequence[NoisyMean], slopes: Slopes) -> Floats:
        """Draws (m,) of it without the noise, for draws (m,) of the slopes, or numbers."""
        most = super().drawn(groups, slopes)
        means, sizes = [g.moments[0] for g in groups], [g.moments[2] for g in groups]
        middle = [float(np.median(slope)) for slope in slopes]
        form, sd = self._at_estimate(groups, middle)
        if sd > MOST_NOISE * float(np.median(most)):
            return np.asarray(self._factor(sizes) * most)
        rng = np.random.default_rng((calibration_seed(self.products), _PURPOSE))
        total = self._forms.less_noise(self._along(means, sizes, slopes), rng)
        total += max(sd - form, 0.0)
        few = sum(slope**2 * group.few for slope, group in zip(slopes, groups, strict=True))
        return np.asarray(self._factor(sizes) * (np.maximum(total, 0) + few))
