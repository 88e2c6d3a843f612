"""Every comparison of the program is sharp: what is just wrong is not agreed with."""

import itertools
import json
import math
import zipfile
from dataclasses import replace
from fractions import Fraction

import dpstats as dps
from dpstats.privacy.noise import scale_for
from dpstats.verifying import arguing
from dpstats.verifying.arguing import verify
from dpstats.verifying.blocks import Finding
from dpstats.verifying.noise import scale_of


def test_the_scale_is_the_smallest_float_that_is_large_enough():
    for power, kind in ((1, "laplace"), (2, "gaussian")):
        for bound, part in itertools.product((1, 3, 10**8 + 7), (Fraction(1, 3), Fraction(9, 4))):
            exact, found = part * bound**power, scale_of(part, bound, power)
            below = math.nextafter(found, 0.0)
            assert Fraction(below) ** power < exact <= Fraction(found) ** power
            assert found == scale_for(part, bound, kind)


def test_a_cost_at_the_budget_and_just_above(whole, judge, monkeypatch):
    for reached, bound, how in [
        ("1/2", "1", "agrees"),
        ("1", "1", "agrees"),
        ("1", "1000001/1000000", "undecided"),
        ("999999/1000000", "2", "undecided"),
        ("1000001/1000000", "1000001/1000000", "wrong"),
        ("1000001/1000000", "2", "wrong"),
    ]:
        found = Finding(Fraction(reached), Fraction(bound), "")
        monkeypatch.setattr(arguing, "find", lambda *given, found=found: found)
        verdict = judge(whole(dps.PureDP(1), "replace", "smoking"))
        assert (verdict.agrees, bool(verdict.undecided), bool(verdict.wrong)) == (
            how == "agrees", how == "undecided", how == "wrong",
        )  # fmt: skip
        last = verdict.text.splitlines()[-1]
        assert last.startswith("Not decided: rows reach a cost of") == (how == "undecided")


def double_noise(plain):
    plain["blocks"][0]["multiplier"] = str(2 * Fraction(plain["blocks"][0]["multiplier"]))


def a_block_twice(plain):
    """Three times the same condition: what they are for is known of two at most."""
    plain["blocks"][:0] = [dict(plain["blocks"][0]), dict(plain["blocks"][0])]
    plain["budget"]["epsilon"] = str(3 * Fraction(plain["budget"]["epsilon"]))


def without_the_count(plain):
    count = plain["blocks"].pop()
    left = Fraction(plain["budget"]["epsilon"]) - 1 / Fraction(count["multiplier"])
    plain["budget"]["epsilon"] = str(left)


def test_plans_that_spend_their_budget(whole, judge):
    for relation, change, says in [
        ("replace", a_block_twice, "a block is in the file twice"),
        ("add_remove", without_the_count, "if and only if neighbours add a row"),
        ("replace", double_noise, None),
    ]:
        plain = whole(dps.PureDP(1), relation, "smoking").to_dict()
        change(plain)
        verdict = judge(plain)
        assert verdict.agrees == (says is None)
        assert says is None or says in verdict.wrong[0]


def test_a_plan_that_leaves_out_what_its_start_measured(whole, rows, judge):
    """The noise that it states for a block was not the one that was drawn."""
    first = dps.release(whole(dps.PureDP(1), "replace", "logs"), rows, m=60, rng=1)
    asked = {"logs": replace(first.analyses["logs"], stages=2)}
    plain = dps.plan(first.schema, asked, budget=dps.PureDP(1), start=first).to_dict()
    right = judge(plain)
    assert right.agrees, right.text
    assert right.bound == 2
    edited = json.loads(json.dumps(plain))
    text = edited["start"]["measurements.json"]
    edited["start"]["measurements.json"] = text.replace(
        '"not_private": false', '"not_private": true'
    )
    assert edited != plain
    assert not judge(edited).agrees
    double_noise(plain)
    verdict = judge(plain)
    assert verdict.bound < 2
    assert "the measurements that the plan adds to" in verdict.wrong[0]


def test_a_certificate_of_combined_tables_just_too_small(whole, rows, tmp_path):
    path = tmp_path / "r.zip"
    dps.release(whole(dps.ZCDP(1), "replace", "tables"), rows, m=60, rng=1).save(path)
    with zipfile.ZipFile(path) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    plain = json.loads(texts["release.json"])
    plain["accuracy"]["delta"] *= 0.99
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (texts | {"release.json": json.dumps(plain)}).items():
            archive.writestr(name, text)
    wrong, digests = sorted(verify(path).wrong, key=lambda one: "SHA-256" in one)
    assert "the certificate states delta" in wrong
    assert "SHA-256" in digests
