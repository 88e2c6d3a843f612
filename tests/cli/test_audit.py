"""The command audit: plans of every kind of block pass, and planted bugs are seen through it."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.auditing import pairs
from dpstats.auditing.audit import NoiseAudit, audit_blocks
from dpstats.auditing.noise_source import Event
from dpstats.cli import DONE, FAILED, REFUSED
from dpstats.families import KINDS
from dpstats.families.contrasts import Contrasts
from dpstats.families.tables.cells import Table
from dpstats.privacy import noise
from dpstats.privacy.neighbours import Sensitivity
from dpstats.private import measure as measuring

SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b"], allow_missing=True), dps.Boolean("b"), dps.Boolean("d"),
    dps.Number("x", -1, 1, points=65, edges=[0, 0.75], missing=0),
    dps.Number("y", 0, 2, points=33, edges=[1], missing=1),
    dps.Number("m", -1, 1, points=17, edges=[0], allow_missing=True),
])  # fmt: skip
SURVEY = replace(SCHEMA, design=dps.Design(
    "weight", mean=1_000, cap=2_500, strata="stratum", unit="school",
    units={"north": [1, 2, 3, 4, 5, 6, 7], "south": [11, 12]},
))  # fmt: skip


OWN = dps.TabulatedLoss.of(
    SCHEMA, ["y"], {"middle": (0, 2, 5)}, lambda row, at: np.abs(row["y"] - at["middle"]),
    convex=True,
)  # fmt: skip
ASKED = {
    "tables": {"t": dps.Marginals(["c", "b", "x"]), "p": dps.Proportion("b", given="c == 'a'"),
               "m": dps.Marginals(["b", "d"], 2, "monomials")},
    "moments": {"o": dps.OLS("x ~ y + C(c)"), "g": dps.GroupMeans("m", by="c"),
                "v": dps.Correlation(["x", "y"])},
    "clipped": {"c": dps.PCA(["x", "y"], clip_norm=1.0), "h": dps.Huber("x ~ d", k=1)},
    "losses": {"l": dps.LossGrid(OWN), "s": dps.Logistic("d ~ x")},
    "stages": {"l": dps.Logistic("b ~ x", stages=2)},
    "persons": {"p": dps.Proportion("b"), "o": dps.OLS("x ~ d")},
    "small survey": {"p": dps.Proportion("b", given="c == 'a'")},
    "survey": {"g": dps.GroupMeans("m", by="c"), "l": dps.Logistic("b ~ y"),
               "r": dps.Ratio("m", "y")},
}  # fmt: skip
PERSONS = {"person": "id", "rows_per_person": 3, "person_totals": True}
LATTICE = {"reference": dps.BernsteinKDE(["x", "y"], k=2, share=0.5), "n": 1_000_000}
REAL = noise._opendp
CASES = [
    (name, budget, unit)
    for name in ASKED
    for budget, unit in ((dps.PureDP(5), "replace"), (dps.ZCDP(Fraction(1, 3)), "add_remove"))
]


def planned(name, budget, unit="replace"):
    options = LATTICE if name == "clipped" and unit == "replace" else {}
    options = PERSONS if name == "persons" else options
    schema = SURVEY if "survey" in name else SCHEMA
    return dps.plan(schema, ASKED[name], budget=budget, unit=unit, **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few starts of the search."""
    monkeypatch.setattr(pairs, "_STARTS", 2)
    monkeypatch.setattr(pairs, "_MOST_ROWS", 1_000)


@pytest.fixture
def audited(tmp_path, monkeypatch, streams):
    """What the audit of a plan prints, which is read from its file."""
    monkeypatch.chdir(tmp_path)

    def run(plan, *more, code=FAILED):
        plan.save("plan.json", overwrite=True)
        return streams("audit", "plan.json", "--draws", "100", *more, code=code).out

    return run


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_search_passes_nothing_that_is_claimed(case):
    """And comes near: a search that finds little would see no bug."""
    blocks, loss, _ = audit_blocks(planned(*case).strategy, np.random.default_rng(1))
    assert all(block.passed for block in blocks)
    assert loss.passed
    assert loss.reached > 0.5 * loss.budget
    sharp = [b for b in blocks if b.kind not in ("score at a pilot", "kernel averages")]
    assert all(block.reached > Fraction(9, 10) * block.claimed for block in sharp)


def test_the_plans_of_this_page_have_all_kinds_of_blocks():
    found = {type(p.block) for case in CASES for p in planned(*case).strategy.blocks}
    assert found == set(KINDS.values())


def test_a_plan_passes_with_a_table_and_what_is_not_shown(audited):
    printed = audited(planned("stages", dps.ApproxDP(1, 1e-6), "add_remove"), code=DONE)
    assert re.match(r"Audit of plan [0-9a-f]{16}: passed\n", printed)
    assert "number of rows: rows" in printed
    assert re.search(r"whole plan .* 1\.0000|whole plan .* 0\.\d{4}", printed)
    assert "\n\nNot shown: " in printed
    assert "FAILED" not in printed
    assert "rho, proved" in printed


def test_what_cannot_be_audited_is_refused(audited):
    plan = planned("losses", dps.PureDP(5))
    audited(plan, "--draws", "99", code=REFUSED)
    with pytest.raises(dps.RequestError, match="draws must be a whole number of at least 100"):
        dps.audit(plan, draws=99)
    with pytest.raises(dps.RequestError, match=r"must be a dps\.Plan, got Schema"):
        dps.audit(SCHEMA)


def test_one_loss_or_one_law_decides():
    for proved, pvalue in [((1, 1), 0.5), ((0, 1), 1e-6), ((1.01, 1), 0.5), ((0, 1), 9e-7)]:
        audit = NoiseAudit(100, {"rho": (0, 1), "epsilon": proved}, pvalue, 3)
        assert audit.passed == (proved[0] <= 1 and pvalue >= 1e-6)


def test_an_event_is_chosen_on_other_draws_than_those_that_prove(monkeypatch):
    chosen, proving = [], []
    choose, proves = Event.choose, Event.proves
    monkeypatch.setattr(Event, "choose", lambda *args: chosen.append(args[1:]) or choose(*args))
    monkeypatch.setattr(Event, "proves", lambda *args: proving.append(args[2:]) or proves(*args))
    dps.audit(planned("losses", dps.PureDP(5)), draws=101)
    for first, second in zip(chosen[0], proving[0], strict=True):
        assert (len(first), len(second)) == (50, 51)
        assert not np.shares_memory(first, second)


def claim(monkeypatch, kind, l1, l2_squared):
    """Blocks of a kind claim parts of their right sensitivity."""
    real = kind.sensitivity
    monkeypatch.setattr(kind, "sensitivity", lambda self, unit: Sensitivity(
        real(self, unit).l1 / l1, real(self, unit).l2_squared / l2_squared))  # fmt: skip


def test_p61_a_halved_sensitivity_spread_over_a_hundred_functions_is_seen(audited, monkeypatch):
    """By the search for rows: draws alone do not show it."""
    columns = [dps.Number(f"x{i}", 0, 1, points=3, missing=0) for i in range(13)]
    asked = {"c": dps.Covariance([column.name for column in columns])}
    claim(monkeypatch, dps.Moments, 2, 4)
    plan = dps.plan(dps.Schema(columns), asked, budget=dps.PureDP(1))
    held = json.loads(audited(plan, "--json"))
    assert held["noise"]["passed"]
    assert not held["loss"]["passed"]
    ratios = [Fraction(b["reached"]) / Fraction(b["claimed"]) for b in held["blocks"]]
    assert max(ratios) > Fraction(3, 2)
    assert sum(block["functions"] for block in held["blocks"]) > 100


def half_the_noise(patch):
    """A hundred draws of it have p-values below 1e-100."""
    patch.setattr(noise, "_opendp", lambda sums, scale, law: REAL(sums, scale / 2, law))


def rows_counted_twice(patch):
    real = Table.sums
    patch.setattr(Table, "sums", lambda self, codes: 2 * real(self, codes))


def contrasts_move_once(patch):
    """A row that stays and whose unit is another moves them by twice its values."""
    claim(patch, Contrasts, 1, 2)


@pytest.mark.parametrize(
    ("plant", "name", "budget", "seen"),
    [
        (half_the_noise, "losses", dps.ZCDP(1), ["^fit to its law, .* FAILED$"]),
        (rows_counted_twice, "losses", dps.PureDP(5), [
            "sums of several rows are not those of each", r"table: .* 2\.0000 FAILED", ": FAILED$",
        ]),
        (contrasts_move_once, "small survey", dps.ZCDP(1), [
            r"^contrasts of units: .* 2\.0000 FAILED$"
        ]),
    ],
)  # fmt: skip
def test_p61_p65_planted_bugs_are_seen(audited, monkeypatch, plant, name, budget, seen):
    plant(monkeypatch)
    printed = audited(planned(name, budget))
    assert [one for one in seen if not re.search(one, printed, re.MULTILINE)] == []


def test_p62_a_smaller_scale_where_noise_is_drawn_is_seen(audited, monkeypatch):
    real = measuring.noise_scales
    monkeypatch.setattr(measuring, "noise_scales", lambda *args: real(*args) / 2)
    plan = dps.plan(SCHEMA, {"p": dps.Proportion("b")}, budget=dps.PureDP(1))
    printed = audited(plan, "--draws", "1200")
    assert re.search(r"^epsilon, proved .* at most 1 +FAILED$", printed, re.MULTILINE)
    assert re.search(r"^fit to its law, .* FAILED$", printed, re.MULTILINE)
    assert not re.search(r"whole plan .*FAILED", printed)


def test_p65_the_noise_of_opendp_passes(audited, monkeypatch):
    monkeypatch.setattr(noise, "_opendp", REAL)
    audited(planned("losses", dps.PureDP(5)), code=DONE)
