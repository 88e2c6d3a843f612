"""A view of noisy moments of normal rows, with noise of given laws and values."""

from types import SimpleNamespace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements

P, N, HALF = 4, 5_000, 200
NAMES = tuple("abcd")


def chain_rows(n=N):
    """Codes of rows whose graph is a chain, roughly."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, P))
    for i in range(1, P):
        rows[:, i] = 0.1 + 0.6 * rows[:, i - 1] + 0.8 * rows[:, i]
    return np.clip(np.rint(rows / 4 * HALF), -HALF, HALF).astype(np.int64)


def covariance_of(rows=None, *, budget=None, noise=None, unit="replace", clip_norm=None):
    """A NoisyCovariance of coded rows (n, 4); `noise` on the sums, none by default."""
    rows = chain_rows() if rows is None else rows
    budget = dps.PureDP(1) if budget is None else budget
    schema = dps.Schema([dps.Number(x, -4, 4, points=2 * HALF + 1, missing=0) for x in NAMES])
    analysis = dps.GraphicalModel(NAMES, clip_norm=clip_norm)
    n = len(rows) if unit == "replace" else None
    plan = dps.plan(schema, {"g": analysis}, budget=budget, n=n, unit=unit, reference=dps.Uniform())
    codes = dict(zip(NAMES, rows.T, strict=True))
    planned = [*plan.blocks, *([] if plan.count is None else [plan.count])]
    sums = np.concatenate([
        np.array([len(rows)]) if block.role == "count" else block.block.sums(codes)
        for block in planned
    ])  # fmt: skip
    if noise is not None:
        sums = sums + noise(np.concatenate([plan.strategy.scales_of(block) for block in planned]))
    held = Measurements(plan.strategy, sums.astype(np.int64), np.zeros(len(sums)), not_private=True)
    view = SimpleNamespace(
        schema=schema, n=held.n, budget=budget, candidates=codes,
        weights=np.full(len(rows), 1 / len(rows)),
        answers=lambda wanted, **options: answer(held, wanted, **options),
    )  # fmt: skip
    block = analysis.family(schema).blocks[0]
    ball = None if clip_norm is None else block
    return NoisyCovariance.of(view, NAMES, ball=ball), view, analysis


@pytest.fixture(scope="session")
def graph_tools():
    return SimpleNamespace(covariance_of=covariance_of, chain_rows=chain_rows, half=HALF)
