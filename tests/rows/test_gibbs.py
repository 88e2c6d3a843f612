"""Gibbs sweeps: conditionals against brute force, invariance of the model, determinism."""

import itertools

import numpy as np
from scipy import stats

import dpstats as dps
from dpstats.families.ball_moments import BallMoments
from dpstats.families.features import SIGN
from dpstats.families.group_moments import GroupMoments, PairMoments, groups_by
from dpstats.families.moments import Moments
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.cells import Cells
from dpstats.rows.gibbs import GibbsSampler, Support

U, V, W = ("u", None), ("v", None), ("w", None)
B, C, D = ("b", SIGN), ("c", SIGN), ("d", SIGN)
SCHEMA = dps.Schema([
    dps.Category("a", ["x", "y", "z"]),
    dps.Boolean("b"),
    dps.Number("u", -1, 1, points=7, missing=0, edges=[0]),
    dps.Number("v", values=[0, 1, 4], missing=0),
    dps.Number("w", 0, 1, points=3, edges=[0.5], allow_missing=True),
    dps.Boolean("c"), dps.Category("d", ["no", "yes"], allow_missing=True),
])  # fmt: skip
FAMILY = dps.Family((
    Cells.table(SCHEMA, ["a", "u"]),
    Cells.table(SCHEMA, ["a", "b", "v"]),
    Cells.condition(SCHEMA, "b and u >= 0"),
    Moments.of(SCHEMA, ["u", "v"], ["a", "b"]),
    GroupMoments.by(SCHEMA["u"], SCHEMA["a"], (0, 2)),
    GroupMoments.by(SCHEMA["v"], SCHEMA["u"], (0, 1)),
    Moments.of_terms(SCHEMA, [
        (U, U, U), (U, U, U, U), (U, U, V), (V, V, V, V), (U, V, ("a", 1)), (U, U, ("b", 0)),
        (V, ("a", 2), ("b", 1)),
    ]),
    BallMoments.of(SCHEMA, ["u", "v"], 0.7),
    Moments.of(SCHEMA, ["u", "w"], ["a"], given="b or v > 0"),
    Moments.of_terms(
        SCHEMA, [(U, U, W), (W, W, W, W)], given=Subgroup.of(SCHEMA, "u >= 0 or b", ["w"])
    ),
    GroupMoments(SCHEMA["w"], (Subgroup.of(SCHEMA, "w >= 0.5 or a == 'x'", ["w"]),)),
    GroupMoments.by(SCHEMA["w"], SCHEMA["u"], (1,)),
    PairMoments((SCHEMA["u"], SCHEMA["w"]), groups_by((SCHEMA["w"],), SCHEMA["a"], (0, 1))),
    Cells.table(SCHEMA, ["a", "w"]),
    Moments.of(SCHEMA, ["u", "v"], ["a"], signs=["b", "c"]),
    Moments.of_terms(SCHEMA, [(U, B, C), (U, U, V, C), (B, C, ("a", 1)), (V, C, ("a", 2))]),
    Moments.of(SCHEMA, ["u"], ["a"], signs=["b", "d"], given="c or u >= 0"),
    Moments.of_terms(SCHEMA, [(U, B, C, D)], given=Subgroup.of(SCHEMA, None, ["d"])),
))  # fmt: skip
EVERY = np.array(list(itertools.product(
    range(3), range(2), *(SCHEMA[name].all_codes for name in ("u", "v", "w")), range(2), range(3)
)))  # fmt: skip
CODES = dict(zip(SCHEMA.names, EVERY.T, strict=True))


def model(seed=0, size=1.0):
    """A sampler with random coefficients, and the exact probabilities of every point."""
    rng = np.random.default_rng(seed)
    coefficients = size * rng.normal(size=FAMILY.size)
    coded = FAMILY.coded_columns
    supports = {c.name: Support.of(c, c.name in coded) for c in SCHEMA}
    base = {name: rng.normal(size=len(s.codes)) for name, s in supports.items()}
    sampler = GibbsSampler(SCHEMA, FAMILY, base)
    sampler.set_coefficients(coefficients)
    logs = FAMILY.evaluate(CODES).combine(coefficients)
    for name, support in supports.items():
        logs = logs + base[name][np.searchsorted(support.codes, CODES[name])]
    chances = np.exp(logs - logs.max())
    return sampler, chances / chances.sum()


def test_the_conditionals_are_those_of_the_model_by_brute_force():
    """Every column, every point: log conditional over its states, up to a constant."""
    sampler, chances = model()
    rows = sampler.rows(CODES)
    for column in SCHEMA:
        name, support = column.name, sampler.supports[column.name]
        logs = sampler.bin_potentials(column, rows)[:, support.bins] + sampler.base[name]
        if support.coded:
            unit = column.units_of(support.codes)
            for power, value in enumerate(sampler.polynomial(column, rows), start=1):
                logs = logs + value[:, None] * unit**power
            at = np.tile(support.codes, (len(EVERY), 1))
            logs = logs + sum(ball.at(at) for ball in sampler.balls(column, rows))
            tiled = np.tile(unit, (len(EVERY), 1)), np.tile(support.bins, (len(EVERY), 1))
            logs = logs + sum(s.at(*tiled) for s in sampler.subgroups(column, rows))
        ours = np.exp(logs - logs.max(axis=1, keepdims=True))
        ours /= ours.sum(axis=1, keepdims=True)
        others = [n for n in SCHEMA.names if n != name]
        for i in range(0, len(EVERY), 83):
            same = np.all([CODES[n] == CODES[n][i] for n in others], axis=0)
            brute = chances[same] / chances[same].sum()  # in increasing order of the codes
            np.testing.assert_allclose(ours[i], brute, atol=5e-4)  # rows in a ball are rounded


def test_sweeps_leave_the_model_invariant():
    """20,000 exact draws, three sweeps: still the model (chi-square at 1e-6), and they moved."""
    sampler, chances = model(1, size=0.7)
    rng = np.random.default_rng(2)
    start = rng.choice(len(EVERY), 20_000, p=chances)
    points = {name: codes[start] for name, codes in CODES.items()}
    for _ in range(3):
        points = sampler.sweep(points, rng)
    codes = [(np.unique(CODES[name]), points[name]) for name in SCHEMA.names]
    states = [np.searchsorted(grid, drawn) for grid, drawn in codes]
    place = np.ravel_multi_index(states, [len(grid) for grid, _ in codes])
    counts, expected = np.bincount(place, minlength=len(EVERY)), 20_000 * chances
    rare = expected < 5
    found, wanted = (np.append(c[~rare], c[rare].sum()) for c in (counts, expected))
    assert stats.chisquare(found, wanted).pvalue > 1e-6
    assert np.mean([np.mean(points[n] != CODES[n][start]) for n in SCHEMA.names]) > 0.2


def test_a_fine_grid_follows_its_truncated_normal():
    """exp(-a (u - 0.3)^2) on [-1, 1], from a uniform start, by its distribution function."""
    schema = dps.Schema([dps.Number("u", -1, 1, points=2**16 + 1, missing=0)])
    family = dps.Family((Moments.of(schema, ["u"]),))
    grid = schema["u"].codes_in_use
    sampler = GibbsSampler(schema, family, {"u": np.zeros(len(grid))})
    sampler.set_coefficients(np.array([6.0, -10.0]))
    rng = np.random.default_rng(5)
    drawn = sampler.sweep(sampler.draw_base(20_000, rng), rng)  # one column is drawn at once
    unit = grid / schema["u"].half_points
    exact = np.exp(6 * unit - 10 * unit**2).cumsum()
    empirical = np.searchsorted(np.sort(drawn["u"]), grid, side="right") / 20_000
    # Kolmogorov at 0.001, seeded
    assert np.abs(empirical - exact / exact[-1]).max() < 1.95 / np.sqrt(20_000)
