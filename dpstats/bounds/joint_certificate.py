"""The joint certificate of the measured functions, to which their own intervals are cut.

A measured function has two intervals: that of the best combination of all answers, and that of the
joint certificate at the same alpha, which fails for it with a probability of about alpha over the
number of functions. The first at what is left of alpha, cut to the second, is never wider than the
certificate, and hardly wider than the first alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.error_rates import bonferroni
from dpstats.families.block import Block
from dpstats.measured.certificate import certify, joint_with_count
from dpstats.measured.combining import Sources


@dataclass(frozen=True, eq=False)
class JointCertificate:
    """Intervals for the private means of all measured functions."""

    ends: Floats  # (2, |F|) jointly with probability 1 - alpha, unit scale
    errors: Floats  # (|F|,) probability that each misses, by itself


def joint_certificate(sources: Sources, alpha: float) -> JointCertificate:
    """The intervals of `Accuracy.joint_ends`, with the error of each."""
    measured = sources.measurements
    whole = measured.published
    ends = certify(sources, np.zeros(whole.size), alpha=alpha, target="").joint_ends
    d, counted = ends.shape[1], measured.rows.law
    if measured.strategy.tables:
        each = bonferroni(alpha, d + (counted is not None))
        missed = each if counted is None else each + each  # its own, and that of n
        return JointCertificate(ends, np.full(d, missed))
    laws, which = measured.laws
    starts = np.cumsum([0, *(block.size for block in whole.blocks)])
    answering = set(whole.answering.blocks)
    chosen = np.concatenate(
        [
            np.arange(first, first + block.size)
            for block, first in zip(whole.blocks, starts, strict=False)
            if block in answering
        ]
    )
    own = [laws[i] for i in which[chosen]]
    every = own if counted is None else [*own, counted]
    q = joint_with_count(measured, own, alpha)
    tails = {
        pair: float(pair[0].tail(pair[1] + 1)) for pair in set(zip(every, q.tolist(), strict=True))
    }
    found = np.array([tails[pair] for pair in zip(every, q.tolist(), strict=True)])
    return JointCertificate(ends, found[:d] + (0.0 if counted is None else found[-1]))


def places_of(sources: Sources, wanted: Block) -> Codes:
    """Which measured function each of a block's is, (d,); -1 where it is none."""
    places, start = np.full(wanted.size, -1, dtype=np.int64), 0
    for block in sources.measurements.published.answering.blocks:
        derivation = block.derive(wanted, complements=False)
        if derivation is not None:
            own = np.flatnonzero(derivation.member >= 0)
            wanted_of = derivation.member[own]
            alone = derivation.terms[wanted_of] == 1
            places[wanted_of[alone]] = start + own[alone]
        start += block.size
    return places
