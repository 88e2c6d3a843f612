"""The one door to the measurements: what a release says about wanted functions, with exact noise.

A wanted function is answered if it was measured, or is a sum of cells of one measured table (or n
minus such a sum). Where several measured blocks would do, the one with the least variance answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.columns import Codes
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Block, Family, Floats, bounds_of
from dpstats.measurements import Measurements

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dpstats.privacy.laws import DiscreteLaplace


@dataclass(frozen=True)
class Answers:
    """Noisy sums of d wanted functions, with the exact law of each one's noise.

    Attributes
    ----------
    names : list of str
    sums : (d,) int64
        Noisy sums over the private rows, in integer units.
    bounds : (d,) int64
        B_f; the noisy mean in unit scale is sums / (n bounds).
    n : int
    uniforms : (d,) float64
        Uniform on (-1/2, 1/2), independent of the noise; sums + uniforms has a continuous law.
    law_table : list of laws
        The distinct laws of the noise on the sums.
    law_of : (d,) int64
        Index into `law_table`.
    weights : (d, |F|) sparse array of -1, 0 and 1
        The noise on each sum, as a combination of the independent noises on the measured sums.
    """

    names: list[str]
    sums: Codes
    bounds: Codes
    n: int
    uniforms: Floats
    law_table: list[DiscreteLaplace]
    law_of: NDArray[np.intp]
    weights: csr_array[Any]

    @cached_property
    def means(self) -> Floats:
        """Noisy means in unit scale, (d,) float64, unclipped."""
        return self.sums / (self.n * self.bounds)

    @cached_property
    def noise_variances(self) -> Floats:
        """Variance of the noise on the means, unit scale, (d,) float64."""
        variances = np.array([law.variance for law in self.law_table])[self.law_of]
        return variances / (self.n * self.bounds.astype(np.float64)) ** 2

    def first(self, count: int) -> Answers:
        """The answers to the first few functions."""
        return replace(
            self,
            names=self.names[:count],
            sums=self.sums[:count],
            bounds=self.bounds[:count],
            uniforms=self.uniforms[:count],
            law_of=self.law_of[:count],
            weights=self.weights[:count],
        )

    def law(self, f: int) -> DiscreteLaplace:
        """The noise law of function number f."""
        return self.law_table[int(self.law_of[f])]


def answer(
    measurements: Measurements,
    wanted: Family | Block | Sequence[Block],
    *,
    complements: bool = True,
) -> Answers:
    """Answer wanted functions from what was measured.

    Parameters
    ----------
    measurements : Measurements
    wanted : Family, block or sequence of blocks
    complements : bool
        Whether n minus other cells may answer. Without, the noise on disjoint conditions is
        independent when they are answered from one table.

    Raises
    ------
    NotMeasuredError
        Naming what is missing and what was measured.
    """
    from scipy import sparse

    if isinstance(wanted, Family):
        blocks: Sequence[Block] = wanted.blocks
    else:
        blocks = wanted if isinstance(wanted, Sequence) else [wanted]
    parts = [_answer_block(measurements, block, complements) for block in blocks]
    keys = [key for part in parts for key in part.laws]
    distinct = {key: i for i, key in enumerate(sorted(set(keys)))}
    members = [member for part in parts for member in part.members]
    signs = [sign for part in parts for sign in part.signs]
    counts = [len(member) for member in members]
    weights = sparse.csr_array(
        (np.repeat(signs, counts), np.concatenate(members), np.cumsum([0, *counts])),
        shape=(len(members), measurements.family.size),
    )
    return Answers(
        names=[name for block in blocks for name in block.names],
        sums=np.concatenate([part.sums for part in parts]),
        bounds=np.concatenate([bounds_of(block) for block in blocks]),
        n=measurements.n,
        uniforms=np.concatenate([part.uniforms for part in parts]),
        law_table=[measurements.budget.law(scale, terms) for scale, terms in distinct],
        law_of=np.array([distinct[key] for key in keys], dtype=np.intp),
        weights=weights,
    )


class _Part:
    """Answers to one block; each function keeps its best source so far."""

    def __init__(self, size: int) -> None:
        self.variances = np.full(size, np.inf)
        self.sums = np.zeros(size, dtype=np.int64)
        self.uniforms = np.zeros(size)
        self.laws: list[tuple[float, int]] = [(1.0, 1)] * size
        self.members: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * size
        self.signs = [1] * size


def _answer_block(measurements: Measurements, wanted: Block, complements: bool) -> _Part:
    part = _Part(wanted.size)
    following = 0
    for noisy in measurements.measured:
        start, following = following, following + noisy.block.size
        derivation = noisy.block.derive(wanted, complements=complements)
        if derivation is None:
            continue
        order = np.argsort(derivation.member, kind="stable")
        first = np.searchsorted(derivation.member[order], np.arange(wanted.size + 1))
        sums = derivation.apply(noisy.sums, measurements.n)
        for f in np.flatnonzero(derivation.terms > 0):
            # Members of one wanted function are cells of one table, or one moment: equal scales.
            member = order[first[f] : first[f + 1]]
            scale, terms = float(noisy.scales[member[0]]), len(member)
            variance = measurements.budget.law(scale).variance * terms
            if variance >= part.variances[f]:
                continue
            part.variances[f], part.sums[f] = variance, sums[f]
            uniform = derivation.sign * noisy.uniforms[member].sum()
            part.uniforms[f] = uniform - np.rint(uniform)  # uniform again, modulo one
            part.laws[f] = (scale, terms)
            part.members[f], part.signs[f] = start + member, derivation.sign
    if np.any(np.isinf(part.variances)):
        raise _not_measured(measurements, wanted, part.variances)
    return part


def _not_measured(measurements: Measurements, wanted: Block, variances: Floats) -> NotMeasuredError:
    lacking = [name for name, v in zip(wanted.names, variances, strict=True) if np.isinf(v)]
    columns = tuple(column.name for column in wanted.columns)
    measured = dict.fromkeys(
        repr(block.names[0]) if block.size == 1 else str(tuple(c.name for c in block.columns))
        for block in measurements.family.blocks
    )
    shown = ", ".join(list(measured)[:8]) + (", ..." if len(measured) > 8 else "")
    return NotMeasuredError(
        f"this release has no measurement of {columns} that gives {lacking[0]!r}"
        + (f" and {len(lacking) - 1} more" if lacking[1:] else "")
        + f"; measured: {shown}; ask the custodian for "
        + ("their moments" if wanted.needs_codes else f"dps.Marginals({list(columns)})")
    )
