"""Two stages: what is read, spent and kept, also where the second one fails."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.privacy import noise
from dpstats.private import measure as measuring
from dpstats.releases import pilots

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=9, edges=[0], missing=0), *map(dps.Boolean, "uvy"),
])  # fmt: skip
FORMULA = "y ~ x + u + v"
BUDGET = dps.ZCDP(Fraction(1, 2))


def plan(**options):
    return dps.plan(SCHEMA, {"it": dps.Logistic(FORMULA, stages=2)},
                    **{"budget": BUDGET, **options})  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    rng, n = np.random.default_rng(0), 600
    x, u = rng.choice(9, n) / 4 - 1, rng.random(n) < 0.4
    v, y = rng.random(n) < 0.5, rng.random(n) < 1 / (1 + np.exp(-x - u + 0.5))
    return pd.DataFrame({"x": x, "u": u, "v": v, "y": y})


@pytest.fixture(scope="module")
def measured(rows):
    return dps.measure(plan(), rows)


def some_noise():
    """Some Gaussian noise, the same in every run."""
    rng = np.random.default_rng(3)
    return noise._noise_from(lambda scale, size: np.rint(rng.normal(0, scale, size)).astype(int))


def released(planned, rows, **options):
    return dps.release(planned, rows, m=50, k=10, rng=0, **options)


@pytest.fixture(scope="module")
def first(rows):
    """A release with some noise that a second stage may be added to."""
    with some_noise():
        return released(dps.plan(SCHEMA, {"it": dps.Logistic(FORMULA)}, budget=BUDGET), rows)


@pytest.fixture(scope="module")
def later(first):
    return dps.plan(SCHEMA, plan().analyses, budget=BUDGET, start=first)


@pytest.fixture
def readings(monkeypatch):
    """The blocks of every reading of the rows."""
    seen, real = [], measuring.exact_sums

    def counted(source, schema, blocks, progress=None):
        seen.append(list(blocks))
        return real(source, schema, blocks, progress)

    monkeypatch.setattr(measuring, "exact_sums", counted)
    return seen


@pytest.mark.parametrize(
    ("unit", "budget"), [("add_remove", dps.PureDP(3)), ("replace", dps.ApproxDP(2, 1e-6))]
)
def test_rows_are_read_twice_and_paid_once(unit, budget, rows, readings, tmp_path):
    ledger = dps.Ledger.create(tmp_path / "ledger", budget, unit=unit)
    planned = plan(unit=unit, budget=budget)
    with pytest.raises(dps.DataError, match=r"twice, and this is a stream: .*a DuckDB"):
        dps.measure(planned, pa.Table.from_pandas(rows).to_reader(), ledger=ledger)
    assert (ledger.spent, readings) == (0, [])
    measured = dps.measure(planned, rows, ledger=ledger)
    (score,) = measured.scores
    assert (len(readings[0]), readings[1:]) == (len(planned.blocks), [[score.block]])
    assert score.block.pilot is not None
    assert ledger.spent == measured.strategy.cost() == budget.total
    (spending,) = ledger.spendings
    assert spending.plan == measured.plan_digest == planned.digest
    assert dps.Measurements.from_members(measured.to_members()) == measured


def test_without_noise_the_second_stage_is_the_score_at_the_pilot(rows, no_noise):
    measured = dps.measure(plan(), rows)
    (score,) = measured.scores
    codes = {name: rows[name].to_numpy(int) for name in "uvy"}
    codes["x"] = (rows["x"] * 4).to_numpy(int)
    np.testing.assert_array_equal(score.sums, score.block.sums(codes))
    # The pilot is near the estimate, where the score of the rows is zero.
    assert np.abs(score.sums / score.block.bounds).max() < 3 * np.sqrt(len(rows))


def test_the_pilot_follows_from_the_first_stage_alone(measured, monkeypatch):
    """It is zero if it cannot be fitted."""
    strategy, sums = measured.strategy, measured.sums
    blocks = tuple(p for p in strategy.blocks if p.role == "family")
    half = replace(strategy, blocks=blocks, budget=BUDGET.of_total(BUDGET.total / 2))
    uniforms = measured.uniforms[: len(sums)]
    first = replace(measured, strategy=half, noisy_sums=sums, uniforms=uniforms)

    def pilot():
        found = pilots.pilots(first, plan().strategy.blocks, plan().analyses)
        return next(p.block.pilot for p in found if p.role == "score")

    assert pilot() == measured.scores[0].block.pilot
    monkeypatch.setattr(pilots, "fit_density", None)
    assert set(pilot()) == {0}


def kept_after(error, path):
    """What remains of the first stage, saved and read back."""
    held = error.measurements
    assert "holds the measurements that it paid for" in "".join(error.__notes__)
    assert held.scores == ()
    assert held.strategy.cost() == held.budget.total == BUDGET.total / 2
    held.save(path)
    assert dps.Measurements.load(path) == held
    return held


def test_a_table_that_changes_in_between_keeps_the_first_stage(rows, tmp_path, monkeypatch):
    path, real = tmp_path / "rows.csv", pilots.pilots
    for change, message in (
        (lambda: rows.head(599).to_csv(path, index=False), "its number of rows has changed"),
        (path.unlink, r"there is no file 'rows\.csv'"),
        (lambda: path.write_text('x,u,v,y\n1,"secret\n'), "a line has more or fewer fields"),
    ):
        rows.to_csv(path, index=False)

        def meanwhile(*given, change=change):
            change()
            return real(*given)

        monkeypatch.setattr(pilots, "pilots", meanwhile)
        ledger = dps.Ledger.create(tmp_path / f"ledger {message[:9]}", BUDGET)
        with pytest.raises(dps.DataError, match=f"a second time: {message}") as caught:
            dps.measure(plan(), path, ledger=ledger)
        assert ledger.spent == BUDGET.total
        assert "secret" not in str(caught.value)
        assert "nothing was" not in str(caught.value)
        held = kept_after(caught.value, tmp_path / f"{message[:9]}.zip")
    result = dps.synthesize(held, m=50, k=10, rng=0).infer("it")
    assert len(result.conf_int()) == 4
    assert "no second stage for this formula" in result.summary()


@pytest.mark.parametrize("failure", [MemoryError, KeyboardInterrupt])
def test_failing_second_noise_keeps_the_first_stage(failure, rows, readings, frames_of, tmp_path):
    def failing(scale, size):
        if len(readings) == 2:
            raise failure("planted")
        return np.zeros(size, dtype=np.int64)

    seen = dps.NoiseError if failure is MemoryError else KeyboardInterrupt
    with noise._noise_from(failing), pytest.raises(seen) as caught:
        dps.measure(plan(), rows)
    kept_after(caught.value, tmp_path / "paid.zip")
    if failure is MemoryError:
        assert "nothing was released" not in str(caught.value)
        assert "the measurements of the first stage are kept" in str(caught.value)
    for held in frames_of(caught):  # none holds sums of rows
        assert not any(len(held.get(name, ())) for name in ("totals", "sums"))


def test_a_file_without_its_pilot_or_with_an_impossible_one_is_refused(measured):
    members = measured.to_members()
    document = json.loads(members["measurements.json"])
    for pilot in (None, [0], [0.5] * 4, [2**40] * 4):
        document["blocks"][-1]["pilot"] = pilot
        edited = {**members, "measurements.json": json.dumps(document)}
        says = "lacks the pilot" if pilot is None else "a second stage needs"
        with pytest.raises(dps.FileFormatError, match=says):
            dps.Measurements.from_members(edited)


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_a_second_stage_is_added_to_a_release(unit, rows, readings, tmp_path):
    asked = {"it": dps.Logistic(FORMULA), "more": dps.Proportion("u")}
    budget, added = dps.ApproxDP(1, 1e-6), dps.ApproxDP(2, 1e-6)
    planned = dps.plan(SCHEMA, asked, budget=budget, unit=unit)
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.ApproxDP(3, 1e-6), unit=unit)
    with some_noise():
        first = released(planned, rows)
        later = dps.plan(SCHEMA, plan().analyses, budget=added, start=first)
        assert "Still to be spent: epsilon = 2, delta = 1e-06" in " ".join(str(later).split())
        later.save(tmp_path / "later.json")
        loaded = dps.Plan.load(tmp_path / "later.json")
        assert loaded == later
        readings.clear()
        second = released(later, rows, ledger=ledger)
    assert [len(blocks) for blocks in readings] == [1]
    assert ledger.spent == added.rho
    assert ledger.spendings[0].plan == later.digest == second.measurements.plan_digest
    np.testing.assert_array_equal(second.measurements.sums, first.measurements.sums)
    assert second.budget.rho == budget.rho + added.rho == second.measurements.strategy.cost()
    assert set(second.analyses) == {"it", "more"}
    assert np.all(np.asarray(second.infer("it").bse) < np.asarray(first.infer("it").bse))
    if unit == "replace":
        with pytest.raises(dps.DataError, match="n = 600"):
            dps.measure(later, rows.head(599))
    else:  # the number of rows was measured before
        again = dps.measure(later, rows.head(9))
        np.testing.assert_array_equal(again.count.sums, first.measurements.count.sums)
    for one in (later, loaded):  # with the system's noise, added to that of a test
        assert "NOT PRIVATE" in str(dps.measure(one, rows))


def test_a_started_plan_that_was_edited_is_refused(later):
    text = json.dumps(later.to_dict())
    assert dps.Plan.from_dict(json.loads(text)) == later
    for edit in [
        lambda p: p["blocks"][0].update(multiplier="2"),
        lambda p: p["blocks"][-1].update(pilot=None),
        lambda p: p.pop("start"),
        lambda p: p["blocks"].pop(),
        lambda p: p["analyses"]["it"].pop("stages"),
        lambda p: p["start"].update(answers="1"),
        lambda p: p.update(rows=599),
        lambda p: p.update(rows=None),
        lambda p: p.update(person_key="key"),
        lambda p: p["schema"].append({"kind": "boolean", "name": "z"}),
        lambda p: p["blocks"].insert(0, p["blocks"].pop(1)),
        lambda p: p.update(budget={"kind": "approx", "rho": "1", "epsilon": "9", "delta": "1/100"}),
    ]:
        plain = json.loads(text)
        edit(plain)
        with pytest.raises(dps.DpstatsError):
            dps.Plan.from_dict(plain)


def test_what_start_keeps_and_shares(rows):
    """The reference's own measurement is kept; shares divide what is added."""
    asked = {"it": dps.Logistic(FORMULA), "other": dps.Logistic("y ~ x")}
    reference = dps.PerturbedHistogram(Fraction(1, 4))
    held = released(dps.plan(SCHEMA, asked, budget=BUDGET, reference=reference), rows)
    two = {name: replace(one, stages=2) for name, one in asked.items()}
    later = dps.plan(SCHEMA, two, budget=dps.ZCDP(1), start=held, shares={"it": 1, "other": 3})
    spent = [p.block.cost(BUDGET, later.neighbours, p.multiplier) for p in later.strategy.scores]
    assert spent == [Fraction(1, 4), Fraction(3, 4)]
    added = dps.measure(later, rows)
    np.testing.assert_array_equal(added.reference.sums, held.measurements.reference.sums)
    assert added.strategy.cost() == BUDGET.total + 1


def test_the_second_reading_uses_the_same_rows_of_each_person(rows, seeded_noise):
    """The first two of each; further ones, in which all differs, change nothing."""
    kept = rows.assign(key=np.arange(len(rows)) // 2)
    more = kept.assign(x=-kept["x"], u=~kept["u"], y=~kept["y"])
    planned = plan(person="key", rows_per_person=2, budget=dps.PureDP(9))
    found = []
    for table in (kept, pd.concat([kept, more], ignore_index=True)):
        with noise._noise_from(seeded_noise(1)):
            found.append(dps.measure(planned, table))
    assert found[0].scores
    assert found[0] == found[1]


def test_what_start_cannot_be(rows, later, measured):
    held = released(dps.plan(SCHEMA, {"it": dps.Logistic("y ~ x")}, budget=BUDGET), rows)
    whole = dps.synthesize(measured, m=50, k=10, rng=0)
    two = dict(plan().analyses)
    other = dps.Schema([*SCHEMA, dps.Boolean("z")])
    for schema, asked, budget, start, message in (
        (SCHEMA, two, BUDGET, "first.zip", "start must be a dps.Release"),
        (SCHEMA, two, BUDGET, held.measurements, "start must be a dps.Release"),
        (other, two, BUDGET, held, "declares other columns"),
        (SCHEMA, two, dps.PureDP(1), held, "give a budget of the same kind"),
        (SCHEMA, two, dps.ZCDP(1, 1e-5), held, "and delta"),
        (SCHEMA, {"it": dps.Logistic(FORMULA)}, BUDGET, held, "'it' has none: give it stages=2"),
        (SCHEMA, two, BUDGET, held, "lacks the first stage of 'it': "),
        (SCHEMA, two, BUDGET, whole, "has measured the second stage of 'it' already"),
    ):
        with pytest.raises(dps.RequestError, match=message):
            dps.plan(schema, asked, budget=budget, start=start)
    with pytest.raises(dps.RequestError, match="leave out unit="):
        dps.plan(SCHEMA, two, budget=BUDGET, start=held, unit="add_remove")
    with pytest.raises(dps.RequestError, match="adds to a budget that is spent"):
        later.solve(of="it", width=1)
