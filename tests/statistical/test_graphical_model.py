"""Level, power and coverage of partial correlations and trees, on graphs that are known.

Rows are drawn, with replacement, from a table that represents the population, so that its partial
correlations are known exactly; clipping is part of it.
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.graphs.tree import spanning_tree
from dpstats.measured.measurements import Measurements

POPULATION = 20_000
BOUND = {"normal": 3.0, "t5": 5.0, "log-normal": 5.0}
HALF = 300  # steps of a column to either side
NULL = 0.003  # partial correlations below it count as zero where clipping moves them
ZCDP1 = dps.ZCDP(0.0243559)  # (1, 1e-6)


@dataclass(frozen=True)
class Setting:
    graph: str
    p: int
    n: int
    budget: object
    law: str = "normal"
    clip_norm: float | None = None
    unit: str = "replace"
    separators: bool = False
    coupling: float = 0.4  # of signs

    def __str__(self):
        budget = str(self.budget).split(" (")[0]
        extra = ", clipped" * (self.clip_norm is not None) + ", separators" * self.separators
        extra += f", coupling {self.coupling}" * (self.law == "Ising")
        return f"{self.graph} p={self.p} n={self.n} {budget} {self.law} {self.unit}{extra}"


def edges_of(graph, p):
    side = round(p**0.5)
    grid = [(i, i + 1) for i in range(p - 1) if (i + 1) % side]
    grid += [(i, i + side) for i in range(p - side)]
    rng = np.random.default_rng(0)
    pairs = list(itertools.combinations(range(p), 2))
    return {
        "empty": [],
        "chain": [(i, i + 1) for i in range(p - 1)],
        "pair": [(0, 1)],
        "star": [(0, i) for i in range(1, p)],
        "grid": grid,
        "random": [pair for pair in pairs if rng.random() < 1.5 / p],
    }[graph]


def normal_rows(graph, p):
    """Rows whose partial correlations are those of the graph exactly."""
    weight = {"chain": 0.4, "star": 0.8 / np.sqrt(p - 1), "grid": 0.22, "random": 0.2, "pair": 0.95}
    precision = np.eye(p)
    for i, j in edges_of(graph, p):
        precision[i, j] = precision[j, i] = -weight[graph]
    lowest = np.linalg.eigvalsh(precision)[0]
    if lowest < 0.15 and graph != "pair":
        precision = np.eye(p) + (precision - np.eye(p)) * 0.85 / (1 - lowest)
    covariance = np.linalg.inv(precision)
    root = np.sqrt(np.diag(covariance))
    factor = np.linalg.cholesky(covariance / np.outer(root, root))
    drawn = np.random.default_rng(1).standard_normal((POPULATION, p))
    drawn -= drawn.mean(axis=0)
    return drawn @ np.linalg.inv(np.linalg.cholesky(np.cov(drawn.T, bias=True))).T @ factor.T


def rows_of(graph, p, law):
    rows = normal_rows(graph, p)
    rng = np.random.default_rng(2)
    if law == "t5":
        rows *= np.sqrt(3 / rng.chisquare(5, (POPULATION, 1)))
    if law == "log-normal":
        rows = np.exp(rows / 2)
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return rows


def signs_of(graph, p, coupling):
    """All states of an Ising model, and their probabilities."""
    states = np.array(list(itertools.product([-1, 1], repeat=p)))
    energy = sum(coupling * states[:, i] * states[:, j] for i, j in edges_of(graph, p))
    chances = np.exp(np.zeros(len(states)) + energy)
    return states, chances / chances.sum()


@lru_cache(maxsize=2)
def world(setting, structure="any"):
    """The plan, codes of the population with their probabilities, and functions at each."""
    names = [f"x{i}" for i in range(setting.p)]
    if setting.law == "Ising":
        states, chances = signs_of(setting.graph, setting.p, setting.coupling)
        schema = dps.Schema([dps.Boolean(name) for name in names])
        codes = {name: (states[:, i] + 1) // 2 for i, name in enumerate(names)}
    else:
        bound = BOUND[setting.law]
        rows = rows_of(setting.graph, setting.p, setting.law) / bound * HALF
        codes = dict(
            zip(names, np.clip(np.rint(rows), -HALF, HALF).astype(np.int64).T, strict=True)
        )
        chances = np.full(POPULATION, 1 / POPULATION)
        points = 2 * HALF + 1
        schema = dps.Schema([dps.Number(n, -bound, bound, points=points, missing=0) for n in names])
    edges = [(names[i], names[j]) for i, j in edges_of(setting.graph, setting.p)]
    analysis = dps.GraphicalModel(
        names, clip_norm=setting.clip_norm, separators=edges if setting.separators else None,
        structure=structure,
    )  # fmt: skip
    public = setting.n if setting.unit == "replace" else None
    plan = dps.plan(
        schema, {"g": analysis}, budget=setting.budget, n=public, unit=setting.unit,
        reference=dps.Uniform(),
    )  # fmt: skip
    blocks = [
        np.ones((1, len(chances)))
        if planned.role == "count"
        else planned.block.evaluate({c.name: codes[c.name] for c in planned.block.columns}).array
        for planned in measured(plan)
    ]
    return plan, codes, chances, np.concatenate(blocks)


def releases(setting, runs, tools, structure="any", seed=1):
    """Results on fresh rows with fresh noise."""
    plan, _, chances, functions = world(setting, structure)
    rng = np.random.default_rng(seed)
    source = tools.noise_of(setting.budget)(seed + 1)
    scales = np.concatenate([plan.strategy.scales_of(planned) for planned in measured(plan)])
    for _ in range(runs):
        sums = np.rint(functions @ rng.multinomial(setting.n, chances)).astype(np.int64)
        sums += tools.noise_of_scales(scales, source)
        held = Measurements(
            plan.strategy, sums, rng.random(len(sums)) - 0.5, not_private=True,
            reference_spec={"kind": "uniform"},
        )  # fmt: skip
        yield dps.synthesize(held, m=2_000, k=10, rng=rng).infer(plan.analyses["g"])


def measured(plan):
    """Planned blocks in the order of the sums."""
    return [*plan.blocks, *([] if plan.count is None else [plan.count])]


def truth_of(setting, result, structure="any"):
    """The (partial) correlations of the population, and which pairs are edges, both (d,)."""
    _, codes, chances, _ = world(setting, structure)
    rows = result.intervals.covariance.moments.unit_rows(codes)
    found = np.cov(rows.T, aweights=chances, bias=True)
    if structure == "any":
        found = -np.linalg.inv(found)
    root = np.sqrt(np.abs(np.diag(found)))
    first, second = np.triu_indices(setting.p, 1)
    edges = set(edges_of(setting.graph, setting.p))
    inside = np.array([pair in edges for pair in zip(first.tolist(), second.tolist(), strict=True)])
    return (found / np.outer(root, root))[first, second], inside


def holm(pvalues):
    """Holm's adjustment, nan for pairs that are not tested; the library's takes .1 s a call."""
    adjusted, known = np.full(len(pvalues), np.nan), np.flatnonzero(np.isfinite(pvalues))
    order = known[np.argsort(pvalues[known])]
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def check(setting, runs, table, tools):
    """Level of Holm's tests, coverage of single and of simultaneous intervals, the certificate."""
    false, held, jointly, certified, power, widths = 0, [], 0, 0, [], []
    refused, bounded = 0, max(5, runs // 4)  # certified limits take longer
    for run, result in enumerate(releases(setting, runs, tools)):
        if not run:
            truth, edges = truth_of(setting, result)
            null = ~edges & result.tested & (np.abs(truth) < NULL)
        if run < bounded:
            low, high = result.conf_int(method="certified").T
            certified += np.all((low <= truth) & (truth <= high))
        if not result.known:
            refused += 1
            continue
        low, high = result.conf_int().T
        held.append(np.mean((low <= truth) & (truth <= high)))
        widths.append(np.mean(high - low))
        low, high = result.conf_int(simultaneous=True).T
        jointly += np.all((low <= truth) & (truth <= high))
        adjusted = holm(np.asarray(result.p_unadjusted))
        false += np.any(adjusted[null] <= 0.05)
        power.append(adjusted[edges & result.tested] <= 0.05)
    known = runs - refused
    table.row(setting, "nearly singular", refused / runs, runs=runs)
    table.covers(setting, "certified, all pairs", certified, bounded)
    assert known, "no run has an estimate"
    if np.any(edges & result.tested):
        table.row(setting, "edges found", float(np.mean(power)), runs=known)
    if null.any():
        table.level(setting, "any false edge, Holm", false, known)
    table.covers(setting, "simultaneous", jointly, known)
    mean, width = float(np.mean(held)), float(np.mean(widths))
    # Pairs of one run depend on each other; in few runs all may be covered.
    spare = 4 * max(np.std(held), 0.05) / np.sqrt(known)
    table.check(
        setting, "single intervals", mean, width, "0.93 to 0.97", known,
        least=0.93 - spare, most=0.97 + spare,
    )  # fmt: skip


SETTINGS = [
    Setting("chain", 5, 3_000, dps.PureDP(3)),
    Setting("empty", 6, 2_000, dps.ZCDP(0.1), law="Ising", unit="add_remove"),
    Setting("empty", 5, 20_000, ZCDP1), Setting("chain", 5, 1_000, dps.PureDP(10)),
    Setting("star", 10, 30_000, ZCDP1), Setting("chain", 10, 15_000, ZCDP1),
    Setting("grid", 9, 30_000, dps.PureDP(3)), Setting("random", 8, 20_000, dps.ZCDP(1)),
    Setting("empty", 10, 60_000, dps.PureDP(1)), Setting("chain", 10, 1_000_000, dps.PureDP(0.1)),
    Setting("random", 8, 20_000, dps.ZCDP(1), unit="add_remove"),
    Setting("empty", 10, 40_000, dps.PureDP(2), unit="add_remove"),
    Setting("chain", 10, 10_000, ZCDP1, clip_norm=1.81),
    Setting("star", 10, 40_000, dps.PureDP(1), clip_norm=1.81),
    Setting("chain", 30, 100_000, ZCDP1), Setting("empty", 30, 60_000, ZCDP1, clip_norm=2.57),
    Setting("chain", 5, 5_000, dps.ZCDP(1), law="t5"),
    Setting("empty", 10, 50_000, dps.PureDP(5), law="t5"),
    Setting("chain", 5, 20_000, dps.ZCDP(1), law="log-normal"),
    Setting("star", 8, 50_000, dps.PureDP(5), law="log-normal"),
    Setting("empty", 8, 3_000, ZCDP1, law="Ising"), Setting("chain", 8, 5_000, ZCDP1, law="Ising"),
    Setting("star", 8, 20_000, dps.PureDP(1), law="Ising"),
    Setting("grid", 9, 20_000, dps.ZCDP(0.5), law="Ising"),
    Setting("chain", 6, 3_000, dps.PureDP(3), law="Ising", unit="add_remove"),
    Setting("grid", 9, 20_000, dps.ZCDP(0.5), law="Ising", separators=True),
    # Where fourth moments are far from normal ones, and where columns are nearly collinear.
    Setting("chain", 4, 6_000, dps.ZCDP(2), law="Ising", coupling=1.2),
    Setting("grid", 4, 5_000, dps.ZCDP(2), law="Ising", coupling=0.8, separators=True),
    Setting("pair", 2, 2_500, dps.ZCDP(0.2)), Setting("pair", 3, 9_000, dps.ZCDP(0.2)),
    Setting("pair", 3, 6_000, dps.PureDP(3)),
]  # fmt: skip


@pytest.mark.simulate(SETTINGS, few=(0, 1), runs=(6, 200))
def test_level_and_coverage(setting, runs, table, tools):
    """More runs where one is fast."""
    check(setting, 1_000 if runs > 10 and setting.p <= 4 else runs, table, tools)


TREES = [
    (Setting("chain", 6, 5_000, dps.PureDP(3)), 0.5),
    (Setting("chain", 10, 5_000, ZCDP1), 0.0), (Setting("chain", 10, 20_000, ZCDP1), 0.9),
    (Setting("star", 8, 20_000, dps.PureDP(3)), 0.5),
    (Setting("chain", 8, 5_000, ZCDP1, law="Ising"), 0.9),
    (Setting("star", 8, 5_000, dps.PureDP(1), law="Ising", unit="add_remove"), 0.5),
]  # fmt: skip


@pytest.mark.simulate(TREES, few=(0,), runs=(6, 200))
def test_trees(setting, runs, table, tools):
    setting, decided = setting
    wrong, jointly, known = 0, 0, []
    for number, result in enumerate(releases(setting, runs, tools, structure="tree")):
        if not number:
            truth, _ = truth_of(setting, result, "tree")
            inside = spanning_tree(np.abs(truth), result.intervals.pairs, setting.p)
        low, high = result.conf_int(simultaneous=True).T
        jointly += np.all((low <= truth) & (truth <= high))
        verdicts = np.array(result.verdicts())
        wrong += np.any(verdicts[inside] == "impossible") or np.any(verdicts[~inside] == "sure")
        known.append(np.mean(verdicts != "undecided"))
    table.covers(setting, "simultaneous", jointly, runs)
    table.level(setting, "any wrong verdict", wrong, runs)
    table.check(setting, "pairs decided", float(np.mean(known)), runs=runs, least=decided)


# The smallest number of rows at which 95% of a chain's edges were found by the prototypes.
FOUND = [
    (Setting("chain", 10, 15_000, ZCDP1), 0.95), (Setting("chain", 30, 70_000, ZCDP1), 0.95),
    (Setting("chain", 10, 7_000, ZCDP1, clip_norm=1.81), 0.95),
    (Setting("chain", 30, 20_000, ZCDP1, clip_norm=2.57), 0.95),
    (Setting("chain", 10, 20_000, dps.PureDP(1), clip_norm=1.81), 0.95),
    (Setting("chain", 30, 150_000, dps.PureDP(1), clip_norm=2.57), 0.95),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "least"), FOUND, ids=str)
def test_edges_of_a_chain_are_found(setting, least, table, tools):
    found = []
    for result in releases(setting, 20, tools):
        _, edges = truth_of(setting, result)
        adjusted = holm(np.asarray(result.p_unadjusted))
        found.append(np.mean(adjusted[edges] <= 0.05) if result.known else 0.0)
    table.check(setting, "edges found", float(np.mean(found)), runs=20, least=least)


CERTIFIED = [
    Setting("chain", 10, 15_000, ZCDP1), Setting("chain", 10, 5_000, ZCDP1, clip_norm=1.81),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("setting", CERTIFIED, ids=str)
def test_the_certificate_for_the_table_speaks(setting, table, tools):
    """Every entry of the precision matrix has finite limits."""
    finite = [
        np.isfinite(result.precision(target="table")["conf_high"]).all()
        for result in releases(setting, 20, tools)
    ]
    table.check(setting, "finite limits", float(np.mean(finite)), runs=20, least=0.8)
