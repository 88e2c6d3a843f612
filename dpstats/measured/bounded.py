"""Answers known only to within bounds: what a published radius says about the private sums.

A radius holds with probability 1 - beta, for all functions of an analysis and the number of rows
jointly. On that event the distance of each sum from its centre is within a bound, so a statement
that is wrong with probability at most alpha - beta given the bounds has error alpha in all, by the
union bound. Hence a bound takes no share of the error of a certified interval (`bound_only`); the
one who uses it subtracts beta once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.measured.answers import Answers
from dpstats.measured.combining import Constraints
from dpstats.measured.radius import SpectralRadius
from dpstats.privacy.laws import LatticeLaw

ONLY_CERTIFIED = (
    "only a radius of the noise is known here, not its law: there are certified intervals and "
    "tests, but no standard errors, no p-values and no noise-aware intervals. Infer from the "
    "release itself for those"
)


@dataclass(frozen=True)
class Bounded:
    """A noise of which nothing is known but a bound on its absolute value.

    Its variance counts as zero, since whatever is computed from it is not shown, see
    `dpstats.releases.published_rows`.
    """

    lattice: ClassVar[bool] = False
    gaussian: ClassVar[bool] = False
    bound_only: ClassVar[bool] = True
    invertible: ClassVar[bool] = False

    bound: float
    variance: float = 0.0

    def quantile(self, beta: float) -> float:
        """The bound, whatever `beta`."""
        return self.bound

    def cdf(self, z: ArrayLike) -> NoReturn:
        """Not known."""
        raise RequestError(ONLY_CERTIFIED)

    tail = smoothed_cdf = log_characteristic = cdf

    def support(self, tail: float = 1e-12) -> NoReturn:
        """Not known."""
        raise RequestError(ONLY_CERTIFIED)


class Switch:
    """True if draws of the noise are refused; they are after `infer` of an analysis."""

    def __init__(self, *, refused: bool) -> None:
        self.refused = refused


@dataclass(frozen=True)
class BoundedAnswers(Answers):
    """Means over published rows as answers, each within a bound of the private one."""

    spectral: SpectralRadius | None = None  # of the covariance matrix of the functions
    _asked: tuple[Block, ...] = ()
    _draws: Switch = field(default_factory=lambda: Switch(refused=True), repr=False)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The requested blocks."""
        return self._asked

    @property
    def with_count(self) -> None:
        """Not known."""
        return None

    @cached_property
    def impossible(self) -> NDArray[np.bool_]:
        """No function: published rows are bounded without rules between columns."""
        return np.zeros(len(self.sums), np.bool_)

    @property
    def constraint_notes(self) -> list[str]:
        """No notes: neither rules nor totals are used."""
        return []

    def _under(self, constraints: Constraints) -> BoundedAnswers:
        return self

    def _check(self) -> None:
        if self._draws.refused:
            raise RequestError(ONLY_CERTIFIED)

    @cached_property
    def weights(self) -> Floats:
        """Not known."""
        self._check()
        return np.zeros((len(self.sums), 0))

    @cached_property
    def independent(self) -> bool:
        """Not known."""
        return False

    @cached_property
    def noise_covariance(self) -> Floats:
        """Not known; zero while an analysis is read, see `Bounded`."""
        self._check()
        return np.zeros((len(self.sums), len(self.sums)))

    @property
    def noise_groups(self) -> list[tuple[Floats, LatticeLaw]]:
        """Not known; none while an analysis is read."""
        self._check()
        return []
