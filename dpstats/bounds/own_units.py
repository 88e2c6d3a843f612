"""Bounds on moments in the units of their columns, from those in unit scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpstats.families.block import Block
from dpstats.families.moments import Moments
from dpstats.results.bounds import Bounds


def have_units(blocks: Sequence[Block]) -> bool:
    """Whether all functions are moments that can be written with the values of columns.

    Coarse ones round the values first, and dates would be days.
    """
    return all(
        isinstance(block, Moments)
        and not block.coarse
        and not any(number.dates for number in block.numbers)
        for block in blocks
    )


def in_own_units(block: Block, found: Bounds) -> Bounds:
    """The mean of a column, and else of products in which columns are centred at their middle.

    A value is middle + half range times its value in unit scale, so that a product of centred
    columns is a multiple of that in unit scale.
    """
    assert isinstance(block, Moments)
    halves = {number.name: number.half_range for number in block.numbers}
    middles = {number.name: number.middle for number in block.numbers}
    centred = {
        number.name: f"({number.measured_name} {'-' if number.middle > 0 else '+'} "
        f"{abs(number.middle):.6g})" if number.middle else number.measured_name
        for number in block.numbers
    }  # fmt: skip
    terms, scales, shifts = block.named(centred), np.ones(block.size), np.zeros(block.size)
    for f, term in enumerate(block.terms):
        scales[f] = math.prod(halves[name] for name, level in term if level is None)
        if block.given is None and len(term) == 1 and term[0][1] is None:
            terms[f], shifts[f] = block.names[f], middles[term[0][0]]
    low, high = (shifts + scales * ends for ends in (found.low, found.high))
    return replace(found, terms=terms, low=low, high=high)
