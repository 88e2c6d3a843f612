"""The number of private rows: public where neighbours replace a row, else measured with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpstats.error_rates import for_row_count
from dpstats.privacy.weighted_noise import divided

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw


@dataclass(frozen=True)
class RowCount:
    """An estimate of the number of rows with the law of its error."""

    estimate: float  # the number itself where it is public
    law: NoiseLaw | None = None  # None where the number is public
    rows_per_person: int = 1  # the most of one person, which are not independent
    allowed_for: bool = False  # by the noise-aware intervals of a result
    from_totals: bool = False  # by products of person totals, rather than by the bound
    whole: bool = True  # a number of rows over another need not be
    weight: float = 1.0  # that a row counts for, the mean of a survey
    of_table: int | None = None  # rows of a survey, where their number is public
    of_group: bool = False  # such as a subgroup: a noisy count of its own, whatever its value

    @property
    def of_persons(self) -> RowCount:
        """The count for a result whose noise-aware intervals are for independent persons.

        With z_i the mean-zero term of row i in a linearised estimate, (sum over the rows of a
        person)^2 is at most their number times the sum of squares (Cauchy and Schwarz; eq.
        rows-of-a-person of docs/explanation/inference/persons.md): if persons are independent, the
        sampling variance is at most `rows_per_person` times that of independent rows, for estimates
        of several parameters in every direction.
        """
        return replace(self, allowed_for=self.rows_per_person > 1)

    def with_totals(self, measured: bool) -> RowCount:
        """As `of_persons`, from products of person totals if they were measured."""
        return replace(self.of_persons, from_totals=measured)

    @property
    def fewest_persons(self) -> RowCount:
        """The fewest persons that have so many rows; a whole number only where rows are public."""
        if self.law is None:
            return RowCount(max(1.0, float(self.estimate // self.rows_per_person)))
        k = self.rows_per_person
        return RowCount(
            self.estimate / k, divided(self.law, k), whole=False, of_group=self.of_group
        )

    @property
    def value(self) -> int:
        """The estimate as a number of rows, at least 1."""
        return max(1, round(self.estimate))

    @property
    def in_rows(self) -> int:
        """The public number of rows, or its estimate by their mean weight, at least 1."""
        return self.of_table or max(1, round(self.estimate / self.weight))

    @property
    def rows_public(self) -> bool:
        """True if `in_rows` is exact."""
        return self.public or self.of_table is not None

    @property
    def public(self) -> bool:
        """True if the number is exact."""
        return self.law is None

    @property
    def exact(self) -> int | None:
        """The number of rows if it is public: no group can be larger."""
        return self.value if self.public else None

    def spent(self, alpha: float) -> float:
        """Share of alpha that `bounds` uses, fixed before any answer is seen."""
        return 0.0 if self.law is None or self.law.bound_only else for_row_count(alpha)

    def bounds(self, beta: float) -> tuple[int, int]:
        """Ends of a confidence set for the number of rows, level 1 - beta, if there is any row.

        A statement about a share that has error alpha - beta for every number between them has
        error alpha (Bonferroni; the estimate and the counts may depend on each other).
        """
        return self.within(0 if self.law is None else self.law.quantile(beta))

    def within(self, q: float) -> tuple[int, int]:
        """Bounds on numbers of rows within q of the estimate (eq. box-of-sums, certificate.md)."""
        low, high = self.estimate - q, self.estimate + q
        if not self.whole:
            return max(1, math.floor(low)), max(1, math.ceil(high))
        most = max(1, math.floor(high + 1e-9))
        return min(most, max(1, math.ceil(low - 1e-9))), most

    def __str__(self) -> str:
        return f"n = {self.in_rows}" + ("" if self.rows_public else " (measured with noise)")
