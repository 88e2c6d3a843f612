"""How a budget is split over the blocks that are measured; from public numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from dpstats.checks import check_choice, short
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Unit
from dpstats.privacy.rationals import read_rational

Allocation = Literal["equal", "optimal"]


@dataclass(frozen=True)
class Split:
    """A rule for the noise multiplier of every block.

    Parameters
    ----------
    asked : mapping of name to blocks
        The blocks that every analysis needs.
    budget : Budget
    amount : Fraction
        The part of the budget to spend on the blocks, exactly.
    unit : {"replace", "add_remove"}
    allocation : {"equal", "optimal"}
        Equal noise in natural units, as in BL24, times r for blocks that tolerate more noise
        (`noise_factor`); or the least sum of the noise variances over r^2 over all functions.
        Without r that is sum_b d_b v_b for blocks of d_b functions, where block b spends e_b and
        v_b = 2 (D1_b / e_b)^2 (Laplace) or v_b = D2_b / (2 e_b) (Gaussian); by Lagrange's rule
        e_b is proportional to (d_b D1_b^2)^(1/3) or (d_b D2_b)^(1/2): large tables get more.
        Noise r times as large is the same as a sensitivity D1_b / r, D2_b / r^2.
    shares : mapping of name to Fraction, optional
        Share of each analysis instead. It is spread over its blocks in proportion to their cost;
        a block that several analyses need takes its largest part.
    """

    asked: Mapping[str, Sequence[Block]]
    budget: Budget
    amount: Fraction
    unit: Unit
    allocation: Allocation = "equal"
    shares: Mapping[str, Fraction] | None = None

    def __post_init__(self) -> None:
        check_choice("allocation", self.allocation, get_args(Allocation))
        if self.shares is not None and self.allocation != "equal":
            raise RequestError(
                "give shares or allocation='optimal', not both: each decides the split"
            )

    def __call__(self, blocks: Sequence[Block]) -> list[Fraction]:
        """Noise multiplier of every block; together they spend the amount exactly."""
        prices = [relative_price([block], self.budget, self.unit) for block in blocks]
        total = relative_price(blocks, self.budget, self.unit)
        if self.shares is not None:
            parts = self._by_shares(blocks, prices)
            total = sum(parts, Fraction(0))
        elif self.allocation == "equal":
            parts = prices  # then every multiplier is the total over the amount, times the factor
        else:
            sizes = [block.size for block in blocks]
            power = 1 / 3 if self.budget.noise == "laplace" else 1 / 2
            squares = prices if power == 1 / 2 else [price**2 for price in prices]
            # any positive parts are private; rounding them costs nothing
            parts = [
                Fraction(float(d * q) ** power).limit_denominator(10**6)
                for d, q in zip(sizes, squares, strict=True)
            ]
            total = sum(parts, Fraction(0))
        return [
            block.multiplier(self.budget, self.unit, self.amount * part / total)
            for block, part in zip(blocks, parts, strict=True)
        ]

    def _by_shares(self, blocks: Sequence[Block], prices: list[Fraction]) -> list[Fraction]:
        assert self.shares is not None
        parts = [Fraction(0)] * len(blocks)
        for name, wanted in self.asked.items():
            serving = self._serving(blocks, wanted)
            whole = sum((prices[i] for i in serving), Fraction(0))
            for i in serving:
                parts[i] = max(parts[i], self.shares[name] * prices[i] / whole)
        return parts

    def _serving(self, blocks: Sequence[Block], wanted: Sequence[Block]) -> list[int]:
        """Indices of the measured blocks that answer the needs of an analysis.

        A block answers itself where it is measured; else those it follows from do.
        """
        serving: dict[int, None] = {}
        complements = self.unit == "replace"
        for block in wanted:
            if block in blocks:
                serving[blocks.index(block)] = None
            else:
                serving |= {
                    i: None
                    for i, b in enumerate(blocks)
                    if b.derive(block, complements=complements) is not None
                }
        return list(serving)


def relative_price(blocks: Sequence[Block], budget: Budget, unit: Unit) -> Fraction:
    """Sum of the blocks' relative prices: what they spend in an equal split with unit scale."""
    return sum((block.relative_price(budget, unit) for block in blocks), Fraction(0))


def read_shares(shares: Mapping[str, Any], names: list[str]) -> dict[str, Fraction]:
    """Positive rational shares of all analyses.

    Raises
    ------
    RequestError
        If an analysis is not named, or a share is not a positive number.
    """
    if not isinstance(shares, Mapping) or set(shares) != set(names):
        given = list(shares) if isinstance(shares, Mapping) else shares
        raise RequestError(f"shares must name every analysis: {names}; got {short(given)}")
    return {name: read_rational(share, f"share of {name!r}") for name, share in shares.items()}
