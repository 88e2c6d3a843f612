"""Gibbs sweeps over coded rows under an exponential model of a family of test functions.

The model is proportional to base(x) exp(sum of c_f f(x)), the base a product over columns (eq. 2 of
docs/explanation/synthetic-rows/generator.md). Given all other columns, the logarithm of a column's
conditional distribution is a sum of rows of tables of coefficients (for cells), of a polynomial in
the number's own code (for moments, or for those of the rows of a subgroup), and of one in those of
the clipped row. Each column is drawn in turn from it, for all rows at once, which leaves the model
invariant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.ball_moments import BallMoments
from dpstats.families.block import Family
from dpstats.families.features import add_by_bin, indicator
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.residuals import Residual
from dpstats.rows.levels import Levels, Single
from dpstats.rows.potentials import (
    BallConditional,
    BallPotential,
    Monomial,
    SubgroupConditional,
    SubgroupPotential,
    horner,
)
from dpstats.schema import Column, Number, Schema

_LARGE = 1e4  # a coefficient from which single precision is not enough
CHUNK = 2**16  # entries of a conditional that are worked on at a time: what a cache holds
LEAST_ROWS, MOST_ENTRIES = 512, 2**22  # rows at a time, while their conditionals are small enough


def has_conditionals(family: Family) -> bool:
    """True if all blocks have conditional distributions; a residual is fitted as its table."""
    kinds = Table | Residual | Indicator | Moments | GroupMoments | PairMoments | BallMoments
    return all(isinstance(block, kinds) for block in family.blocks)


def states(column: Column, coded: bool) -> int:
    """Number of states of a column: its codes if they matter and are numbers, else its bins."""
    return len(column.all_codes) if coded and isinstance(column, Number) else column.bins


@dataclass(frozen=True)
class Support:
    """The states that a column takes: its bins, or all its codes where moments need them."""

    codes: Codes  # (size,): one code per state, increasing where states are codes
    bins: Codes  # (size,)
    # whether states are codes; else they are bins, and the code inside a bin is uniform
    coded: bool

    @cached_property
    def _places(self) -> Codes:
        """The state of every code from the least on."""
        places = np.zeros(int(self.codes[-1] - self.codes[0]) + 1, dtype=np.int64)
        places[self.codes - self.codes[0]] = np.arange(len(self.codes))
        return places

    def states_of(self, codes: Codes) -> Codes:
        """States (rows,) of codes, where states are codes."""
        return np.asarray(self._places[codes - self.codes[0]])

    @staticmethod
    def of(column: Column, coded: bool) -> Support:
        """The support of a column."""
        if coded and isinstance(column, Number):
            codes = column.all_codes
            return Support(codes, column.bins_of(codes), coded=True)
        bins = np.arange(column.bins)
        return Support(column.draw_inside(bins, np.random.default_rng(0)), bins, coded=False)


@dataclass(frozen=True)
class Rows:
    """Rows in every form that conditional distributions need."""

    # codes, bins: column name -> (rows,)
    codes: dict[str, Codes]
    bins: dict[str, Codes]
    units: dict[str, Floats]  # name of a coded number -> (rows,): values in unit scale
    one_hot: Single | None  # (L, rows) float32, or None: see `Levels`
    levels: Levels

    def put(self, column: Column, codes: Codes) -> None:
        """Replace a column."""
        bins = column.bins_of(codes)
        self.codes[column.name], self.bins[column.name] = codes, bins
        if self.one_hot is not None:
            place = self.levels.slices[column.name]
            self.one_hot[place] = bins == np.arange(column.bins)[:, np.newaxis]
        if column.name in self.units:
            assert isinstance(column, Number)
            self.units[column.name] = column.units_of(codes)


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
        self.levels = Levels(schema)
        coded = family.coded_columns
        self.supports = {c.name: Support.of(c, c.name in coded) for c in schema}
        self.base = {name: logs.astype(np.float32) for name, logs in base.items()}
        self.set_coefficients(np.zeros(family.size))

    def set_coefficients(self, coefficients: Floats) -> None:
        """Set c, (|F|,) float64, for functions in unit scale."""
        tables: dict[tuple[str, ...], Floats] = {}
        self._linear: dict[str, float] = {}
        self.squares: dict[str, float] = {}
        self._products: dict[str, list[tuple[str, float]]] = {}
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
                if isinstance(block, Indicator):
                    part = part * block.cells.array.ravel()
                _add(tables, tuple(c.name for c in block.columns), part.reshape(shape))
            elif isinstance(block, GroupMoments):
                self._subgroups += SubgroupPotential.of_groups((block.number,), block.groups, part)
            elif isinstance(block, PairMoments):
                self._subgroups += SubgroupPotential.of_groups(block.numbers, block.groups, part)
            elif isinstance(block, BallMoments):
                self._balls.append(BallPotential(block, part))
            else:
                assert isinstance(block, Moments)  # see `has_conditionals`
                if block.given is None:
                    self._add_moments(block, part, tables, slopes)
                    continue
                terms = zip(block.terms, part.tolist(), strict=True)
                monomials = tuple(Monomial.of(term, value) for term, value in terms)
                self._subgroups.append(SubgroupPotential(block.given, monomials))
        self._slopes = {key: slope.astype(np.float32) for key, slope in slopes.items()}
        self._matrix = self._of_small(tables)
        self._rows = {name: list(self._look_ups(name, tables)) for name in self.schema.names}

    def _of_small(self, tables: dict[tuple[str, ...], Floats]) -> Single | None:
        """Coefficients (L, L) of tables of two columns, which are taken out of `tables`.

        None where there are none, or too many levels.
        """
        small = [names for names in tables if len(names) == 2]
        if not small or self.levels.are_many:
            return None
        matrix = np.zeros((self.levels.size, self.levels.size), dtype=np.float32)
        for names in small:
            first, second = (self.levels.slices[name] for name in names)
            matrix[first, second] = table = tables.pop(names)
            matrix[second, first] = table.T
        return matrix

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
            factors = {
                name: indicator(level, np.arange(bins[name]))
                for name, level in term
                if level is not None
            }
            if len(term) > 2:
                self._monomials.append(Monomial.of(term, value))
            elif len(numbers) == 2:
                first, second = numbers
                if first == second:
                    self.squares[first] = self.squares.get(first, 0.0) + value
                else:
                    self._products.setdefault(first, []).append((second, value))
                    self._products.setdefault(second, []).append((first, value))
            elif numbers and factors:
                ((name, factor),) = factors.items()
                slopes.setdefault((numbers[0], name), np.zeros(bins[name]))[:] += value * factor
            elif numbers:
                self._linear[numbers[0]] = self._linear.get(numbers[0], 0.0) + value
            else:
                potential = value * reduce(np.multiply.outer, factors.values())
                _add(tables, tuple(factors), potential)

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

    def rows(self, codes: Mapping[str, Codes]) -> Rows:
        """Rows given as column name -> (rows,) codes."""
        empty, one_hot = np.empty(0), None
        if self._matrix is not None:
            rows = len(codes[self.schema.names[0]])
            one_hot = np.empty((self.levels.size, rows), dtype=np.float32)
        units = {name: empty for name, own in self.supports.items() if own.coded}
        found = Rows({}, {}, units, one_hot, self.levels)
        for column in self.schema:
            found.put(column, codes[column.name])
        return found

    def sweep(
        self, codes: Mapping[str, Codes], rng: np.random.Generator, *, alone: bool = False
    ) -> dict[str, Codes]:
        """Draw every column once, in the order of the schema, given the others.

        Each `alone`: given the others as they were, so that any one of them may replace its own.
        """
        m = len(codes[self.schema.names[0]])
        moved = {name: np.empty(m, dtype=np.int64) for name in self.schema.names}
        width = max(self._width(column) for column in self.schema)
        step = max(1, CHUNK // width, min(LEAST_ROWS, MOST_ENTRIES // width))
        for first in range(0, m, step):
            piece = slice(first, first + step)
            rows = self.rows({name: array[piece] for name, array in codes.items()})
            for column in self.schema:
                drawn = self._drawn(column, rows, rng)
                moved[column.name][piece] = drawn
                if not alone:
                    rows.put(column, drawn)
        return moved

    def _width(self, column: Column) -> int:
        return max(column.bins, math.isqrt(len(self.supports[column.name].codes)) + 1)

    def _drawn(self, column: Column, rows: Rows, rng: np.random.Generator) -> Codes:
        subgroups = self.subgroups(column, rows)
        by_bin = self.bin_potentials(column, rows, subgroups)
        if not self.supports[column.name].coded:
            logits = np.ascontiguousarray((by_bin + self.base[column.name]).T)
            return self._codes(column, categorical(logits, rng), rng)
        assert isinstance(column, Number)
        return self._move_number(column, by_bin, subgroups, rows, rng)

    def bin_potentials(
        self, column: Column, rows: Rows, subgroups: list[SubgroupConditional] | None = None
    ) -> Single:
        """Log conditional given the other columns up to a constant, (rows, bins) float32.

        Without the base, and without what depends on a number's code inside its bin.
        """
        name = column.name
        if self._matrix is None:
            total = np.zeros((len(rows.codes[name]), column.bins), dtype=np.float32)
        else:
            assert rows.one_hot is not None
            total = (self._matrix[self.levels.slices[name]] @ rows.one_hot).T
        for others, table in self._rows[name]:
            index: Codes | int = 0
            for other in others:
                index = index * self.schema[other].bins + rows.bins[other]
            total += table[index]
        for (number, group), slope in self._slopes.items():
            if group == name:
                total += np.outer(rows.units[number], slope).astype(np.float32)
        for monomial in self._monomials:
            for group, level in monomial.levels:
                if group == name:
                    rest = monomial.without(name, rows.units.__getitem__, rows.bins)
                    add_by_bin(total, level, rest)
        for subgroup in self.subgroups(column, rows) if subgroups is None else subgroups:
            total += subgroup.by_bin.astype(np.float32)
        return total

    def polynomial(self, column: Number, rows: Rows) -> list[Floats]:
        """Coefficients (rows,) of the powers 1, 2, .. of a number's value in unit scale."""
        name = column.name
        square = np.full(len(rows.codes[name]), self.squares.get(name, 0.0))
        powers = [self._slope(name, rows), square]
        for monomial in self._monomials:
            power = monomial.powers.get(name, 0)
            if power:
                while len(powers) < power:
                    powers.append(np.zeros(len(square)))
                rest = monomial.without(name, rows.units.__getitem__, rows.bins)
                powers[power - 1] = powers[power - 1] + rest
        return powers

    def _slope(self, name: str, rows: Rows) -> Floats:
        """Coefficient (rows,) of a number's own value in unit scale, given the other columns."""
        total = np.full(len(rows.codes[name]), self._linear.get(name, 0.0))
        for other, value in self._products.get(name, []):
            total += value * rows.units[other]
        for (number, group), slope in self._slopes.items():
            if number == name:
                total += slope[rows.bins[group]]
        return total

    def balls(self, column: Number, rows: Rows) -> list[BallConditional]:
        """The terms of clipped moments, given the other columns."""
        return [
            potential.given_others(column.name, rows.codes)
            for potential in self._balls
            if column in potential.block.numbers
        ]

    def subgroups(self, column: Column, rows: Rows) -> list[SubgroupConditional]:
        """The terms of moments of subgroups, given the other columns."""
        units = rows.units.__getitem__
        return [
            potential.given_others(column.name, column.bins, units, rows.bins)
            for potential in self._subgroups
            if potential.involves(column.name)
        ]

    def _move_number(
        self,
        column: Number,
        by_bin: Single,
        subgroups: list[SubgroupConditional],
        rows: Rows,
        rng: np.random.Generator,
    ) -> Codes:
        """Two draws, with the state as quotient and remainder of a step near the square root.

        First the quotient given the remainder (a coarse grid through the current state), then the
        remainder given the quotient (a run of states). Each is a draw from the conditional
        distribution on a set that holds the current state, which leaves the model invariant. With s
        states, the cost is that of 2 sqrt(s). States are along the first axis, where sums are
        faster; those beyond the last have probability zero.
        """
        support = self.supports[column.name]
        size = len(support.codes)
        step = max(1, math.isqrt(size))
        beyond = -size % step
        base = np.append(self.base[column.name], np.full(beyond, -np.inf, np.float32))
        codes = np.append(support.codes, np.repeat(support.codes[-1:], beyond))
        bins = np.append(support.bins, np.repeat(support.bins[-1:], beyond))
        powers = self.polynomial(column, rows)
        for subgroup in (of for of in subgroups if of.same_in_all_bins):
            powers += [np.zeros_like(powers[0]) for _ in subgroup.powers[len(powers) :]]
            for power, more in zip(powers, subgroup.powers, strict=False):
                power += more * subgroup.holds[:, 0]
        subgroups = [of for of in subgroups if not of.same_in_all_bins]
        exact = max(float(np.abs(power).max()) for power in powers) > _LARGE
        kind = np.float64 if exact else np.float32
        units = column.units_of(codes).astype(kind)
        powers = [power.astype(kind) for power in powers]
        balls = self.balls(column, rows)
        state = support.states_of(rows.codes[column.name])
        for coarse in (True, False):
            grid = np.arange(0, len(codes), step) if coarse else np.arange(step)
            first = state % step if coarse else state - state % step
            trial = grid[:, np.newaxis] + first
            at = units[trial]
            logits = horner(powers, at)
            logits += base[trial]
            if column.bins > 1:
                logits += np.take_along_axis(by_bin, bins[trial].T, axis=1).T
            for subgroup in subgroups:
                logits += subgroup.at(at.T, bins[trial].T).T
            for ball in balls:
                logits += ball.at(codes[trial].T).T
            state = first + grid[categorical(logits, rng)]
        return codes[state]

    def _codes(self, column: Column, states: Codes, rng: np.random.Generator) -> Codes:
        support = self.supports[column.name]
        return support.codes[states] if support.coded else column.draw_inside(states, rng)


def _add(tables: dict[tuple[str, ...], Floats], names: tuple[str, ...], values: Floats) -> None:
    """Add potentials to those of the same columns, whatever the order of the columns."""
    order = tuple(sorted(range(len(names)), key=names.__getitem__))
    key = tuple(names[i] for i in order)
    values = np.transpose(values, order)
    tables[key] = tables[key] + values if key in tables else values


def categorical(logits: NDArray[np.floating], rng: np.random.Generator) -> Codes:
    """One draw per column of (states, rows) log probabilities, up to a constant; overwritten."""
    logits -= logits.max(axis=0)
    edges = np.exp(logits, out=logits)
    states, rows = edges.shape
    if states > rows:
        np.cumsum(edges, axis=0, out=edges)
    else:  # row by row, since sums across rows of an array are slow
        for last, edge in itertools.pairwise(edges):
            edge += last
    level = rng.random(rows, dtype=edges.dtype.type) * edges[-1]
    passed = (edges[:-1] <= level).view(np.int8)
    chosen = passed.sum(axis=0, dtype=np.int8 if states < 128 else np.int64)  # bytes are faster
    return np.asarray(chosen, dtype=np.int64)
