"""The protocol of a reference density, and bases for the two kinds of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.privacy.rationals import parse_fraction, read_rational
from dpstats.rows.candidates import Candidates, merged, obeying
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements, NoisyBlock
    from dpstats.privacy.laws import LatticeLaw


@dataclass(frozen=True)
class Proposal:
    """Candidates from a reference density."""

    candidates: Candidates
    # (m,), or None: equal weights of candidates that are rows; None where the fit is to find them
    density: Floats | None = None
    notes: tuple[str, ...] = ()  # warnings for the release, such as a fallback
    serves_inference: bool = True  # whether inference would get the same candidates
    # whether making views agree changes the means of the candidates, which the fit then restores
    moves_with_views: bool = False

    def obeying(self, schema: Schema) -> Proposal:
        """The candidates as the rules between columns read them, so that none breaks a rule."""
        if not schema.is_linked:
            return self
        weights = self.candidates.weights if self.density is None else self.density
        candidates = obeying(schema, self.candidates.codes, weights)
        moved = self.moves_with_views and bool(schema.views or schema.hidden)
        density = None if self.density is None or moved else candidates.weights
        return replace(self, candidates=candidates, density=density)


class Reference(Protocol):
    """The source of candidates: public, measured, or fitted to the noisy answers."""

    @property
    def share(self) -> Fraction:
        """Share of the whole budget it spends; zero for public densities."""

    def block(self, schema: Schema, n: int | None = None) -> Block | None:
        """The block that it measures, on the columns of `schema`; n is public, or None."""

    def check(self, block: Block, n: int, law: LatticeLaw) -> None:
        """Refuse, from public numbers, a measurement that would be mostly noise."""

    def check_family(self, family: Family) -> None:
        """Refuse test functions that it cannot place candidates for."""

    def candidates(
        self, measurements: Measurements, m: int, rng: np.random.Generator, *, stratified: bool
    ) -> Proposal:
        """M candidates, equal ones merged; spread over strata where `stratified` allows it."""

    def candidates_for_inference(
        self, measurements: Measurements, m: int, rng: np.random.Generator
    ) -> Proposal:
        """M candidates of the density that inference uses."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""


class Unmeasured:
    """Base of the references that measure nothing besides the family."""

    @property
    def share(self) -> Fraction:
        """Zero: nothing is measured."""
        return Fraction(0)

    def block(self, schema: Schema, n: int | None = None) -> Block | None:
        """None: nothing is measured."""
        return None

    def check(self, block: Block, n: int, law: LatticeLaw) -> None:
        """Nothing to check."""


class Density(ABC):
    """Base of the references that are a density on the coded domain, whatever the answers."""

    def check_family(self, family: Family) -> None:  # noqa: B027, a default that does nothing
        """Accept any family: the density does not depend on it."""

    def cells(self, schema: Schema, measured: NoisyBlock | None) -> tuple[int, Floats | None]:
        """Number of cells (levels and bins) of the domain, and their probabilities.

        None for equal probabilities; ``(0, None)`` for a density not on cells.
        """
        return 0, None

    @abstractmethod
    def draw(
        self, m: int, schema: Schema, measured: NoisyBlock | None, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M independent points, column name -> (m,) codes."""

    def note(self, measured: NoisyBlock | None) -> str | None:
        """A warning about this density for the release, such as a fallback; None without one."""
        return None

    def candidates(
        self, measurements: Measurements, m: int, rng: np.random.Generator, *, stratified: bool
    ) -> Proposal:
        """Draw m candidates and merge equal ones; see `draw_candidates`."""
        own = measurements.reference
        drawn = self.draw_candidates(m, measurements.columns, own, rng, stratified=stratified)
        note = self.note(own)
        return Proposal(drawn, notes=() if note is None else (note,))

    def candidates_for_inference(
        self, measurements: Measurements, m: int, rng: np.random.Generator
    ) -> Proposal:
        """Draw m candidates, spread over strata."""
        return self.candidates(measurements, m, rng, stratified=True)

    def draw_candidates(
        self,
        m: int,
        schema: Schema,
        measured: NoisyBlock | None,
        rng: np.random.Generator,
        *,
        stratified: bool,
    ) -> Candidates:
        """Draw m candidates and merge equal ones.

        Parameters
        ----------
        m : int
        schema : Schema
            The columns to synthesise.
        measured : NoisyBlock or None
            The reference's own measurement, if it has one.
        rng : numpy Generator
        stratified : bool
            Put the same number of points in every cell, weighted by the reference, where the
            domain has at most m cells; otherwise draw independently, as BL24 does.
        """
        cells, probabilities = self.cells(schema, measured)
        if stratified and 0 < cells <= m:
            chosen = np.arange(cells) if probabilities is None else np.flatnonzero(probabilities)
            copies = max(1, m // len(chosen))
            points = schema.draw_inside(np.repeat(chosen, copies), rng)
            one = np.ones(len(chosen)) if probabilities is None else probabilities[chosen]
            weights = np.repeat(one, copies)
        else:
            points = self.draw(m, schema, measured, rng)
            weights = np.ones(m)
        return merged(schema, points, weights)


def read_share(share: object, name: str) -> Fraction:
    """Share of the budget that a reference spends, below one; a number, or text from a file."""
    read = read_rational(parse_fraction(share) or share, f"{name}(share=...)")
    if read >= 1:
        raise RequestError(
            f"{name}(share={read}) leaves no budget for the analyses; give a share below 1"
        )
    return read
