"""Sums over groups of rows: exact identities, and bounds against the enumeration of all tables."""

import functools
import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa

import dpstats as dps
from dpstats.analyses.questions import question_of_conditions
from dpstats.bounds.consistent import States, codes_of, merged_levels
from dpstats.bounds.group_totals import sums_that_follow
from dpstats.measured.combining import Sources
from dpstats.privacy.noise import _noise_from

SCHEMA = dps.Schema(
    [
        dps.Category("w", ["a", "b", "c"]),
        dps.Category("v", ["p", "q"], allow_missing=True),
        dps.Number("x", 0, 4, points=5, edges=[2], missing=1),
        dps.Number("y", 0, 3, points=4, edges=[1, 2], allow_missing=True),
        dps.Boolean("z"),
    ]
)
PLANS = {
    "two of three groups": dps.GroupMeans("x", by="w", groups=("a", "b")),
    "rows without either": dps.GroupMeans("y", by="v", given="z"),
    "one group": dps.Mean("y", given="w == 'a'"),
    "products with levels, within": dps.OLS("x ~ y + C(w)", given="z"),
    "offsets in bins": dps.Logistic("z ~ y + C(w)"),
}
ASKED = {
    "mean of x": lambda s: dps.Mean("x").asked(s).questions[0],
    "mean of y": lambda s: dps.Mean("y").asked(s).questions[0],
    "x in two groups": lambda s: dps.Mean("x", given="w != 'c'").asked(s).questions[0],
    "share of large x": lambda s: question_of_conditions(s, "x >= 2", given="z"),
}
UNITS = ["replace", "add_remove"]
CHOICES = [columns for k in (1, 2, 3) for columns in itertools.combinations(SCHEMA, k)]


def rows_of(rng, n):
    return pd.DataFrame(
        {
            "w": rng.choice(["a", "b", "c"], n),
            "v": rng.choice(["p", "q", None], n),
            "x": rng.integers(0, 5, n).astype(float),
            "y": rng.choice([0.0, 1, 2, 3, np.nan], n),
            "z": rng.random(n) < 0.5,
        }
    )


def codes_in(schema, rows):
    return schema.encode(pa.RecordBatch.from_pandas(rows, preserve_index=False))


def without_noise(scale, size):
    return np.zeros(size, dtype=np.int64)


def test_what_follows_is_the_sum_of_its_function_and_depends_on_nothing_else():
    rows = rows_of(np.random.default_rng(5), 60)
    codes = codes_in(SCHEMA, rows)
    units = ["replace"] * len(PLANS) + ["add_remove"]
    for unit, asked in zip(units, [*PLANS.values(), PLANS["one group"]], strict=True):
        plan = dps.plan(SCHEMA, {"asked": asked}, budget=dps.PureDP(10_000), unit=unit)
        with _noise_from(without_noise):
            sources = Sources(dps.measure(plan, rows))
        answering, seen = sources.measurements.published.answering, 0
        for ask, columns in itertools.product(ASKED.values(), CHOICES):
            question = ask(SCHEMA)
            if not set(question.columns) <= set(columns):
                continue
            merged = merged_levels(sources, question, answering, columns)
            for one in sums_that_follow(sources, merged):
                exact = one.block.sums(codes) if one.block.columns else [len(rows)]
                for own, value in zip(one.members, exact, strict=True):
                    assert sources.sums[own] @ one.signs == one.unit * value, one.block.names
                assert depends_on_merged(one.block, columns, merged), one.block.names
                seen += 1
        assert seen > 2


def depends_on_merged(block, columns, merged):
    """Whether functions have one value wherever codes of numbers, and merged levels, are equal."""
    if not block.columns:
        return True
    points = States(columns, tuple(codes_of(c, c in block.coded) for c in columns)).points()
    alike = [
        points[c.name] if c in block.coded else merged[c][c.bins_of(points[c.name])]
        for c in columns
    ]
    _, which = np.unique(np.stack(alike), axis=1, return_inverse=True)
    values = block.evaluate(points).matrix().toarray()
    return set(block.columns) <= set(columns) and all(
        np.ptp(values[:, which.ravel() == state], axis=1).max() == 0
        for state in range(which.max() + 1)
    )


SMALL = dps.Schema(
    [
        dps.Category("w", ["a", "b", "c"]),
        dps.Number("x", 0, 2, points=3, allow_missing=True),
    ]
)
FULL = dps.Schema([dps.Category("w", ["a", "b", "c"]), dps.Number("x", 0, 2, points=3, missing=0)])
ROWS = 4
SMALL_PLANS = {
    "all groups": (FULL, dps.GroupMeans("x", by="w")),
    "two groups": (FULL, dps.GroupMeans("x", by="w", groups=("a", "c"))),
    "all groups, missing": (SMALL, dps.GroupMeans("x", by="w")),
    "two groups, missing": (SMALL, dps.GroupMeans("x", by="w", groups=("a", "c"))),
}
SMALL_ASKED = [
    dps.Mean("x"), dps.Mean("x", given="w != 'b'"), dps.Proportion("w == 'a'"),
    dps.Proportion("w == 'b'"),
]  # fmt: skip


def cells_of(schema):
    """The states of a row."""
    values = [0.0, 1, 2] + ([np.nan] if schema["x"].allow_missing else [])
    return list(itertools.product("abc", values))


def table_of(schema, chosen):
    return pd.DataFrame(chosen, columns=["w", "x"]).astype({"x": float})


@functools.cache
def every_table(schema):
    """All tables of ROWS rows, their counts of the states, and the values of all questions."""
    cells = cells_of(schema)
    chosen = list(itertools.combinations_with_replacement(range(len(cells)), ROWS))
    counts = np.array([np.bincount(own, minlength=len(cells)) for own in chosen])
    tables = [[cells[i] for i in own] for own in chosen]
    return tables, counts, np.stack([values_of(schema, counts, q) for q in SMALL_ASKED], axis=1)


def values_of(schema, counts, asked):
    """What a question asks of tables (tables, states), nan where there is no such row."""
    rows = table_of(schema, cells_of(schema))
    if isinstance(asked, dps.Proportion):
        return counts @ rows.eval(asked.condition) / ROWS
    asked_of = rows["x"].notna() & (True if asked.given is None else rows.eval(asked.given))
    size = counts @ asked_of
    return np.divide(counts @ rows["x"].where(asked_of, 0), size, np.full(len(counts), np.nan),
                     where=size > 0)  # fmt: skip


def values_in(block, schema):
    """Values (d, states) of functions, as sums over one row."""
    if not block.columns:
        return np.ones((1, len(cells_of(schema))))
    rows = (codes_in(schema, table_of(schema, [cell])) for cell in cells_of(schema))
    return np.stack([block.sums(row) for row in rows], axis=1)


def test_without_noise_the_bounds_hold_all_tables_with_the_same_sums():
    for name, unit in zip(SMALL_PLANS, 2 * UNITS, strict=True):
        schema, analysis = SMALL_PLANS[name]
        plan = dps.plan(schema, {"g": analysis}, budget=dps.PureDP(10_000), unit=unit)
        (block,) = plan.family.blocks
        tables, counts, values = every_table(schema)
        _, alike = np.unique(counts @ values_in(block, schema).T, axis=0, return_inverse=True)
        exact, asked_of = 0, 0
        for group in np.random.default_rng(7).permutation(alike.max() + 1)[:2]:
            own = np.flatnonzero(alike.ravel() == group)
            with _noise_from(without_noise):
                release = dps.release(plan, table_of(schema, tables[own[0]]), m=20, rng=1)
            for number, asked in enumerate(SMALL_ASKED):
                held = values[own, number][~np.isnan(values[own, number])]
                if not len(held):
                    continue
                found = release.bound(asked)
                low, high = found.low[0], found.high[0]
                assert low <= held.min() + 1e-6, asked
                assert high >= held.max() - 1e-6, asked
                asked_of += 1
                exact += low >= held.min() - 1e-4 and high <= held.max() + 1e-4
        assert exact > asked_of / 2  # a program has tables with fractions of rows too


def test_the_ends_of_a_sum_have_the_law_of_the_noise_of_all_its_members():
    """A level of .7 in 50 runs, seeded: 25 to 45; the noise of one member of 16 gives 15."""
    question, rows = ASKED["mean of x"](SCHEMA), rows_of(np.random.default_rng(4), 300)
    codes, asked = codes_in(SCHEMA, rows), {"g": dps.GroupMeans("x", by="w")}
    for unit, budget in zip(UNITS, (dps.PureDP(1), dps.ZCDP(0.05)), strict=True):
        plan, hits = dps.plan(SCHEMA, asked, budget=budget, unit=unit), Counter()
        for _ in range(50):
            sources = Sources(dps.measure(plan, rows))
            answering = sources.measurements.published.answering
            merged = merged_levels(sources, question, answering, question.columns)
            for one in sums_that_follow(sources, merged):
                low, high = one.ends(sources, 0.3)
                truth = one.block.sums(codes) if one.block.columns else len(rows)
                hits[one.block.names[0]] += bool(low <= truth <= high)
        assert len(hits) == (2 if unit == "replace" else 3)
        assert min(hits.values()) >= 25
        assert hits["x"] <= 45  # rounding to whole numbers, and noise of few values, cover more


def test_a_measured_function_keeps_its_certificate_beside_ones_that_were_not():
    plan = dps.plan(FULL, {"x": dps.Mean("x")}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"w": ["a", "b"] * 100, "x": [0.0, 1.0] * 100})
    release = dps.release(plan, rows, m=20, rng=1)
    low, high = release.accuracy().joint_ends
    found = release.bound(dps.Moments.of(FULL, ["x"], ["w"]))
    for name, least, most in zip(release.accuracy().names, low, high, strict=True):
        at = found.terms.index(name)
        assert found.known_from[at] == "its own noise"
        assert least - 1e-12 <= found.low[at] <= found.high[at] <= most + 1e-12
