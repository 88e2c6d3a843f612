"""The penalty that Stein's rule chooses, against the best along a path and against other fits.

Five families, noise of standard deviation .001 to .3 on every mean, Laplace and Gaussian; uniform
candidates with one penalty, and the log-linear reference: edited rows where all functions are cells
of small tables, else exchanged ones. Squared errors are those of the fitted
means about the private ones, per function and in noise variances: the noisy answers themselves have
1. The best is chosen in hindsight, in every run anew.
"""

import itertools
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells, tables_of_degree
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import PlannedBlock, Strategy
from dpstats.rows import loglinear
from dpstats.rows.candidates import seen_by
from dpstats.rows.entropy import _Dual, fit_entropy, usable_deviations
from dpstats.rows.exchanging import exchanged
from dpstats.rows.gibbs import GibbsSampler
from dpstats.rows.loglinear import LogLinear
from dpstats.rows.loglinear_fit import fit_loglinear
from dpstats.rows.minimax import feasible, minimax_highs
from dpstats.rows.uniform import Uniform

N = 4000
NOISES = ("laplace", "gaussian")
REFERENCES = ("uniform", "log-linear")
DEVIATIONS = (0.001, 0.01, 0.1, 0.3)
CANDIDATES = 5000
SHARES = (0, 0.25, 0.5, 1, 2)  # of the residuals that a penalty leaves


def categories(sizes):
    return [dps.Category(f"c{i}", list(range(size))) for i, size in enumerate(sizes)]


def numbers(p):
    return [dps.Number(f"x{i}", -1, 1, points=33, missing=0) for i in range(p)]


def category_codes(sizes, rng, tools):
    return {f"c{i}": codes for i, codes in enumerate(tools.latent_codes(sizes, N, rng))}


def number_codes(p, rng):
    """Two factors, noise, and means away from zero."""
    values = 3 * rng.normal(size=(N, 2)) @ rng.normal(size=(2, p)) + rng.normal(0, 3, p)
    codes = np.clip(np.rint(values + 2.5 * rng.normal(size=(N, p))), -16, 16).astype(np.int64)
    return {f"x{i}": column for i, column in enumerate(codes.T)}


def one_table(rng, tools):
    schema = dps.Schema(categories([5, 6]))
    return schema, [Cells.table(schema, ["c0", "c1"])], category_codes([5, 6], rng, tools)


def overlapping_tables(rng, tools):
    sizes = [2, 3, 4, 5]
    schema = dps.Schema(categories(sizes))
    return schema, tables_of_degree(schema, schema.names, 2), category_codes(sizes, rng, tools)


def conditions(rng, tools):
    sizes = [2, 2, 3, 4, 5]
    schema = dps.Schema(categories(sizes))
    texts = (
        "c0 == 1", "c1 == 1", "c2 == 0", "c0 == 1 and c1 == 1", "c2 == 2 or c3 == 0",
        "c3 in [1, 2]", "c4 == 0 and c0 == 0", "c4 in [2, 3] and c2 == 1", "c4 == 4",
        "c1 == 0 and c3 == 3 and c4 == 1",
    )  # fmt: skip
    blocks = [Cells.condition(schema, text) for text in texts]
    return schema, blocks, category_codes(sizes, rng, tools)


def three_numbers(rng, tools):
    schema = dps.Schema(numbers(3))
    return schema, [Moments.of(schema, schema.names)], number_codes(3, rng)


def mixed(rng, tools):
    sizes = [2, 3, 4]
    schema = dps.Schema([*categories(sizes), *numbers(2)])
    codes = category_codes(sizes, rng, tools) | number_codes(2, rng)
    codes["x0"] = np.clip(codes["x0"] + 3 * codes["c0"] - 2 * codes["c2"], -16, 16)
    blocks = [
        *tables_of_degree(schema, ["c0", "c1", "c2"], 2),
        Moments.of(schema, ["x0", "x1"], groups=["c0"]),
        Cells.condition(schema, "c0 == 1 and c1 == 1 and c2 == 3"),
    ]
    return schema, blocks, codes


FAMILIES = {
    "one table": one_table,
    "overlapping tables": overlapping_tables,
    "conditions": conditions,
    "moments of 3 numbers": three_numbers,
    "mixed": mixed,
}


class Problem:
    """Noisy answers, all of one standard deviation, and the truth behind them."""

    def __init__(self, family, noise, deviation, seed, tools, candidates=CANDIDATES):
        self.candidates = candidates
        self.rng = np.random.default_rng(seed)
        schema, blocks, codes = FAMILIES[family](self.rng, tools)
        if noise == "laplace":
            budget, source = dps.PureDP(1), tools.Laplace(seed + 1000)
            multiplier = Fraction(N * deviation / np.sqrt(2))
        else:
            budget, source = dps.ZCDP(1), tools.Gaussian(seed + 1000)
            multiplier = Fraction((N * deviation) ** 2)
        planned = tuple(PlannedBlock(block, multiplier) for block in blocks)
        strategy = Strategy(schema, planned, budget, n=N)
        sums = np.concatenate(strategy.family.sums(codes))
        drawn = np.concatenate([source(float(scale), 1) for scale in strategy.scales])
        self.measurements = Measurements(
            strategy, sums + drawn, np.zeros(len(sums)),
            reference_spec={"kind": "uniform"}, not_private=True,
        )  # fmt: skip
        self.family = self.measurements.family
        self.truth = sums / (N * self.family.bounds)
        self.means = self.measurements.means
        self.deviations = self.measurements.standard_deviations

    def error(self, means):
        """Squared error per function, in noise variances."""
        return float(np.mean(((means - self.truth) / self.deviations) ** 2))

    def distance(self, means):
        """Mean absolute error, in noise standard deviations."""
        return float(np.mean(np.abs(means - self.truth) / self.deviations))

    def fit(self, reference):
        """Fitted means, the errors along a path of penalties, and what the candidates allow."""
        return self.uniform() if reference == "uniform" else self.log_linear()

    def uniform(self):
        schema, m = self.measurements.columns, self.candidates
        candidates = Uniform().draw_candidates(m, schema, None, self.rng, stratified=True)
        seen = seen_by(self.family, candidates)
        problem = seen.values, seen.reference, self.means, self.deviations
        fit = fit_entropy(*problem)
        dual, y, path = _Dual(*problem), np.zeros(len(self.means)), []
        for power in range(5, -10, -1):  # far above and below where the rule looks
            point = dual.minimise(y, 4.0**power / float(np.median(self.deviations)))
            path.append(self.error(point.fitted * self.deviations))
            y = point.y
        path.append(self.error(seen.values.average(seen.reference)))  # no fit at all
        return seen, seen.values.average(fit.density), path

    def log_linear(self):
        """The path: no fit, and the model's rows exchanged towards other parts of its residuals."""
        m, measurements = self.candidates, self.measurements
        proposal = LogLinear().candidates(measurements, m, self.rng, stratified=True)
        assert proposal.notes == ()
        fitted = self.family.evaluate(proposal.candidates.codes).average(proposal.density)
        sampler = GibbsSampler(measurements.columns, self.family, loglinear._base(measurements))
        even = np.full(m, 1 / m)
        base = self.family.evaluate(sampler.draw_base(m, self.rng))
        path = [self.error(base.average(even))]
        model = fit_loglinear(sampler, self.means, usable_deviations(measurements), m, self.rng)
        for share in SHARES:
            wanted = model.target - share * model.penalty * model.dual
            rows = exchanged(model, wanted, self.rng)
            path.append(self.error(self.family.evaluate(rows).average(even)))
        return seen_by(self.family, proposal.candidates), fitted, path


def simulate(family, noise, deviation, reference, runs, programs, tools, candidates=CANDIDATES):
    """Averages over runs; the linear program is solved in the first few of them."""
    found = {key: [] for key in ("chosen", "best", "unfitted", "fit", "answers", "minimax")}
    for seed in range(runs):
        problem = Problem(family, noise, deviation, seed, tools, candidates)
        seen, fitted, path = problem.fit(reference)
        found["chosen"].append(problem.error(fitted))
        found["best"].append(min(path))
        found["unfitted"].append(path[-1] if reference == "uniform" else path[0])
        found["fit"].append(problem.distance(fitted))
        found["answers"].append(problem.distance(problem.means))
        if seed < programs:
            target = feasible(problem.family, problem.means)
            density, _ = minimax_highs(seen.values.matrix(), target)
            found["minimax"].append(problem.distance(seen.values.average(density)))
    functions = problem.family.size
    return SimpleNamespace(
        functions=functions, **{key: float(np.mean(values)) for key, values in found.items()}
    )


def excess(cell):
    """Squared error beyond the best in hindsight, of all functions, in noise variances."""
    return cell.functions * (cell.chosen - cell.best)


# Squared error, in noise variances, that choosing may add to the best: a part of it, and a few.
PART, FEW = 0.15, 3.5


def allowed(best, functions, few=FEW):
    return (1 + PART) * functions * best + few


def check(cells, runs, table, log_linear=FEW):
    """Cells by (reference, family, deviation, noise): print, and compare with what is allowed."""
    for (reference, family, deviation, noise), cell in cells.items():
        table.row(
            f"{reference}, {family} ({cell.functions}), sd {deviation}, {noise}",
            f"chosen {cell.chosen:.3f}, best {cell.best:.3f}, no fit {cell.unfitted:.3g}",
            f"{excess(cell):.1f} beyond",
            f"fit {cell.fit:.2f}",
            f"answers {cell.answers:.2f}, minimax {cell.minimax:.2f}",
            runs,
        )
    for (reference, *setting), cell in cells.items():
        total = cell.functions * cell.chosen
        few = FEW if reference == "uniform" else log_linear
        assert total <= allowed(cell.best, cell.functions, few), (reference, *setting)
    for reference in REFERENCES:
        ours = [cell for key, cell in cells.items() if key[0] == reference]
        mean = {key: np.mean([vars(cell)[key] for cell in ours]) for key in ("chosen", "fit")}
        assert mean["chosen"] < 0.75  # the answers have 1
        assert mean["fit"] < 0.85 * np.mean([cell.answers for cell in ours])
        assert mean["fit"] < 0.85 * np.mean([cell.minimax for cell in ours])


def test_the_chosen_penalty_is_nearly_the_best(table, tools):
    """A run a cell, an eighth of the cells: Laplace noise at .01 and Gaussian at .3 in turn."""
    noises = itertools.cycle([(0.01, "laplace"), (0.3, "gaussian")])
    cells = {
        (reference, family, deviation, noise): simulate(
            family, noise, deviation, reference, 1, 1, tools, candidates=2000
        )
        for (reference, family), (deviation, noise) in zip(
            itertools.product(REFERENCES, FAMILIES), noises, strict=False
        )
    }
    check(cells, 1, table, log_linear=2 * FEW)  # one run varies more


@pytest.mark.slow
def test_the_chosen_penalty_is_nearly_the_best_everywhere(table, tools):
    """Twenty runs a cell, four of them with the linear program; about four minutes.

    Edited rows add a little to one table with little noise: 3.57 beyond in one cell of forty.
    """
    cells = {
        setting: simulate(
            setting[1], setting[3], setting[2], setting[0], 20, 4, tools
        )
        for setting in itertools.product(REFERENCES, FAMILIES, DEVIATIONS, NOISES)
    }  # fmt: skip
    check(cells, 20, table, log_linear=1.2 * FEW)
