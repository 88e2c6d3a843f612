"""Answers under impossible cells and public totals: least variance, by brute force."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.families.tables.cells import ROWS
from dpstats.measured import combining
from dpstats.measured.answers import answer
from dpstats.measured.certificate import certify
from dpstats.measured.combining import Sources
from dpstats.schema.possible import allowed_by
from dpstats.schema.repairs import compile_rules
from dpstats.schema.totals import compile_totals

AGE = dps.Number("age", 0, 99, points=100, edges=[15, 65])
MARITAL = dps.Category("marital", ["never", "married", "widowed"])
TOWN, AREA = dps.Category("town", ["a", "b", "c"]), dps.Category("area", ["n", "s"])
SEX = dps.Category("sex", ["f", "m"])
RULES = [
    dps.Never("age < 15 and marital != 'never'", set={"marital": "never"}),
    dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"}),
]
COLUMNS = [AGE, MARITAL, TOWN, AREA, SEX]
ASKED = {
    "a": dps.Marginals(["age", "marital"]), "b": dps.Marginals(["marital", "sex"]),
    "c": dps.Marginals(["sex", "town"]), "d": dps.Proportion("sex == 'm' and age < 65"),
    "e": dps.Proportion("marital == 'widowed' and sex == 'f'"),
}  # fmt: skip
WANTED = [("age", "marital"), ("marital", "sex"), ("sex", "town"), ("age",), ("sex",),
          ("town", "area"), ("sex", "area"), ("area",)]  # fmt: skip


RNG = np.random.default_rng(1)
ROWS_OF_TABLE = pd.DataFrame({
    "age": RNG.integers(0, 99, 2_000), "marital": RNG.choice(MARITAL.levels, 2_000),
    "town": RNG.choice(TOWN.levels, 2_000), "sex": RNG.choice(SEX.levels, 2_000),
})  # fmt: skip
ROWS_OF_TABLE.loc[ROWS_OF_TABLE.age < 15, "marital"] = "never"
ROWS_OF_TABLE["area"] = ROWS_OF_TABLE.town.map({"a": "n", "b": "n", "c": "s"})
TOTALS = [
    dps.Total("sex == 'f'", int((ROWS_OF_TABLE.sex == "f").sum()), of="table"),
    dps.Total("age < 15", int((ROWS_OF_TABLE.age < 15).sum()), of="table"),
    dps.Total("marital == 'widowed'", 9 * 10**6, of="population"),
]
SCHEMA = dps.Schema(COLUMNS, rules=RULES, totals=TOTALS)
GRID = np.array(list(itertools.product(*(range(column.bins) for column in COLUMNS))))
CODES = {
    column.name: column.bin_codes[0][GRID[:, i]] if column is AGE else GRID[:, i]
    for i, column in enumerate(COLUMNS)
}


def values(block):
    """Values (d, m) of the functions of a block in all combinations of bins."""
    return np.ones((1, len(GRID))) if block == ROWS else block.functions(CODES)


def least_variances(sources, wanted):
    """Of each block the least variance (d,) of unbiased w'y + l: minimise w'Vw with w'A + l'C = f.

    A are the measured functions and C the known ones, in the combinations that can occur; None
    where there is no such w.
    """
    allowed = np.ones(len(GRID), bool)
    known = [] if sources.n is None else [np.ones(len(GRID))]
    if sources.constraints != "none":
        allowed = allowed_by(compile_rules(SCHEMA), CODES)
    if sources.constraints == "totals":
        known += [total.counts(CODES).astype(float) for total in compile_totals(SCHEMA)]
    known = np.array(known).reshape(-1, len(GRID))[:, allowed]
    measured = np.vstack([values(noisy.block) for noisy in sources.blocks])[:, allowed]
    functions, d = [values(block)[:, allowed] for block in wanted], len(sources.variances)
    blank = np.zeros((len(known), d + len(known)))
    system = np.block([
        [np.diag(sources.variances), blank.T[:d], measured],
        [blank, known],
        [measured.T, known.T, np.zeros([measured.shape[1]] * 2)],
    ])  # fmt: skip
    stacked = np.vstack(functions)
    right = np.vstack([np.zeros((d + len(known), len(stacked))), stacked.T])
    solution = np.linalg.lstsq(system, right, rcond=1e-11)[0]
    solved = np.abs(system @ solution - right).max(axis=0) <= 1e-6
    least = np.where(solved, (solution[:d].T ** 2) @ sources.variances, np.nan)
    of_blocks = np.split(least, np.cumsum([len(function) for function in functions])[:-1])
    return [None if np.isnan(own).any() else own for own in of_blocks]


ALONE = ASKED | {"f": dps.Marginals(["sex", "area"])}, dps.PureDP(1)
RESIDUALS = {"t": dps.Marginals(["age", "marital", "sex", "town"])}, dps.ZCDP(0.1)
OF_A_TABLE = dps.Proportion("not (sex == 'f' and town == 'a')")  # of its cells all but one
CONDITIONS = ["sex == 'm' and age < 65", "not (sex == 'm' and age < 65)", "marital == 'widowed'",
              "sex == 'f' and marital != 'widowed'"]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "budget", "unit", "weights"),
    [*((*case, unit, None) for case in (ALONE, RESIDUALS) for unit in ("replace", "add_remove")),
     (ALONE[0] | {"g": OF_A_TABLE}, ALONE[1], "add_remove", "equal")],
)  # fmt: skip
def test_answers_have_the_least_variance(asked, budget, unit, weights):
    """Of cells; of conditions too, which with equal weights are measured with all other rows."""
    plan = dps.plan(SCHEMA, asked, budget=budget, unit=unit, weights=weights)
    kinds = [planned.block.kind for planned in plan.strategy.measured]
    assert ("partition" in kinds) == (weights == "equal")
    assert bool(plan.strategy.tables) == (asked is RESIDUALS[0])
    measurements = dps.measure(plan, ROWS_OF_TABLE)
    blocks = [dps.Cells.table(SCHEMA, names) for names in WANTED]
    if weights == "equal":
        blocks += [dps.Cells.condition(SCHEMA, text) for text in CONDITIONS]
    every = {known: Sources(measurements, known) for known in ("none", "rules", "totals")}
    wanted = {known: least_variances(sources, blocks) for known, sources in every.items()}
    if unit == "add_remove":  # the number of rows follows from tables, whatever is known
        ((least,),) = least_variances(every["none"], [ROWS])
        assert every["none"].rows.law.variance == pytest.approx(least)
    for (known, sources), (i, block) in itertools.product(every.items(), enumerate(blocks)):
        least = wanted[known][i]
        try:
            answers = answer(sources, block)
        except dps.NotMeasuredError:
            assert least is None
            continue
        found = np.array([law.variance for law in answers.law_table])[answers.law_of]
        if unit == "add_remove" and known == "totals" and least[~answers.impossible].min() < 1e-6:
            # A ratio of a known count to a noisy one has no law to invert: totals are left out.
            least = wanted["rules"][i]
        np.testing.assert_allclose(found, least, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(answers.weights**2 @ sources.variances, found, atol=1e-9)


@pytest.mark.parametrize(("asked", "budget"), [ALONE, RESIDUALS])
def test_estimates_move_with_the_noise_as_their_weights_say(asked, budget):
    """Then they are unbiased, and their laws are those of the combination."""
    plan = dps.plan(SCHEMA, asked, budget=budget)
    measurements = dps.measure(plan, ROWS_OF_TABLE)
    codes = SCHEMA.encode(pa.RecordBatch.from_pandas(ROWS_OF_TABLE[list(SCHEMA.names)]))
    truth = np.concatenate([noisy.block.sums(codes) for noisy in measurements.sources])
    sources = Sources(measurements, "totals")
    for names in WANTED:
        block = dps.Cells.table(SCHEMA, names)
        for disjoint in (False, True):
            answers = answer(sources, block, disjoint=disjoint)
            moved = answers.weights @ (sources.sums - truth)
            np.testing.assert_allclose(answers.sums, block.sums(codes) + moved, atol=1e-6)


def test_impossible_cells_are_zero_without_noise():
    plan = dps.plan(SCHEMA, {"a": ASKED["a"], "c": ASKED["c"]}, budget=dps.PureDP(0.1))
    release = dps.release(plan, ROWS_OF_TABLE)
    result = release.infer("a")
    assert result.params["age=[0, 15), marital=married"] == 0
    for options in ({}, {"method": "certified"}, {"target": "table"}):
        np.testing.assert_array_equal(result.conf_int(**options)[1], [0, 0])
    assert any("2 of 9 cannot occur" in note for note in result.notes)
    share = release.infer(dps.Proportion("town == 'a' and area == 's'"))
    assert (share.params[0], *share.conf_int()) == (0, 0, 0)
    assert share.test(0.1).pvalue < 1e-6
    # What holds always is every row.
    schema = dps.Schema([AGE, MARITAL], rules=RULES[:1])
    asked = {"a": dps.Proportion("age < 15 and marital != 'never'")}
    for unit in ("replace", "add_remove"):
        plan = dps.plan(schema, asked, budget=dps.PureDP(0.1), unit=unit)
        always = dps.Proportion("age >= 15 or marital == 'never'")
        share = dps.release(plan, ROWS_OF_TABLE).infer(always)
        rows = share.rows  # a share is over their whole number, of which some are estimated
        assert share.params[0] == pytest.approx(rows.estimate / rows.value)
        assert abs(rows.estimate - rows.value) <= 0.5
        assert share.conf_int()[1] == 1


def test_a_public_total_is_its_own_answer():
    plan = dps.plan(SCHEMA, {"b": ASKED["b"]}, budget=dps.PureDP(0.1))
    release = dps.release(plan, ROWS_OF_TABLE)
    share = release.infer(dps.Proportion("sex == 'f'"))
    count = TOTALS[0].count
    assert share.params[0] == pytest.approx(count / 2_000, abs=1e-12)
    np.testing.assert_allclose(share.conf_int(target="table"), [count / 2_000] * 2)
    certified = share.conf_int(method="certified", target="table")
    assert certified[1] - certified[0] > 0.01  # it does not rest on the total
    for totals in (True, False):
        bounds = release.bound("sex == 'f'", totals=totals, alpha=1e-6)
        assert bounds.low[0] - 1e-9 <= count / 2_000 <= bounds.high[0] + 1e-9
        assert (bounds.width[0] < 1e-9) == totals
    wrong = dps.Schema(COLUMNS, rules=RULES, totals=[dps.Total("sex == 'f'", 400, of="table")])
    plan = dps.plan(wrong, {"b": ASKED["b"]}, budget=dps.PureDP(1))
    release = dps.release(plan, ROWS_OF_TABLE)
    assert "contradict a public total: if it is right that 400" in str(release)


def with_schema(measurements, schema):
    return replace(measurements, strategy=replace(measurements.strategy, schema=schema))


@pytest.mark.parametrize(("asked", "budget"), [(RESIDUALS[0], dps.PureDP(1)), RESIDUALS])
def test_certificates_use_neither_rules_nor_totals(asked, budget):
    measurements = dps.measure(dps.plan(SCHEMA, asked, budget=budget), ROWS_OF_TABLE)
    synthetic = np.zeros(measurements.published.size)
    ends = [
        certify(held, synthetic, alpha=0.05, target="").joint_ends
        for held in (measurements, with_schema(measurements, dps.Schema(COLUMNS)))
    ]
    np.testing.assert_array_equal(*ends)


def test_bounds_are_over_the_rows_that_rules_allow():
    """Whoever is married is 15 or older, so that shares of one column bound those of both."""
    asked = {"a": dps.Marginals(["age"], degree=1), "m": dps.Marginals(["marital"], degree=1)}
    married = (ROWS_OF_TABLE.marital == "married").mean()
    low, without = (
        dps.release(dps.plan(schema, asked, budget=dps.PureDP(100)), ROWS_OF_TABLE)
        .bound("marital == 'married' and age >= 15").low[0]
        for schema in (SCHEMA, dps.Schema(COLUMNS))
    )  # fmt: skip
    assert low == pytest.approx(married, abs=0.01)
    assert without < married - 0.1


def with_and_without_total(columns, total, asked, analysis, **options):
    """Results of answers with the same noise, under a total that is wrong and under none."""
    plan = dps.plan(dps.Schema(columns, totals=[total]), asked, **options)
    rows = ROWS_OF_TABLE.assign(x=ROWS_OF_TABLE.age / 20 + 5)
    measurements = dps.measure(plan, rows)
    both = measurements, with_schema(measurements, dps.Schema(columns))
    return [dps.synthesize(held, rng=0).infer(analysis) for held in both]


def test_certified_intervals_rest_on_no_total():
    columns = [SEX, MARITAL, TOWN, dps.Number("x", 0, 10, missing=5)]
    wrong = dps.Total("sex == 'f'", 600, of="table")
    of_table = {"method": "certified", "target": "table"}
    for asked, analysis, unit in [
        ({"m": dps.Mean("x"), "s": dps.Marginals(["sex"], 1)}, dps.Mean("x"), "replace"),
        ({"t": dps.Marginals(["sex", "marital", "town"])},
         dps.Difference("marital == 'never'", by="sex"), "add_remove"),
    ]:  # fmt: skip
        options = {"budget": dps.ZCDP(0.5), "unit": unit}
        results = with_and_without_total(columns, wrong, asked, analysis, **options)
        np.testing.assert_allclose(*(one.conf_int(**of_table) for one in results), rtol=1e-9)


def test_a_certified_band_rests_on_no_total():
    """Nor does the distance that it bounds; the noise-aware band does.

    Its half-width is simulated, here from equal draws.
    """
    wrong, median = dps.Total("age < 65", 900, of="table"), dps.Quantile("age")
    found, without = with_and_without_total(
        COLUMNS, wrong, {"q": median}, median, budget=dps.PureDP(1)
    )
    ends, ages = ["low", "high", "band_low", "band_high"], ROWS_OF_TABLE.age
    for target in ("table", "population"):
        bands, distances = [], []
        for one in (found, without):
            rng = np.random.default_rng(0)
            certified = one.distribution(method="certified", target=target, rng=rng)
            bands.append(certified[ends])
            distances.append(one.wasserstein(ages, target=target, rng=np.random.default_rng(0)))
        np.testing.assert_allclose(*bands, rtol=1e-9)
        np.testing.assert_allclose(*distances, rtol=1e-9)
    assert np.all(np.abs(found.distribution()["estimate"] - without.distribution()["estimate"]) > 0)


def test_beyond_the_linked_cells_only_the_nearest_are_used(monkeypatch):
    plan = dps.plan(SCHEMA, ASKED, budget=dps.PureDP(1))
    measurements = dps.measure(plan, ROWS_OF_TABLE)
    block = dps.Cells.table(SCHEMA, ["marital", "sex"])
    best = answer(Sources(measurements, "totals"), block)
    assert not any("more than" in note for note in best.constraint_notes)
    monkeypatch.setattr(combining, "MOST_LINKED", 8)
    sources = Sources(measurements, "totals")
    near, plain = answer(sources, block), answer(Sources(measurements, "none"), block)
    assert np.all(best.noise_variances < near.noise_variances * (1 - 1e-6))
    assert np.all(near.noise_variances < plain.noise_variances * (1 - 1e-6))
    assert any("more than 8" in note for note in near.constraint_notes)
