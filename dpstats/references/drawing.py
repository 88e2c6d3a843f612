"""Candidate points drawn from a reference density."""

from __future__ import annotations

import numpy as np

from dpstats.density.candidates import Candidates, merged
from dpstats.measured.measurements import NoisyBlock
from dpstats.references.base import Density
from dpstats.schema import Schema


def draw_candidates(
    reference: Density,
    schema: Schema,
    measured: NoisyBlock | None,
    m: int,
    rng: np.random.Generator,
    *,
    stratified: bool,
) -> Candidates:
    """Draw m candidates and merge equal ones.

    Parameters
    ----------
    reference : Density
    schema : Schema
        The columns to synthesise.
    measured : NoisyBlock or None
        The reference's own measurement, if it has one.
    m : int
    stratified : bool
        Put the same number of points in every cell, weighted by the reference, where the domain
        has at most m cells; otherwise (and beyond) draw independently, as BL24 does.
    """
    cells, probabilities = reference.cells(schema, measured)
    if stratified and 0 < cells <= m:
        chosen = np.arange(cells) if probabilities is None else np.flatnonzero(probabilities)
        copies = max(1, m // len(chosen))
        points = schema.draw_inside(np.repeat(chosen, copies), rng)
        one = np.ones(len(chosen)) if probabilities is None else probabilities[chosen]
        weights = np.repeat(one, copies)
    else:
        points = reference.draw(m, schema, measured, rng)
        weights = np.ones(m)
    return merged(schema, points, weights)
