"""Rows of equal weight for any functions: rows of a model, exchanged until their means fit.

Every row is moved by a Gibbs sweep of the model, tilted against the misfit (eq. 14 of
docs/explanation/synthetic-rows/generator.md), and it is free which of the old and the moved rows
are kept. With d the misfit of the means of the m rows, in noise standard deviations, to keep row j
in place of row i changes |d|^2 / 2 by about (v_j - v_i) / m, v = A'd. Parts of the rows in random
order make those exchanges that lower it most, as many at once as lower |d| itself, and d follows
them. Rows that differ in all columns are too coarse for the last of the misfit: then a row is
exchanged for itself with one column moved.

Inference has rows of the model alone, as far as they serve (eq. 17).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.rows.loglinear_fit import LogLinearFit
from dpstats.rows.products import Products

PART = 500  # rows of a part, and as many moved ones
MOST = 0.1  # share of them that is exchanged at once
MOMENTUM = 0.9  # of the direction along which rows are exchanged
GAIN = 0.03  # share of |d|^2 by which a pass over all parts must lower it for another
MOST_PASSES = 20
AGAIN = 0.03  # share of whole rows that a round must exchange for another
FINE_GAIN = 0.05  # share of |d|^2 by which a round with single columns must lower it for another
MOST_ROUNDS, MOST_FINE_ROUNDS = 12, 4
PROBED = 2_000  # rows from which the spread of v is taken
WHOLE_TILT, FINE_TILT = 5.0, 10.0  # standard deviations over the rows of t v


def exchanged(fit: LogLinearFit, wanted: Floats, rng: np.random.Generator) -> dict[str, Codes]:
    """Rows whose means are near the wanted ones, from the rows of a fitted model.

    Parameters
    ----------
    fit : LogLinearFit
    wanted : (|F|,) float64
        Means, in noise standard deviations.
    rng : numpy Generator
    """
    even = np.full(fit.rows, 1 / fit.rows)
    misfit = fit.family.evaluate(fit.codes).average(even) / fit.deviations - wanted
    for _ in range(MOST_ROUNDS):
        moved = _tilted(fit, misfit, WHOLE_TILT).moved(rng).codes
        done = _Round(fit, moved, wanted, rng)
        fit, misfit = replace(fit, codes=done.codes), done.misfit
        if done.exchanges < AGAIN * fit.rows:
            break
    for _ in range(MOST_FINE_ROUNDS):
        moved = _tilted(fit, misfit, FINE_TILT).moved(rng, alone=True).codes
        which = rng.integers(len(moved), size=fit.rows)
        single = {
            name: np.where(which == j, moved[name], own)
            for j, (name, own) in enumerate(fit.codes.items())
        }
        done = _Round(fit, single, wanted, rng, single=True)
        fit, misfit = replace(fit, codes=done.codes), done.misfit
        if done.last > (1 - FINE_GAIN) * done.first:
            break
    return fit.codes


def chosen(fit: LogLinearFit, wanted: Floats, rng: np.random.Generator) -> dict[str, Codes]:
    """Rows for inference: of the model, with means near the wanted ones, by one untilted round.

    They are `exchanged` only if their means are farther from the wanted ones than noise (eq. 17).
    """
    done = _Round(fit, fit.moved(rng).codes, wanted, rng)
    if done.last <= len(wanted):
        return done.codes
    return exchanged(replace(fit, codes=done.codes), wanted, rng)


def _tilted(fit: LogLinearFit, misfit: Floats, tilt: float) -> LogLinearFit:
    """The model times exp(-t v), t v of standard deviation `tilt` over the rows (eq. 14)."""
    some = {name: codes[:: max(1, fit.rows // PROBED)] for name, codes in fit.codes.items()}
    products = Products(fit.family.evaluate(some), 1 / fit.deviations, joint=False)
    spread = float(np.std(products.combine(misfit)))
    return replace(fit, dual=fit.dual - tilt / spread * misfit) if spread > 0 else fit


class _Round:
    """Passes over all rows, each with what it moves to.

    Attributes
    ----------
    codes : column name -> (m,) int64
        The rows that are kept.
    exchanges : int
        How many of them are moved ones.
    misfit : (|F|,) float64
        d of these rows.
    first, last : float
        |d|^2 before and after.
    """

    def __init__(
        self,
        fit: LogLinearFit,
        moved: Mapping[str, Codes],
        wanted: Floats,
        rng: np.random.Generator,
        *,
        single: bool = False,
    ) -> None:
        order = rng.permutation(fit.rows)
        pieces = [order[first : first + PART] for first in range(0, fit.rows, PART)]
        parts = [_Part(fit, moved, piece, single=single) for piece in pieces]
        misfit = np.sum([part.change(part.kept) for part in parts], axis=0) - wanted
        self.first = self.last = float(misfit @ misfit)
        direction = np.zeros_like(misfit)
        for _ in range(MOST_PASSES):
            before = self.last
            for part in parts:
                direction = misfit + MOMENTUM * direction
                misfit = part.exchange(misfit, direction)
            self.last = float(misfit @ misfit)
            if self.last > (1 - GAIN) * before:
                break
        self.misfit = misfit
        self.exchanges = sum(int(part.kept[part.size :].sum()) for part in parts)
        self.codes = {
            name: np.concatenate([part.codes[name][part.kept] for part in parts])
            for name in fit.codes
        }


class _Part:
    """Some rows and what they move to, of which as many are kept."""

    def __init__(
        self,
        fit: LogLinearFit,
        moved: Mapping[str, Codes],
        which: NDArray[np.intp],
        *,
        single: bool,
    ) -> None:
        self.size, self._rows = len(which), fit.rows
        self.codes = {
            name: np.concatenate([old[which], moved[name][which]])
            for name, old in fit.codes.items()
        }
        values = fit.family.evaluate(self.codes)
        self._products = Products(values, 1 / fit.deviations, joint=False)
        self.kept = np.arange(2 * self.size) < self.size
        self._lengths = self._products.distances(self.size) if single else None

    def change(self, copies: Floats | NDArray[np.bool_]) -> Floats:
        """Change of the means of all rows, by copies of rows of the part."""
        return self._products.average(copies.astype(np.float64) / self._rows)

    def _pairs(self, steepness: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows that go and rows that come in their place, the steepest pairs first.

        Single columns: a row and what it moves to, by the slope for the length of the change.
        """
        if self._lengths is None:
            away, towards = np.flatnonzero(self.kept), np.flatnonzero(~self.kept)
            return away[np.argsort(-steepness[away])], towards[np.argsort(steepness[towards])]
        slopes = (steepness[self.size :] - steepness[: self.size]) / self._lengths
        old = self.kept[: self.size]
        order = np.argsort(np.where(old, slopes, -slopes))
        shift = self.size * old[order]
        return order + self.size - shift, order + shift

    def exchange(self, misfit: Floats, direction: Floats) -> Floats:
        """Exchange rows that are steepest along a direction; the misfit afterwards."""
        steepness = self._products.combine(direction)
        away, towards = self._pairs(steepness)
        descents = int(np.sum(steepness[towards] < steepness[away]))
        number = min(descents, math.ceil(MOST * self.size))
        while number > 0:
            copies = np.zeros(2 * self.size)
            copies[towards[:number]], copies[away[:number]] = 1, -1
            change = self.change(copies)
            square, slope = float(change @ change), -float(misfit @ change)
            if 2 * slope > square:  # it lowers |d|
                self.kept[towards[:number]], self.kept[away[:number]] = True, False
                return misfit + change
            # As many as would be best if all of them were alike.
            number = min(number // 2, int(number * max(slope, 0.0) / max(square, 1e-300)))
        return misfit
