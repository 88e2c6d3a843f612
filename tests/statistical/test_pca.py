"""Coverage of loadings and angles of principal components; of eigenvalues see test_intervals.py."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from interval_settings import FIVE, SETTINGS

import dpstats as dps

MOMENTS = [name for name in SETTINGS if name.startswith("moments")]
CASES = list(itertools.product(("noise_aware", "certified"), ("population", "table")))


def vectors_of(rows, standardize):
    """Components (5, 5) of rows, by decreasing eigenvalue."""
    matrix = np.corrcoef(rows[FIVE].T) if standardize else np.cov(rows[FIVE].T)
    return np.linalg.eigh(matrix)[1].T[::-1]


@pytest.mark.simulate(list(itertools.product(MOMENTS, (False, True))), few=(6,), runs=(6, 200))
def test_loadings_and_angles_of_components_cover(setting, runs, table, tools):
    """6 runs: sees intervals that never hold, such as by a forgotten scale; 200 see .86."""
    name, standardize = setting
    asked, inside = dps.PCA(FIVE, standardize=standardize), defaultdict(list)
    for population, rows, release in tools.simulated(SETTINGS[name], runs, runs > 100):
        result = release.infer(asked)
        for method, target in CASES:
            vectors = vectors_of(population if target == "population" else rows, standardize)
            cosines = np.sum(vectors * result.components_, axis=1)
            loadings = vectors * np.where(cosines < 0, -1, 1)[:, np.newaxis]
            low, high = result.conf_int(method=method, target=target)[10:].T.reshape(2, 5, 5)
            held = (low <= loadings + 1e-9) & (loadings <= high + 1e-9)
            turned = np.degrees(np.arcsin(np.sqrt(np.clip(1 - cosines**2, 0, 1))))
            angles = result.angles(method=method, target=target)["vector"] + 1e-5
            inside[method, target].append(np.column_stack([held, turned <= angles]))
    for how, held in inside.items():
        counts = np.sum(held, axis=0)
        for i, (*loadings, angle) in enumerate(counts, start=1):
            table.covers(setting, f"{', '.join(how)}: worst loading of PC{i}", min(loadings), runs)
            table.covers(setting, f"{', '.join(how)}: angle of PC{i}", angle, runs)
