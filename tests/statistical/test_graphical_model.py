"""Level, power and coverage of partial correlations and trees, on graphs that are known.

Rows are drawn, with replacement, from a table that represents the population, so that its partial
correlations are known exactly; clipping is part of it.
"""

import itertools
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

import dpstats as dps
from dpstats.analyses.graphs.tree import spanning_tree

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
    side, pairs = round(p**0.5), list(itertools.combinations(range(p), 2))
    rng = np.random.default_rng(0)
    return {
        "empty": [], "pair": [(0, 1)],
        "chain": [(i, i + 1) for i in range(p - 1)],
        "star": [(0, i) for i in range(1, p)],
        "grid": [(i, j) for i, j in pairs if j == i + side or (j == i + 1 and j % side)],
        "random": [pair for pair in pairs if rng.random() < 1.5 / p],
    }[graph]  # fmt: skip


def rows_of(graph, p, law):
    """Rows whose partial correlations are those of the graph exactly, if the law is normal."""
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
    rows = drawn @ np.linalg.inv(np.linalg.cholesky(np.cov(drawn.T, bias=True))).T @ factor.T
    if law == "t5":
        rows *= np.sqrt(3 / np.random.default_rng(2).chisquare(5, (POPULATION, 1)))
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
        columns, codes = [dps.Boolean(name) for name in names], (states + 1) // 2
    else:
        bound, points = BOUND[setting.law], 2 * HALF + 1
        rows = rows_of(setting.graph, setting.p, setting.law) / bound * HALF
        chances = np.full(POPULATION, 1 / POPULATION)
        columns = [dps.Number(n, -bound, bound, points=points, missing=0) for n in names]
        codes = np.clip(np.rint(rows), -HALF, HALF).astype(np.int64)
    codes = dict(zip(names, codes.T, strict=True))
    edges = [(names[i], names[j]) for i, j in edges_of(setting.graph, setting.p)]
    analysis = dps.GraphicalModel(
        names, clip_norm=setting.clip_norm, separators=edges if setting.separators else None,
        structure=structure,
    )  # fmt: skip
    plan = dps.plan(
        dps.Schema(columns), {"g": analysis}, budget=setting.budget, unit=setting.unit,
        n=setting.n if setting.unit == "replace" else None, reference=dps.Uniform(),
    )  # fmt: skip
    values = [block.evaluate({c.name: codes[c.name] for c in block.columns}).array
              for block in plan.family.blocks]  # fmt: skip
    return plan, codes, chances, np.concatenate(values)


def releases(setting, runs, tools, structure="any"):
    """Results on fresh rows with fresh noise."""
    plan, _, chances, functions = world(setting, structure)

    def sums(rng):
        return np.rint(functions @ rng.multinomial(setting.n, chances)).astype(np.int64)

    for run, (_, held, _) in enumerate(tools.fresh(plan, setting.n, sums, runs, 1)):
        seen = replace(held, reference_spec={"kind": "uniform"})
        yield dps.synthesize(seen, m=2_000, k=10, rng=run).infer(plan.analyses["g"])


def truth_of(setting, result, structure="any"):
    """The (partial) correlations of the population, and which pairs are edges, both (d,)."""
    _, codes, chances, _ = world(setting, structure)
    rows = result.intervals.covariance.moments.unit_rows(codes)
    found = np.cov(rows.T, aweights=chances, bias=True)
    if structure == "any":
        found = -np.linalg.inv(found)
    root = np.sqrt(np.abs(np.diag(found)))
    pairs, edges = np.triu_indices(setting.p, 1), edges_of(setting.graph, setting.p)
    inside = np.array([tuple(pair) in edges for pair in np.transpose(pairs).tolist()])
    return (found / np.outer(root, root))[pairs], inside


def holm(result):
    """Holm's adjusted p-values, nan for pairs that are not tested; the library's takes .1 s."""
    adjusted = np.array(result.p_unadjusted)
    known = np.isfinite(adjusted)
    adjusted[known] = multipletests(adjusted[known], method="holm")[1]
    return adjusted


def holds(ends, truth):
    low, high = np.transpose(ends)
    return (low <= truth) & (truth <= high)


# The smallest number of rows at which 95% of a chain's edges were found by the prototypes.
FOUND = [
    Setting("chain", 10, 15_000, ZCDP1), Setting("chain", 30, 70_000, ZCDP1),
    Setting("chain", 10, 7_000, ZCDP1, clip_norm=1.81),
    Setting("chain", 30, 20_000, ZCDP1, clip_norm=2.57),
    Setting("chain", 10, 20_000, dps.PureDP(1), clip_norm=1.81),
    Setting("chain", 30, 150_000, dps.PureDP(1), clip_norm=2.57),
]  # fmt: skip
# Where the certificate for the table bounds every entry of the precision matrix.
BOUNDED = [FOUND[0], Setting("chain", 10, 5_000, ZCDP1, clip_norm=1.81)]


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
    Setting("pair", 3, 6_000, dps.PureDP(3)), *FOUND[1:], BOUNDED[1],
]  # fmt: skip


def many(setting):
    """More runs where one is fast."""
    return 1_000 if setting.p <= 4 else 20 if setting in SETTINGS[-6:] else 200


@pytest.mark.simulate(SETTINGS, few=(0, 1), runs=(6, many))
def test_level_and_coverage(setting, runs, table, tools):
    """Level of Holm's tests, coverage of single and of simultaneous intervals, the certificate."""
    held, jointly, widths, certified, finite, false, power = [], [], [], [], [], [], []
    for run, result in enumerate(releases(setting, runs, tools)):
        if not run:
            truth, edges = truth_of(setting, result)
            null = ~edges & result.tested & (np.abs(truth) < NULL)
        if run < max(5, runs // 4):  # certified limits take longer
            certified.append(holds(result.conf_int(method="certified"), truth).all())
        if setting in BOUNDED:
            finite.append(np.isfinite(result.precision(target="table")["conf_high"]).all())
        if result.known:
            ends = result.conf_int()
            held.append(holds(ends, truth).mean())
            widths.append(np.diff(ends).mean())
            jointly.append(holds(result.conf_int(simultaneous=True), truth).all())
            rejected = holm(result) <= 0.05
            false.append(rejected[null].any())
            power.append(rejected[edges & result.tested])
    known = len(held)
    table.row(setting, "nearly singular", 1 - known / runs, runs=runs)
    table.covers(setting, "certified, all pairs", np.sum(certified), len(certified))
    assert known, "no run has an estimate"
    if np.size(power):
        least = 0.95 if setting in FOUND else 0
        table.check(setting, "edges found", np.mean(power), runs=known, least=least)
    if finite:
        table.check(setting, "finite limits for the table", np.mean(finite), runs=runs, least=0.8)
    if null.any():
        table.level(setting, "any false edge, Holm", np.sum(false), known)
    table.covers(setting, "simultaneous", np.sum(jointly), known)
    # Pairs of one run depend on each other; in few runs all may be covered.
    spare = 4 * max(np.std(held), 0.05) / np.sqrt(known)
    table.check(
        setting, "single intervals", np.mean(held), float(np.mean(widths)), "0.93 to 0.97", known,
        least=0.93 - spare, most=0.97 + spare,
    )  # fmt: skip


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
        jointly += holds(result.conf_int(simultaneous=True), truth).all()
        verdicts = np.array(result.verdicts())
        wrong += np.any(verdicts[inside] == "impossible") or np.any(verdicts[~inside] == "sure")
        known.append(np.mean(verdicts != "undecided"))
    table.covers(setting, "simultaneous", jointly, runs)
    table.level(setting, "any wrong verdict", wrong, runs)
    table.check(setting, "pairs decided", float(np.mean(known)), runs=runs, least=decided)
