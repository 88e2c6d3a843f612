"""The pilot of a second stage, from the noisy answers of the first alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpstats.analyses.base import Analysis
from dpstats.analyses.second_stage import at_pilots
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock
from dpstats.measured.view import View
from dpstats.releases.release import Release
from dpstats.results.base import Result
from dpstats.rows.generator import check_options, fit_density

CANDIDATES = 5_000  # a pilot only chooses what is measured next
SEED = 0


def pilots(
    measurements: Measurements,
    blocks: tuple[PlannedBlock, ...],
    analyses: Mapping[str, Analysis[Result]],
) -> tuple[PlannedBlock, ...]:
    """Blocks with second stages at the estimates of these measurements; zero without any."""
    try:
        if measurements.schema.design is not None:  # weighted estimates need no density
            sources = Sources(measurements)
            return at_pilots(blocks, analyses, View(sources, sources.rows.value))
        rng = check_options("entropy", "systematic", CANDIDATES, 1, SEED)
        candidates, weights = fit_density(measurements, CANDIDATES, rng)
        none = np.zeros(len(weights), dtype=np.int64)  # no rows are drawn
        release = Release(measurements, candidates.codes, weights, none, "entropy", "systematic")
    except Exception:  # any pilot is valid, and the budget is spent
        return tuple(planned.at(0.0) for planned in blocks)
    return at_pilots(blocks, analyses, release)
