"""The terms of clipped moments in the conditional distribution of one of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.families.ball_moments import BallMoments


@dataclass(frozen=True)
class BallPotential:
    """The sum of c_f f(x) over f in `BallMoments`: a'w + w'Qw, w = z / max(1, |z|), + c 1(|z| > 1).

    Attributes
    ----------
    block : BallMoments
    coefficients : (d,) float64
        For functions in unit scale.
    """

    block: BallMoments
    coefficients: Floats

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, float]:
        p = len(self.block.numbers)
        scaled = self.coefficients * self.block.ones / self.block.bounds
        square = np.zeros((p, p))
        square[np.triu_indices(p)] = scaled[p:-1]
        return scaled[:p], (square + square.T) / 2, float(scaled[-1])

    def given_others(self, name: str, codes: Mapping[str, Codes]) -> BallConditional:
        """As a function of one number, the others as they are in (m,) rows of codes."""
        names = [column.name for column in self.block.numbers]
        i = names.index(name)
        rest = self.block.coordinates(codes)
        rest[i] = 0
        linear, square, outside = self._parts
        turned = square @ rest
        zero = self.block.numbers[i].half_points
        every = np.arange(-zero, zero + 1)
        own = self.block.coordinates({**{n: every * 0 for n in names}, name: every})[i]
        return BallConditional(
            own, zero, np.sum(rest**2, axis=0),
            (linear @ rest, float(linear[i])),
            (np.sum(turned * rest, axis=0), 2 * turned[i], float(square[i, i])),
            outside,
        )  # fmt: skip


@dataclass(frozen=True)
class BallConditional:
    """A `BallPotential` of one number for each of some rows.

    Attributes
    ----------
    own : (points,) float64
        The number's coordinate z at code - zero.
    zero : int
    rest : (rows,) float64
        Squared length of the others.
    linear, square : tuples of (rows,) float64 and float
        Coefficients of 1, z (and z^2) in a'z and in z'Qz.
    outside : float
        c.
    """

    own: Floats
    zero: int
    rest: Floats
    linear: tuple[Floats, float]
    square: tuple[Floats, Floats, float]
    outside: float

    def at(self, codes: Codes) -> Floats:
        """(rows, states) float64 at codes (rows, states)."""
        z = self.own[codes + self.zero]
        length = self.rest[:, None] + z**2
        shrink = 1 / np.sqrt(np.maximum(1, length))
        linear = self.linear[0][:, None] + self.linear[1] * z
        square = self.square[0][:, None] + self.square[1][:, None] * z + self.square[2] * z**2
        return np.asarray(shrink * (linear + shrink * square) + self.outside * (length > 1))
