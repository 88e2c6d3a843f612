"""The noisy second-moment matrix of some features, with the law of its noise.

Some entries are the same measurement, some are known. All uses of the matrix are homogeneous in it:
where the number of rows is not public, its noisy count is one more entry, at the constant squared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.ball_moments import RADIUS, BallMoments
from dpstats.families.features import (
    SIGN,
    Feature,
    Term,
    indicator,
    is_level,
    product,
)
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.inference.simulation import draw_noise
from dpstats.measured.answers import Answers, joint_noise_quantiles
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView

ZERO = -1  # in `place`: an entry that is known to be zero
ONE = -2  # an entry that is known to be one


def moments_block(
    schema: Schema,
    features: Sequence[Feature],
    terms: Iterable[Term | None] | None = None,
    given: Subgroup | None = None,
) -> Moments:
    """Products of some features, here of up to two, and the number of rows of a subgroup, last."""
    if terms is None:
        terms = itertools.chain.from_iterable(products_of(features))
    numbers = list(dict.fromkeys(name for name, level in features if level is None))
    signs = list(dict.fromkeys(name for name, level in features if level == SIGN))
    groups = list(dict.fromkeys(feature[0] for feature in features if is_level(feature)))
    checked = Moments.of(schema, numbers, groups, signs=signs, logs=True)
    every = [term for term in checked.terms if term]
    wanted = {product(term, ()) for term in terms if term}
    kept = [term for term in every if product(term, ()) in wanted]
    count: list[Term] = [] if given is None else [()]
    return Moments.of_terms(schema, [*kept, *count], given=given)


def products_of(features: Sequence[Feature]) -> list[list[Term | None]]:
    """All (q, q) products of a constant and some features, first."""
    singles: list[Term] = [(), *((feature,) for feature in features)]
    return [[product(a, b) for b in singles] for a in singles]


def places_of(terms: Iterable[Term], answers: Answers) -> dict[Term | None, int]:
    """Which answer each term is, as `product` writes it; the number of rows is the last."""
    at: dict[Term | None, int] = {product(term, ()): i for i, term in enumerate(terms)}
    return at | {None: ZERO, (): ONE if answers.rows.public else len(answers.sums) - 1}


@dataclass(frozen=True)
class NoisyMatrix:
    """A symmetric matrix whose entries are measured functions, some of them shared or known.

    Attributes
    ----------
    answers : Answers
        The d distinct measured functions; where their number is not public, that of the rows last.
    place : (q, q) int64
        Which function each entry is; -1 for a known zero, -2 for a known one.
    """

    answers: Answers
    place: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of rows, or its estimate."""
        return self.answers.n

    @property
    def units(self) -> Codes:
        """(d,) int64, the integer that codes a value of one of each measured function."""
        return self.answers.bounds

    def fill(self, values: Floats, *, one: float = 0.0) -> Floats:
        """Matrices (..., q, q) of function values (..., d); a known one counts as `one`."""
        padded = np.concatenate(
            [values, np.full((*values.shape[:-1], 1), one), np.zeros((*values.shape[:-1], 1))],
            axis=-1,
        )
        return np.asarray(padded[..., self.place])  # -1: the zero, -2: the one

    @cached_property
    def matrix(self) -> Floats:
        """(q, q) noisy mean products, symmetric, [0, 0] one (or the noisy count over n)."""
        return self.fill(self.answers.sums / (self.n * self.units), one=1.0)

    @cached_property
    def noise_sd(self) -> Floats:
        """(q, q) standard deviations of the noise on the entries."""
        scale = self.answers.bounds / self.units
        return np.sqrt(self.fill(self.answers.noise_variances * scale**2))

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        """Draws (size, q, q) of the noise on the matrix, from its exact law."""
        unit = self.n * self.units
        return self.fill(draw_noise(self.answers, size, rng) / unit)

    def radius(self, beta: float) -> Floats:
        """(q, q) bounds on the noise of all entries together, with probability 1 - beta."""
        unit = self.n * self.units
        return self.fill(joint_noise_quantiles(self.answers, beta) / unit)

    def fewest_rows(self, beta: float) -> int:
        """Smallest number of rows if the bounds of `radius` hold."""
        if self.answers.rows.public:
            return self.n
        reach = joint_noise_quantiles(self.answers, beta)[-1]
        return math.ceil(float(self.answers.sums[-1] - reach) - 1e-9)


@dataclass(frozen=True)
class MomentMatrix(NoisyMatrix):
    """Noisy mean products of q features, the constant first, in unit scale.

    A number runs over [-1, 1] there, a sign is -1 or 1, an indicator 0 or 1; clipped rows lie in
    the unit ball.

    Attributes
    ----------
    answers, place
        See `NoisyMatrix`.
    schema : Schema
    features : tuple of features
        Without the constant; q - 1 of them.
    ball : BallMoments or None
        What was measured of clipped rows; all features are its numbers.
    given : Subgroup or None
        The rows that the matrix is about.
    """

    schema: Schema
    features: tuple[Feature, ...]
    ball: BallMoments | None = None
    given: Subgroup | None = None

    @classmethod
    def of(
        cls,
        release: ReleaseView,
        features: Sequence[Feature],
        ball: BallMoments | None = None,
        given: Subgroup | None = None,
    ) -> MomentMatrix:
        """Ask a release for all products of some features, or of the numbers of clipped rows."""
        block = ball or moments_block(release.schema, features, given=given)
        answers = release.answers(block, with_count=given is None)
        if given is not None:
            answers = answers.of_counted_rows()
        at = places_of(block.terms, answers)
        place = np.array([[at[term] for term in row] for row in products_of(features)])
        return cls(answers, place, release.schema, tuple(features), ball, given)

    @cached_property
    def units(self) -> Codes:
        """(d,) int64, the integer that codes a value of one of each measured function."""
        if self.ball is None:
            return self.answers.bounds
        return np.append(self.ball.ones, self.answers.bounds[self.ball.size :])

    @cached_property
    def origin(self) -> Floats:
        """(q - 1,) original values at unit value zero; 0 for a sign or an indicator."""
        return self._ends[0]

    @cached_property
    def spread(self) -> Floats:
        """(q - 1,) original units in one unit of each feature; 1 for a sign or an indicator."""
        return self._ends[1]

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        origin, spread = np.zeros(len(self.features)), np.ones(len(self.features))
        for i, (name, level) in enumerate(self.features):
            if self.ball is not None:
                origin[i], spread[i] = self.ball.origin_and_spread(name)
            elif level is None:
                column = self.schema[name]
                if not isinstance(column, Number):
                    raise RequestError(f"{name!r} is not a number")
                origin[i], spread[i] = column.middle, column.half_range
        return origin, spread

    def unit_rows(self, codes: Mapping[str, Codes]) -> Floats:
        """Rows (m, q - 1) in unit scale, given as column name -> (m,) codes."""
        if self.ball is not None:
            order = [column.name for column in self.ball.numbers]
            used = [order.index(name) for name, _ in self.features]
            return self.ball.rows(codes).T[:, used] / RADIUS
        rows = np.empty((len(codes[self.features[0][0]]), len(self.features)))
        for values, (name, level) in zip(rows.T, self.features, strict=True):
            column = self.schema[name]
            if level is not None:
                values[:] = indicator(level, column.bins_of(codes[name]))
            elif isinstance(column, Number):
                values[:] = column.units_of(codes[name])
        return rows

    @property
    def column_names(self) -> tuple[str, ...]:
        """The distinct columns of the features."""
        return tuple(dict.fromkeys(name for name, _ in self.features))

    @cached_property
    def limits(self) -> Floats:
        """(q, q) largest absolute moments; in a ball |2 w_i w_j| <= w_i^2 + w_j^2 <= 1."""
        limits = np.ones((len(self.features) + 1,) * 2)
        if self.ball is not None:
            limits[1:, 1:] = (1 + np.eye(len(self.features))) / 2
        return limits

    def ball_and_reach(self, scale: Floats, mean: Floats | None = None) -> tuple[float, float]:
        """Largest squared length of a row, and distance from `mean`; columns times `scale`."""
        mean = np.zeros_like(scale) if mean is None else mean
        if self.ball is None:
            return float(np.sum(scale**2)), float(np.linalg.norm(scale * (1 + np.abs(mean))))
        most = float(scale.max())
        return most**2, most + float(np.linalg.norm(scale * mean))
