"""Estimands of a survey: smooth functions of weighted totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.group_moments import PARTS, TO_MOMENTS, GroupMoments, PairMoments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.cells import Partition
from dpstats.inference.intervals import Ends, ends_of_sums

if TYPE_CHECKING:
    from dpstats.schema import Schema


_LEAST_WEIGHT = 64.0  # steps of the weights of some rows, below which nothing is said of them


@dataclass(frozen=True)
class Estimand:
    """q parameters h(t) of the totals t of one block: t_f is the sum of u f(x) over all rows.

    Functions f are in unit scale, and weights u in steps of the coded weight.

    Attributes
    ----------
    block : Block
        The d functions.
    terms : sequence of str
        Names of the parameters.
    value, jacobian : callable
        Totals (d,) to the parameters (q,), and to their derivatives (q, d).
    squares : callable
        Totals (d,) and derivatives (q, d) to the sums (q,) over rows of u z^2, z the linearised
        value of a row; see `squares_of_cells`.
    range : pair of float or (q,) float64
        The least and largest values that the parameters can have.
    limits : callable, optional
        Lower and upper limits (d,) of totals that are not negative to the least and largest value
        (q,) of the parameters, two arrays.
    numerators : (q, d) float64, optional
        Totals of the population that the parameters are ratios of, as sums of the block's.
    counted : sequence of str
        What these totals are of, by default the terms.
    by_units : bool
        Whether a declared design effect, which is that of shares, says nothing about them.
    contrasted : Block, optional
        The e functions whose contrasts are measured instead of the block's: sums of these, or a
        score at a pilot that is not known yet.
    contrast_slopes : callable, optional
        Totals (d,) to derivatives (q, e) of the parameters by sums of these; `squares` takes them
        in place of derivatives by the totals.
    moving : callable, optional
        Totals (d,) to derivatives (q, d), of the slopes by the totals where a parameter is set to
        another value than its estimate, by minus that value.
    along : callable, optional
        Terms and weights (k, q) to the estimand of linear combinations, where it is not one of
        these parameters alone.
    hidden : callable, optional
        Totals (d,) to bounds (q,) on errors that are neither of sampling nor noise: of functions
        that were not measured.
    logarithmic : (q,) bool, optional
        Which parameters are positive, with limits that are symmetric in their logarithms.
    dates : bool
        True if the parameters are dates, in days since 1970-01-01.
    """

    block: Block
    terms: Sequence[str]
    value: Callable[[Floats], Floats]
    jacobian: Callable[[Floats], Floats]
    squares: Callable[[Floats, Floats], Floats]
    range: tuple[Floats | float, Floats | float] = (-np.inf, np.inf)
    limits: Callable[[Floats, Floats], Ends] | None = None
    numerators: Floats | None = None
    counted: Sequence[str] = ()
    by_units: bool = False
    contrasted: Block | None = None
    contrast_slopes: Callable[[Floats], Floats] | None = None
    moving: Callable[[Floats], Floats] | None = None
    hidden: Callable[[Floats], Floats] | None = None
    along: Callable[[Sequence[str], Floats], Estimand] | None = None
    dates: bool = False
    logarithmic: NDArray[np.bool_] | None = None

    def combined(
        self,
        terms: Sequence[str],
        value: Callable[[Floats], Floats],
        jacobian: Callable[[Floats], Floats],
        range: tuple[Floats | float, Floats | float],
        limits: Callable[[Floats, Floats], Ends] | None = None,
    ) -> Estimand:
        """Smooth functions of these parameters.

        Parameters
        ----------
        terms : sequence of str
        value, jacobian : callable
            Parameters (q,) to the new ones (p,), and to derivatives (p, q).
        range : pair of float or (p,) float64
        limits : callable, optional
            Limits of the parameters to those of the new ones.
        """
        made = _Composed(self, value, jacobian, limits)
        return replace(
            self,
            terms=terms,
            value=made.value,
            jacobian=made.jacobian,
            range=range,
            limits=None if self.limits is None or limits is None else made.limits,
            numerators=None,
            contrast_slopes=None if self.contrast_slopes is None else made.contrast_slopes,
            moving=None,
            hidden=None,
            along=None,
            dates=False,
            logarithmic=None,
        )

    def differences(self, terms: Sequence[str], contrasts: Floats) -> Estimand:
        """Linear combinations of the parameters with weights (p, q)."""
        if self.along is not None:
            return self.along(terms, contrasts)
        sums, ends = Sums(contrasts), (np.broadcast_to(end, len(self.terms)) for end in self.range)
        return self.combined(terms, sums.value, sums.jacobian, sums.limits(*ends), sums.limits)


# Functions of estimands are methods of these, so that results can be pickled.
@dataclass(frozen=True)
class _Composed:
    """Functions of parameters, as functions of the totals that these follow from."""

    inner: Estimand
    of_value: Callable[[Floats], Floats]
    of_jacobian: Callable[[Floats], Floats]
    of_limits: Callable[[Floats, Floats], Ends] | None

    def value(self, totals: Floats) -> Floats:
        return self.of_value(self.inner.value(totals))

    def jacobian(self, totals: Floats) -> Floats:
        outer = self.of_jacobian(self.inner.value(totals))
        return sums_of(outer, self.inner.jacobian(totals))

    def contrast_slopes(self, totals: Floats) -> Floats:
        assert self.inner.contrast_slopes is not None
        return self.of_jacobian(self.inner.value(totals)) @ self.inner.contrast_slopes(totals)

    def limits(self, low: Floats, high: Floats) -> Ends:
        assert self.inner.limits is not None
        assert self.of_limits is not None
        return self.of_limits(*self.inner.limits(low, high))


@dataclass(frozen=True)
class Sums:
    """A constant plus sums of parameters or totals with weights (p, q)."""

    weights: Floats
    constant: float | Floats = 0.0

    def value(self, parameters: Floats) -> Floats:
        """Sums (p,)."""
        return np.asarray(self.constant + sums_of(self.weights, parameters))

    def jacobian(self, parameters: Floats) -> Floats:
        """The weights."""
        return self.weights

    def limits(self, low: Floats, high: Floats) -> Ends:
        """Least and largest sums (p,)."""
        least, most = ends_of_sums(self.weights, low, high)
        return self.constant + least, self.constant + most


def ratios(
    block: Block,
    terms: Sequence[str],
    numerators: Floats,
    denominators: Floats,
    *,
    shift: float = 0.0,
    scale: float = 1.0,
    range: tuple[float, float] = (0.0, 1.0),
    squares: Callable[[Floats, Floats], Floats] | None = None,
) -> Estimand:
    """Ratios of sums of totals, shift + scale (N t) / (M t), weights N and M (q, d)."""
    made = _Ratios(numerators, denominators, shift, scale, range)
    return Estimand(
        block, terms, made.value, made.jacobian, squares or squares_of_cells, range, made.limits,
        numerators=scale * numerators + shift * denominators, moving=made.moving,
    )  # fmt: skip


@dataclass(frozen=True)
class _Ratios:
    numerators: Floats
    denominators: Floats
    shift: float
    scale: float
    range: tuple[float, float]

    def _size(self, totals: Floats) -> Floats:
        """Denominators (q,), nan where they are hardly a row's: then there is no estimate."""
        size = self.denominators @ totals
        return np.where(size >= _LEAST_WEIGHT, size, np.nan)

    def value(self, totals: Floats) -> Floats:
        ratio = (self.numerators @ totals) / self._size(totals)
        return np.asarray(self.shift + self.scale * ratio)

    def jacobian(self, totals: Floats) -> Floats:
        below = self._size(totals)[:, np.newaxis]
        ratio = (self.numerators @ totals)[:, np.newaxis] / below
        return np.asarray(self.scale * (self.numerators - ratio * self.denominators) / below)

    def moving(self, totals: Floats) -> Floats:
        return np.asarray(self.denominators / self._size(totals)[:, np.newaxis])

    def limits(self, low: Floats, high: Floats) -> Ends:
        least = _least_ratio(self.numerators, self.denominators, low, high)
        largest = -_least_ratio(-self.numerators, self.denominators, low, high)
        ends = (np.clip(self.shift + self.scale * end, *self.range) for end in (least, largest))
        low, high = ends
        return low, high


def shares_in_groups(block: Block, terms: Sequence[str]) -> Estimand:
    """Shares of rows with a trait in every group; functions are with it, without it, by turns."""
    pairs = np.eye(2 * len(terms)).reshape(len(terms), 2, 2 * len(terms))
    return ratios(block, terms, pairs[:, 0], pairs.sum(axis=1))


def shares_of_all(block: Block) -> Estimand:
    """Shares of rows in every cell of a block."""
    return ratios(block, block.names, np.eye(block.size), np.ones((block.size, block.size)))


def shares_below(block: Block, terms: Sequence[str]) -> Estimand:
    """Shares of rows in the first 1, 2, ... of consecutive sets of cells, but all of them."""
    size = block.size
    return ratios(block, terms, np.tri(size - 1, size), np.ones((size - 1, size)))


def squares_of_cells(totals: Floats, jacobian: Floats) -> Floats:
    """Sums (q,) of u z^2 where every row has one function equal to one, and the others zero."""
    return np.asarray(jacobian**2 @ np.maximum(totals, 0))


def means_in_groups(
    block: GroupMoments, terms: Sequence[str], counted: Sequence[str], order: Sequence[int]
) -> Estimand:
    """Means of a number in groups of a block, in original units; and what sums of it are of.

    The three parts of a row add up to one, and their last less their first is x in [-1, 1]; the
    first and last less the middle one are x^2.
    """
    number, groups = block.number, np.eye(len(block.groups))[list(order)]
    parts = dict(zip(PARTS, np.eye(len(PARTS)), strict=True))
    low, middle, high = (np.kron(groups, parts[part]) for part in PARTS)
    half = number.half_range
    bounds = (number.middle - half, number.middle + half)
    means = ratios(
        block, terms, high - low, low + middle + high, shift=number.middle, scale=half,
        range=bounds, squares=squares_of_parts,
    )  # fmt: skip
    return replace(means, dates=number.dates, counted=counted)


def squares_of_parts(totals: Floats, jacobian: Floats) -> Floats:
    """Sums (q,) of u z^2 in groups of a number x by its `PARTS`, z linear in x in each group."""
    size, of_x, of_squares = TO_MOMENTS @ totals.reshape(-1, len(PARTS)).T
    low, middle, high = np.moveaxis(jacobian.reshape(len(jacobian), -1, len(PARTS)), 2, 0)
    slope = (high - low) / 2
    in_groups = middle**2 * size + 2 * middle * slope * of_x + slope**2 * of_squares
    return np.asarray(np.maximum(in_groups, 0).sum(axis=1))


def ratios_in_groups(block: PairMoments, terms: Sequence[str], counted: Sequence[str]) -> Estimand:
    """Ratios of sums of two numbers, the second not negative, in groups; and what sums are of."""
    groups, every = np.eye(len(terms)), np.ones(len(PARTS))
    of_parts = [n.middle + n.half_range * TO_MOMENTS[1] for n in block.numbers]  # their values
    units = [float(np.abs(values).max()) for values in of_parts]
    first, second = (values / unit for values, unit in zip(of_parts, units, strict=True))
    above, below = (np.asarray(np.kron(groups, np.outer(*pair).reshape(1, -1)), np.float64)
                    for pair in ((first, every), (every, second)))  # fmt: skip
    found = ratios(
        block, terms, above, below, scale=units[0] / units[1], range=possible_ratios(block),
        squares=squares_of_pairs,
    )  # fmt: skip
    return replace(found, numerators=units[0] * above, counted=counted)


def possible_ratios(block: PairMoments) -> tuple[float, float]:
    """The least and largest ratio of the sums of two numbers, the second not negative."""
    first, second = ((n.middle - n.half_range, n.middle + n.half_range) for n in block.numbers)
    ends = [y / x if x > 0 else math.copysign(math.inf, y) if y else 0.0
            for y in first for x in second]  # fmt: skip
    return min(ends), max(ends)


def squares_of_pairs(totals: Floats, jacobian: Floats) -> Floats:
    """Sums (q,) of u z^2 in groups of two numbers by `PairMoments`, z linear in both."""
    shape = (-1, len(PARTS), len(PARTS))
    moments = TO_MOMENTS @ totals.reshape(shape) @ TO_MOMENTS.T
    weights = jacobian.reshape(len(jacobian), *shape)
    level = weights[:, :, 1, 1]
    slopes = [(weights[:, :, 2, 1] - weights[:, :, 0, 1]) / 2,
              (weights[:, :, 1, 2] - weights[:, :, 1, 0]) / 2]  # fmt: skip
    z = np.stack([level, *slopes])  # weights of 1 and of both numbers
    products = moments[:, [[0, 1, 0], [1, 2, 1], [0, 1, 0]], [[0, 0, 1], [0, 0, 1], [1, 1, 2]]]
    in_groups = np.einsum("iqg,jqg,gij->qg", z, z, products)
    return np.asarray(np.maximum(in_groups, 0).sum(axis=1))


def sums_of(weights: Floats, values: Floats) -> Floats:
    """Sums W v with weights W (p, q), in which an unknown v of weight zero is not used."""
    if np.isfinite(values).all():
        return np.asarray(weights @ values)
    return np.stack([one[one != 0] @ values[one != 0] for one in weights])


def _least_ratio(numerators: Floats, denominators: Floats, low: Floats, high: Floats) -> Floats:
    """Least (q,) of N t / M t over a box of totals, by Dinkelbach's iteration.

    A ratio r is the least if the least of (N - r M) t is zero; that is at a corner, whose own ratio
    is a smaller r. Minus infinity where the denominator can be zero.
    """
    ratio = (numerators @ high) / np.maximum(denominators @ high, 1e-300)
    for _ in range(100):
        slopes = numerators - ratio[:, np.newaxis] * denominators
        corner = np.where(slopes > 0, low, high)
        below = np.sum(denominators * corner, axis=1)
        smaller = np.sum(numerators * corner, axis=1) / np.maximum(below, 1e-300)
        smaller = np.minimum(smaller, ratio)
        if np.all(smaller >= ratio - 1e-15 * np.abs(ratio)):
            break
        ratio = smaller
    unknown = denominators @ low <= 0
    return np.where(unknown, -np.inf, ratio)


def basis_of(measured: Block, block: Block) -> Floats | None:
    """Totals of a block (d,) as sums of the measured ones (D,); None if they do not follow."""
    if isinstance(measured, PilotScore):
        same = measured == block or measured.settles(block)  # a preview has the pilot zero
        return measured.unit * np.eye(measured.size) if same else None
    if isinstance(measured, Partition) and measured.rotated:
        of_sets = basis_of(measured.plain, block)
        return None if of_sets is None else of_sets @ np.linalg.inv(measured.basis)
    derivation = measured.derive(block, complements=False)
    if derivation is None or np.any(derivation.terms == 0):
        return None
    return np.asarray(derivation.member == np.arange(block.size)[:, np.newaxis], np.float64)


class WithEstimands(Protocol):
    """An analysis that has weighted estimates."""

    def estimands(self, schema: Schema) -> Sequence[Estimand]:
        """Estimands, one for each of its blocks."""


def require_estimands(name: str, analysis: object) -> None:
    """Refuse an analysis that has no weighted estimates.

    Raises
    ------
    RequestError
    """
    if not hasattr(analysis, "estimands"):
        raise RequestError(
            f"analysis {name!r}: {type(analysis).__name__} has no weighted estimates, and the "
            "schema declares a survey design; leave the analysis out"
        )


def estimands_of(analysis: object, schema: Schema) -> Sequence[Estimand]:
    """Estimands of an analysis in a survey; none of one without weighted estimates."""
    found: Sequence[Estimand] = ()
    if hasattr(analysis, "estimands"):
        found = analysis.estimands(schema)
    return found
