"""Gibbs sweeps over coded rows under an exponential model of a family of test functions.

The model is proportional to base(x) exp(sum of c_f f(x)), the base a product over columns. Given
all other columns, the logarithm of a column's conditional distribution is a sum of rows of tables
of coefficients (for cells), of a polynomial in the number's own code (for moments, or for those of
the rows of a subgroup), and of one in those of the clipped row. Each column is drawn in turn from
it, for all rows at once, which leaves the model invariant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Family
from dpstats.families.cells import Indicator, Table
from dpstats.families.group_moments import GroupMoments
from dpstats.families.moments import Moments
from dpstats.references.ball_potential import BallConditional, BallPotential
from dpstats.references.subgroup_potential import (
    Monomial,
    SubgroupConditional,
    SubgroupPotential,
    horner,
)
from dpstats.schema import Column, Number, Schema

Single = NDArray[np.float32]  # log probabilities: errors of 1e-6 do not matter
CHUNK = 2**16  # entries of a conditional that are worked on at a time: what a cache holds


def knows(family: Family) -> bool:
    """Whether every block is of a kind that has conditional distributions here."""
    kinds = Table | Indicator | Moments | GroupMoments | BallMoments
    return all(isinstance(block, kinds) for block in family.blocks)


def states(column: Column, coded: bool) -> int:
    """Number of states of a column: its codes if they matter and are numbers, else its bins."""
    return len(column.all_codes) if coded and isinstance(column, Number) else column.bins


@dataclass(frozen=True)
class Support:
    """The states that a column takes: its bins, or all its codes where moments need them.

    Attributes
    ----------
    codes : (size,) int64
        One code per state, increasing where states are codes.
    bins : (size,) int64
    coded : bool
        Whether states are codes; else they are bins, and the code inside a bin is uniform.
    """

    codes: Codes
    bins: Codes
    coded: bool

    @staticmethod
    def of(column: Column, coded: bool) -> Support:
        """The support of a column."""
        if coded and isinstance(column, Number):
            codes = column.all_codes
            return Support(codes, column.bins_of(codes), coded=True)
        bins = np.arange(column.bins)
        return Support(column.draw_inside(bins, np.random.default_rng(0)), bins, coded=False)


class GibbsSampler:
    """Draws from an exponential model.

    Parameters
    ----------
    schema : Schema
        The columns of a row, all that the family touches.
    family : Family
    base : column name -> (states,) float64
        Logarithms of the base's probabilities of the states of each column's `Support`.
    """

    def __init__(self, schema: Schema, family: Family, base: Mapping[str, Floats]) -> None:
        self.schema, self.family = schema, family
        coded = family.coded_columns
        self.supports = {c.name: Support.of(c, c.name in coded) for c in schema}
        self.base = {name: logs.astype(np.float32) for name, logs in base.items()}
        self.set_coefficients(np.zeros(family.size))

    def set_coefficients(self, coefficients: Floats) -> None:
        """Set c, (|F|,) float64, for functions in unit scale."""
        tables: dict[tuple[str, ...], Floats] = {}
        self._linear: dict[str, float] = {}
        self.squares: dict[str, float] = {}
        self._products: list[tuple[str, str, float]] = []
        self._monomials: list[Monomial] = []
        self._subgroups: list[SubgroupPotential] = []
        self._balls: list[BallPotential] = []
        slopes: dict[tuple[str, str], Floats] = {}
        start = 0
        for block in self.family.blocks:
            part = coefficients[start : start + block.size]
            start += block.size
            if isinstance(block, Table | Indicator):
                shape = tuple(column.bins for column in block.columns)
                whole = part if isinstance(block, Table) else part * block.cells.array.ravel()
                _add(tables, tuple(c.name for c in block.columns), whole.reshape(shape))
            elif isinstance(block, GroupMoments):
                self._subgroups += SubgroupPotential.of_group_moments(block, part)
            elif isinstance(block, BallMoments):
                self._balls.append(BallPotential(block, part))
            else:
                assert isinstance(block, Moments)  # see `knows`
                if block.given is None:
                    self._add_moments(block, part, tables, slopes)
                    continue
                terms = zip(block.terms, part.tolist(), strict=True)
                monomials = tuple(Monomial.of(term, value) for term, value in terms)
                self._subgroups.append(SubgroupPotential(block.given, monomials))
        self._slopes = {key: slope.astype(np.float32) for key, slope in slopes.items()}
        self._rows = {name: list(self._look_ups(name, tables)) for name in self.schema.names}

    def _add_moments(
        self,
        block: Moments,
        part: Floats,
        tables: dict[tuple[str, ...], Floats],
        slopes: dict[tuple[str, str], Floats],
    ) -> None:
        bins = {c.name: c.bins for c in block.columns}
        for term, value in zip(block.terms, part.tolist(), strict=True):
            numbers = [name for name, level in term if level is None]
            groups = [(name, level) for name, level in term if level is not None]
            if len(term) > 2:
                self._monomials.append(Monomial.of(term, value))
            elif len(numbers) == 2:
                first, second = numbers
                if first == second:
                    self.squares[first] = self.squares.get(first, 0.0) + value
                else:
                    self._products.append((first, second, value))
            elif numbers and groups:
                (name, level), number = groups[0], numbers[0]
                slopes.setdefault((number, name), np.zeros(bins[name]))[level] += value
            elif numbers:
                self._linear[numbers[0]] = self._linear.get(numbers[0], 0.0) + value
            else:
                potential = np.zeros([bins[name] for name, _ in groups])
                potential[tuple(level for _, level in groups)] = value
                _add(tables, tuple(name for name, _ in groups), potential)

    def _look_ups(
        self, name: str, tables: Mapping[tuple[str, ...], Floats]
    ) -> Iterator[tuple[tuple[str, ...], Single]]:
        """Tables that hold a column: the other columns, and (cells of the others, bins)."""
        for columns, table in tables.items():
            if name in columns:
                axis = columns.index(name)
                others = columns[:axis] + columns[axis + 1 :]
                rows = np.moveaxis(table, axis, -1).reshape(-1, table.shape[axis])
                yield others, np.ascontiguousarray(rows, dtype=np.float32)

    def draw_base(self, m: int, rng: np.random.Generator) -> dict[str, Codes]:
        """M independent rows from the base, column name -> (m,) codes."""
        drawn = {}
        for column in self.schema:
            chances = np.exp(self.base[column.name].astype(np.float64))
            edges = np.cumsum(chances / chances.sum())
            states = np.minimum(np.searchsorted(edges, rng.random(m)), len(edges) - 1)
            drawn[column.name] = self._codes(column, states, rng)
        return drawn

    def sweep(self, codes: Mapping[str, Codes], rng: np.random.Generator) -> dict[str, Codes]:
        """Draw every column once, in the order of the schema, given the others."""
        moved = dict(codes)
        bins = {column.name: column.bins_of(moved[column.name]) for column in self.schema}
        m = len(next(iter(moved.values())))
        for column in self.schema:
            drawn = np.empty(m, dtype=np.int64)
            size = self._width(column)
            step = max(1, CHUNK // size)
            for first in range(0, m, step):
                piece = slice(first, first + step)
                drawn[piece] = self._drawn(
                    column,
                    {name: array[piece] for name, array in moved.items()},
                    {name: array[piece] for name, array in bins.items()},
                    rng,
                )
            moved[column.name] = drawn
            bins[column.name] = column.bins_of(drawn)
        return moved

    def _width(self, column: Column) -> int:
        return max(column.bins, math.isqrt(len(self.supports[column.name].codes)) + 1)

    def _drawn(
        self,
        column: Column,
        codes: Mapping[str, Codes],
        bins: Mapping[str, Codes],
        rng: np.random.Generator,
    ) -> Codes:
        by_bin = self.bin_potentials(column, codes, bins)
        if not self.supports[column.name].coded:
            states = _categorical(by_bin + self.base[column.name], rng)
            return self._codes(column, states, rng)
        assert isinstance(column, Number)
        powers, balls = self.polynomial(column, codes, bins), self.balls(column, codes)
        subgroups = self.subgroups(column, codes, bins)
        return self._move_number(column, by_bin, powers, balls, subgroups, codes, rng)

    def bin_potentials(
        self, column: Column, codes: Mapping[str, Codes], bins: Mapping[str, Codes]
    ) -> Single:
        """Log conditional given the other columns up to a constant, (rows, bins) float32.

        Without the base, and without what depends on a number's code inside its bin.
        """
        name = column.name
        total = np.zeros((len(codes[name]), column.bins), dtype=np.float32)
        for others, rows in self._rows[name]:
            index: Codes | int = 0
            for other in others:
                index = index * self.schema[other].bins + bins[other]
            total += rows[index]
        for (number, group), slope in self._slopes.items():
            if group == name:
                total += np.outer(self._unit(number, codes), slope).astype(np.float32)
        for monomial in self._monomials:
            for group, level in monomial.levels:
                if group == name:
                    total[:, level] += monomial.without(name, self._units(codes), bins)
        for subgroup in self.subgroups(column, codes, bins):
            total += subgroup.by_bin.astype(np.float32)
        return total

    def polynomial(
        self, column: Number, codes: Mapping[str, Codes], bins: Mapping[str, Codes]
    ) -> list[Floats]:
        """Coefficients (rows,) of the powers 1, 2, .. of a number's value in unit scale."""
        name = column.name
        square = np.full(len(bins[name]), self.squares.get(name, 0.0))
        powers = [self._slope(column, codes, bins), square]
        for monomial in self._monomials:
            power = monomial.powers.get(name, 0)
            if power:
                while len(powers) < power:
                    powers.append(np.zeros(len(codes[name])))
                powers[power - 1] = powers[power - 1] + monomial.without(
                    name, self._units(codes), bins
                )
        return powers

    def _slope(
        self, column: Number, codes: Mapping[str, Codes], bins: Mapping[str, Codes]
    ) -> Floats:
        """Coefficient (rows,) of a number's own value in unit scale, given the other columns."""
        name = column.name
        total = np.full(len(codes[name]), self._linear.get(name, 0.0))
        for first, second, value in self._products:
            if name in (first, second):
                total += value * self._unit(second if name == first else first, codes)
        for (number, group), slope in self._slopes.items():
            if number == name:
                total += slope[bins[group]]
        return total

    def balls(self, column: Number, codes: Mapping[str, Codes]) -> list[BallConditional]:
        """The terms of clipped moments, given the other columns."""
        return [
            potential.given_others(column.name, codes)
            for potential in self._balls
            if column in potential.block.numbers
        ]

    def subgroups(
        self, column: Column, codes: Mapping[str, Codes], bins: Mapping[str, Codes]
    ) -> list[SubgroupConditional]:
        """The terms of moments of subgroups, given the other columns."""
        return [
            potential.given_others(column.name, column.bins, self._units(codes), bins)
            for potential in self._subgroups
            if potential.involves(column.name)
        ]

    def _units(self, codes: Mapping[str, Codes]) -> Callable[[str], Floats]:
        return lambda number: self._unit(number, codes)

    def _unit(self, number: str, codes: Mapping[str, Codes]) -> Floats:
        column = self.schema[number]
        assert isinstance(column, Number)
        return column.units_of(codes[number])

    def _move_number(
        self,
        column: Number,
        by_bin: Single,
        powers: list[Floats],
        balls: list[BallConditional],
        subgroups: list[SubgroupConditional],
        codes: Mapping[str, Codes],
        rng: np.random.Generator,
    ) -> Codes:
        """Two draws, with the state as quotient and remainder of a step near the square root.

        First the quotient given the remainder (a coarse grid through the current state), then the
        remainder given the quotient (a run of states). Each is a draw from the conditional
        distribution on a set that holds the current state, which leaves the model invariant. With s
        states, the cost is that of 2 sqrt(s).
        """
        support, base = self.supports[column.name], self.base[column.name]
        size = len(support.codes)
        step = max(1, math.isqrt(size))
        state = np.searchsorted(support.codes, codes[column.name])
        units = column.units_of(support.codes)
        for coarse in (True, False):
            if coarse:
                trial = (state % step)[:, None] + step * np.arange(-(-size // step))
            else:
                trial = (state // step * step)[:, None] + np.arange(step)
            valid = trial < size
            trial = np.minimum(trial, size - 1)
            at = units[trial]
            logits = base[trial] + horner(powers, at)
            if column.bins > 1:
                logits += np.take_along_axis(by_bin, support.bins[trial], axis=1)
            for subgroup in subgroups:
                logits += subgroup.at(at, support.bins[trial])
            for ball in balls:
                logits += ball.at(support.codes[trial])
            logits[~valid] = -np.inf
            chosen = _categorical(logits, rng)
            state = np.take_along_axis(trial, chosen[:, None], axis=1)[:, 0]
        return support.codes[state]

    def _codes(self, column: Column, states: Codes, rng: np.random.Generator) -> Codes:
        support = self.supports[column.name]
        return support.codes[states] if support.coded else column.draw_inside(states, rng)


def _add(tables: dict[tuple[str, ...], Floats], names: tuple[str, ...], values: Floats) -> None:
    """Add potentials to those of the same columns, whatever the order of the columns."""
    order = tuple(sorted(range(len(names)), key=names.__getitem__))
    key = tuple(names[i] for i in order)
    values = np.transpose(values, order)
    tables[key] = tables[key] + values if key in tables else values


def _categorical(logits: NDArray[np.floating], rng: np.random.Generator) -> Codes:
    """One draw per row of (rows, states) log probabilities, up to a constant per row."""
    edges = np.ascontiguousarray(logits.T)  # sums are faster along the first axis
    edges -= edges.max(axis=0)
    np.cumsum(np.exp(edges, out=edges), axis=0, out=edges)
    level = rng.random(len(logits)) * edges[-1]
    chosen = np.minimum((edges <= level).sum(axis=0), len(edges) - 1)
    return np.asarray(chosen, dtype=np.int64)
