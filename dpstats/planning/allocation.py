"""How a budget is split over the blocks that are measured; from public numbers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

from dpstats.checks import check_choice, short
from dpstats.errors import RequestError
from dpstats.families.block import Block
from dpstats.families.merging import BlockIndex
from dpstats.privacy.budget import Budget
from dpstats.privacy.neighbours import Neighbours
from dpstats.privacy.rationals import read_rational, total_of

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
    neighbours : Neighbours
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
    neighbours: Neighbours
    allocation: Allocation = "equal"
    shares: Mapping[str, Fraction] | None = None

    def __post_init__(self) -> None:
        check_choice("allocation", self.allocation, get_args(Allocation))
        if self.shares is not None and self.allocation != "equal":
            raise RequestError(
                "give shares or allocation='optimal', not both: each decides the split"
            )

    def __call__(
        self, blocks: Sequence[Block], chosen: Iterable[int] | None = None
    ) -> list[Fraction]:
        """Noise multipliers of all blocks, which spend the amount exactly, or of some by number."""
        numbers = range(len(blocks)) if chosen is None else list(chosen)
        if self.shares is None and self.allocation == "equal":
            # Then every multiplier is the total over the amount, times the factor.
            some = [relative_price([blocks[i]], self.budget, self.neighbours) for i in numbers]
            total = relative_price(blocks, self.budget, self.neighbours)
        else:
            optimal = self.shares is None
            parts = [self._optimal(b) for b in blocks] if optimal else self._by_shares(blocks)
            some, total = [parts[i] for i in numbers], total_of(parts)
        return [
            blocks[i].multiplier(self.budget, self.neighbours, self.amount * part / total)
            for i, part in zip(numbers, some, strict=True)
        ]

    def beside(
        self, blocks: Sequence[Block], weights: Sequence[float], variances: float
    ) -> list[Fraction]:
        """Multipliers of the blocks that leave a part of the amount to something else.

        The part gives the least sum of variances, with weights for those of every block.
        `variances` is the weighted sum for what gets the rest, if it spends one.
        """
        parts = [self._optimal(one, weight) for one, weight in zip(blocks, weights, strict=True)]
        rest = self._least(Fraction(variances / (1 if self.budget.noise == "gaussian" else 2)))
        total = total_of([*parts, rest])
        return [
            block.multiplier(self.budget, self.neighbours, self.amount * part / total)
            for block, part in zip(blocks, parts, strict=True)
        ]

    def _optimal(self, block: Block, weight: float = 1) -> Fraction:
        price = relative_price([block], self.budget, self.neighbours)
        squared = price if self.budget.noise == "gaussian" else price**2
        return self._least(Fraction(weight) * block.size * squared)

    def _least(self, squared: Fraction) -> Fraction:
        """What a block spends, up to a common factor, by its weighted squared sensitivities."""
        return _root(squared, 2 if self.budget.noise == "gaussian" else 3)

    def _by_shares(self, blocks: Sequence[Block]) -> list[Fraction]:
        assert self.shares is not None
        prices = [relative_price([block], self.budget, self.neighbours) for block in blocks]
        number = {block: i for i, block in reversed(list(enumerate(blocks)))}
        sources = BlockIndex(blocks)
        parts = [Fraction(0)] * len(blocks)
        for name, wanted in self.asked.items():
            serving = dict.fromkeys(
                i for block in wanted for i in self._serving(block, blocks, number, sources)
            )
            whole = total_of([prices[i] for i in serving])
            for i in serving:
                parts[i] = max(parts[i], self.shares[name] * prices[i] / whole)
        return parts

    def _serving(
        self,
        wanted: Block,
        blocks: Sequence[Block],
        number: Mapping[Block, int],
        sources: BlockIndex,
    ) -> list[int]:
        """Numbers of the measured blocks that answer a block: itself, or those it follows from."""
        if wanted in number:
            return [number[wanted]]
        complements = self.neighbours.unit == "replace"
        return [
            i
            for i in sources.of(wanted)
            if blocks[i].terms_of(wanted, complements=complements) is not None
        ]


def relative_price(blocks: Sequence[Block], budget: Budget, neighbours: Neighbours) -> Fraction:
    """Sum of the blocks' relative prices: what they spend in an equal split with unit scale."""
    return total_of([block.relative_price(budget, neighbours) for block in blocks])


@lru_cache(maxsize=4096)
def _root(value: Fraction, power: int) -> Fraction:
    """A root, rounded: any positive parts are private; rounding them costs nothing."""
    return Fraction(float(value) ** (1 / power)).limit_denominator(10**6)


def read_shares(shares: Mapping[str, Any], names: list[str]) -> dict[str, Fraction]:
    """Positive rational shares of all analyses."""
    if not isinstance(shares, Mapping) or set(shares) != set(names):
        given = list(shares) if isinstance(shares, Mapping) else shares
        raise RequestError(f"shares must name every analysis: {names}; got {short(given)}")
    return {name: read_rational(share, f"share of {name!r}") for name, share in shares.items()}
