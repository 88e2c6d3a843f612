"""Planted errors: in the package, which the program sees, and in the program."""

import csv
import hashlib
import io
import itertools
import json
import zipfile
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import GroupMoments
from dpstats.families.losses.block import LossBlock
from dpstats.families.moments import Moments
from dpstats.families.pilot_score import PilotScore
from dpstats.families.tables.bin_offsets import BinOffsets
from dpstats.families.tables.cells import Indicator, Table
from dpstats.families.tables.lattice import KernelLattice
from dpstats.privacy.neighbours import Sensitivity
from dpstats.verifying import certificate, findings, functions, losses, monomials, noise, reading
from dpstats.verifying import numeric_functions as numeric
from dpstats.verifying.arguing import verify
from dpstats.verifying.columns import Column

CLAIMS = {
    "table": (Table, "ages"),
    "condition": (Indicator, "smoking"),
    "moments": (Moments, "many"),
    "robust": (Moments, "line"),
    "group_moments": (GroupMoments, "rents"),
    "ball_moments": (BallMoments, "ball"),
    "bin_offsets": (BinOffsets, "offsets"),
    "losses": (LossBlock, "huber"),
    "tabulated": (LossBlock, "typical"),
    "pilot_score": (PilotScore, "odds"),
    "kernel_lattice": (KernelLattice, ""),
}


def half(method):
    def sensitivity(self, unit):
        found = method(self, unit)
        return Sensitivity(found.l1 / 2, found.l2_squared / 2)

    return sensitivity


@pytest.mark.parametrize("claim", CLAIMS)
def test_half_a_claim(monkeypatch, whole, tmp_path, budget, unit, claim):
    kind, name = CLAIMS[claim]
    options = {} if name else {"reference": dps.BernsteinKDE(["age"], k=8)}
    name = name or "ages"
    whole(budget, unit, name, **options).save(tmp_path / "right.json")
    assert verify(tmp_path / "right.json").agrees
    monkeypatch.setattr(kind, "sensitivity", half(kind.sensitivity))
    whole(budget, unit, name, **options).save(tmp_path / "wrong.json")
    verdict = verify(tmp_path / "wrong.json")
    assert not verdict.agrees
    assert verdict.bound > budget.total
    assert "agrees" not in verdict.text.splitlines()
    if claim != "pilot_score":  # whose pilot is not known yet
        assert verdict.reached > budget.total
        assert "is claimed too small" in verdict.text


def test_half_the_cost_of_residuals(whole, tmp_path, unit):
    plan = whole(dps.ZCDP(1), unit, "tables").to_dict()
    for block in plan["blocks"]:
        if block["kind"] == "residual":
            block["multiplier"] = str(Fraction(block["multiplier"]) / 2)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert verify(tmp_path / "plan.json").wrong


def test_a_claim_between_what_is_reached_and_the_bound(whole, tmp_path):
    plan = whole(dps.PureDP(1), "replace", "ball").to_dict()
    lower = Fraction(99, 100)
    for block in plan["blocks"]:
        block["multiplier"] = str(Fraction(block["multiplier"]) * lower)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    verdict = verify(tmp_path / "plan.json")
    assert verdict.undecided
    assert not verdict.wrong
    assert not verdict.agrees
    assert verdict.text.splitlines()[-1].startswith("Not decided: rows reach a cost of")


def test_more_noise_than_needed_is_safe(whole, tmp_path, budget):
    plan = whole(budget, "replace", "smoking").to_dict()
    plan["blocks"][0]["multiplier"] = str(Fraction(plan["blocks"][0]["multiplier"]) * 2)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    verdict = verify(tmp_path / "plan.json")
    assert verdict.agrees
    assert "The claim is safe, larger by a factor of 2." in verdict.text


def edited(path, members):
    """The texts of an archive, some changed, with the checksums that fit them."""
    with zipfile.ZipFile(path) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()} | members
    del texts["digests.json"]
    plain = json.loads(texts["measurements.json"])
    keys = ("budget", "unit", "schema", "blocks", "tables", "analyses", "reference")
    decides = {key: plain[key] for key in keys}
    decides["blocks"] = [{**b, "pilot": None} if "pilot" in b else b for b in plain["blocks"]]
    text = json.dumps(decides, separators=(",", ":"))
    plain["plan"] = hashlib.sha256(text.encode()).hexdigest()
    texts["measurements.json"] = json.dumps(plain)
    digests = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in texts.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (texts | {"digests.json": json.dumps(digests)}).items():
            archive.writestr(name, text)


@pytest.fixture
def released(whole, rows, tmp_path):
    """A saved release, its texts, and what verifies it."""
    plan = whole(dps.PureDP(2), "replace", "smoking", "ages", "rents", "pair")
    path = tmp_path / "release.zip"
    dps.release(plan, rows, m=300, rng=1).save(path)
    with zipfile.ZipFile(path) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    edited(path, {})
    assert verify(path).agrees
    return path, texts


def double_epsilon(plain):
    plain["budget"]["epsilon"] = "1"  # noise of 2


def halve_a_scale(plain):
    plain["blocks"][1]["multiplier"] = str(Fraction(plain["blocks"][1]["multiplier"]) / 2)


def leave_one_out(plain):
    for block in plain["blocks"]:  # as if the condition cost nothing
        share = 1 - 1 / Fraction(block["multiplier"]) / 2
        block["multiplier"] = str(Fraction(block["multiplier"]) * share)


def claim_the_other_relation(plain):
    plain["unit"] = "add_remove"


def test_noise_that_does_not_fit_the_budget(released):
    for plant in [double_epsilon, halve_a_scale, leave_one_out, claim_the_other_relation]:
        path, texts = released
        plain = json.loads(texts["measurements.json"])
        plant(plain)
        edited(path, {"measurements.json": json.dumps(plain)})
        verdict = verify(path)
        assert verdict.wrong
        assert "agrees" not in verdict.text.splitlines()


def test_a_promise_of_too_small_an_epsilon(whole, tmp_path):
    plan = whole(dps.ApproxDP(2, 1e-6), "replace", "smoking").to_dict()
    plan["budget"]["epsilon"] = "199/100"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert "is not proven to give epsilon = 199/100" in verify(tmp_path / "plan.json").wrong[0]


def change_a_cell(text, line, column, change):
    rows = list(csv.reader(io.StringIO(text)))
    rows[line][column] = str(change(rows[line][column]))
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


CELLS = {
    "a row": ("rows.csv", 5, 0, lambda cell: "south" if cell == "north" else "north"),
    "a count": ("candidates.csv", 3, -1, lambda cell: int(cell) + 1),
    "a code": ("candidates.csv", 3, 0, lambda cell: 1 - int(cell) if int(cell) < 2 else 0),
    "a weight": ("candidates.csv", 3, -2, lambda cell: float(cell) + 0.01),
    "an answer": ("answers.csv", 1, 3, lambda cell: int(cell) + 300),
    "a uniform": ("answers.csv", 1, 4, lambda cell: 0.7),
    "a number": ("answers.csv", 1, 1, lambda cell: 1),
}


def test_a_changed_cell_with_checksums_that_fit(released):
    for cell in CELLS:
        path, texts = released
        member, line, column, change = CELLS[cell]
        if cell in ("a count", "a code"):  # of a row already, so that only that differs
            counts = [
                int(row[-1])
                for row in csv.reader(io.StringIO(texts[member]))
                if row[-1] != "_count"
            ]
            line = 1 + counts.index(max(counts))
        edited(path, texts | {member: change_a_cell(texts[member], line, column, change)})
        assert verify(path).wrong


def test_checksums_and_the_digest_of_the_plan(released):
    path, texts = released
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (texts | {"rows.csv": texts["rows.csv"] + "\n"}).items():
            archive.writestr(name, text)
    assert "SHA-256" in verify(path).wrong[0]
    plain = json.loads(texts["measurements.json"])
    plain["analyses"]["smoking"]["condition"] = "not smoker"
    changed = texts | {"measurements.json": json.dumps(plain)}
    del changed["digests.json"]
    digests = {n: hashlib.sha256(t.encode()).hexdigest() for n, t in changed.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (changed | {"digests.json": json.dumps(digests)}).items():
            archive.writestr(name, text)
    assert [one for one in verify(path).wrong if "plan digest" in one]


def test_a_key_that_is_not_known_is_refused(whole, tmp_path):
    for place in ["file", "column", "block"]:
        plan = whole(dps.PureDP(1), "replace", "smoking").to_dict()
        {"file": plan, "column": plan["schema"][0], "block": plan["blocks"][0]}[place][
            "rows_each"
        ] = 2
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        with pytest.raises(reading.NotReadError, match="keys that are not known: rows_each"):
            verify(tmp_path / "plan.json")


def test_values_of_missing_cells_are_refused(whole, tmp_path):
    plan = whole(dps.PureDP(1), "replace", "rents").to_dict()
    for group in plan["blocks"][0]["groups"]:
        group["answered"] = []
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(reading.NotReadError, match="cells that may be missing"):
        verify(tmp_path / "plan.json")


def test_a_radius_that_is_too_small(released):
    for delta in [0.999, 0.5]:
        path, texts = released
        plain = json.loads(texts["release.json"])
        plain["accuracy"]["delta"] *= delta
        edited(path, {"release.json": json.dumps(plain)})
        assert "the certificate states delta" in verify(path).wrong[0]


def half_of(quantiles):
    return lambda *given: quantiles(*given) // 2


@pytest.mark.parametrize("names", [("smoking", "ages"), ("tables", "pair")])
def test_quantiles_of_half_the_noise(monkeypatch, whole, rows, tmp_path, unit, names):
    from dpstats.measured import answers
    from dpstats.measured import certificate as certified

    for module in (certified, answers):
        right = module.joint_quantiles
        monkeypatch.setattr(
            module, "joint_quantiles", lambda *given, right=right: right(*given) // 2
        )
    bounds = answers.Answers.quantiles
    monkeypatch.setattr(answers.Answers, "quantiles", lambda *given: bounds(*given) / 2)
    release = dps.release(whole(dps.ZCDP(0.5), unit, *names), rows, m=300, rng=1)
    release.save(tmp_path / "release.zip")
    assert [one for one in verify(tmp_path / "release.zip").wrong if "certificate" in one]


def test_noise_of_a_test_source(whole, rows, tmp_path):
    from dpstats.privacy.noise import _noise_from

    with _noise_from(lambda scale, size: np.zeros(size, dtype=np.int64)):
        release = dps.release(whole(dps.PureDP(1), "replace", "smoking"), rows, m=50, rng=1)
    release.save(tmp_path / "release.zip")
    assert "not private" in verify(tmp_path / "release.zip").wrong[0]


# Errors in the program: the comparison with the package sees each of them.


def skip_a_row(m):
    m.setattr(functions.Block, "rows", lambda self: itertools.islice(_rows(self), 1, None))


def skip_missing_cells(m):
    m.setattr(reading, "read_column", lambda plain: _without_missing(_read(plain)))


def _without_missing(column):
    codes = tuple(code for code in column.codes if code != column.missing)
    bins = {code: column.bin_of[code] for code in codes}
    return Column(column.name, codes, bins, None, column.half, column.values, column.ends,
                  column.exact_ends, column.dates, column.log)  # fmt: skip


def shift_the_bins(m):
    m.setattr("dpstats.verifying.columns.bisect_right", lambda edges, x: sum(e < x for e in edges))


def forget_the_coarse_grid(m):
    m.setattr(functions, "COARSE", 2**20)


def forget_the_answered(m):
    m.setattr(functions.Group, "holds", lambda self, row: (
        functions.cell_of(self.columns, row) in self.cells))  # fmt: skip


def never_shrink(m):
    def stay(self, row):
        return [self.coordinate(j, row[c.name]) for j, c in enumerate(self.columns)], False

    m.setattr(numeric.BallMoments, "shrunk", stay)


def full_height_on_faces(m):
    m.setattr(numeric.KernelLattice, "_kernel", lambda self, i, t: 512)


def keep_the_level(m):
    m.setattr(findings, "corners", lambda block, terms, at: (_top(block), _top(block)))
    m.setattr(monomials, "one_by_one", lambda terms, power: Fraction(1))


def _top(block):
    return {column.name: column.codes[0] for column in block.columns}


def one_pair_of_losses(m):
    m.setattr(findings, "farthest", lambda vectors, power: (1, 1))
    m.setattr(findings, "divided", lambda block, unit, power: (1, 1, 1))


def another_loss(m):
    m.setattr(losses.LinearLosses, "loss_of", lambda self, y, t: abs(y - t))


def another_mean(m):
    m.setattr(numeric.PilotScore, "mean", lambda self, step: 0)


def one_of_two_relations(m):
    right = findings.find
    m.setattr(findings, "find", lambda block, unit, power: right(block, "add_remove", power))


def one_of_two_norms(m):
    right = findings.find
    m.setattr(findings, "find", lambda block, unit, power: right(block, unit, 3 - power))


def half_of_moments(m):
    m.setattr(monomials._Few, "largest", lambda self, power: (Fraction(1), {}))


def half_of_long_products(m):
    m.setattr(monomials, "of_long", lambda terms, power: (Fraction(1), ""))


def half_of_residuals(m):
    right = findings.joint_residuals
    m.setattr(findings, "joint_residuals", lambda *given: right(*given) / 2)


def other_signs(m):
    right = functions.Moments.value
    m.setattr(functions.Moments, "value", lambda self, feature, row: (
        abs(right(self, feature, row))))  # fmt: skip


def table_by_the_first_column(m):
    right = functions.cell_of
    m.setattr(functions, "cell_of", lambda columns, row: right(columns[:1], row))


_rows, _read = functions.Block.rows, reading.read_column
PLANTS = [
    skip_a_row, skip_missing_cells, shift_the_bins, forget_the_coarse_grid, forget_the_answered,
    never_shrink, full_height_on_faces, keep_the_level, one_pair_of_losses, another_loss,
    another_mean, one_of_two_relations, one_of_two_norms, half_of_moments, half_of_long_products,
    half_of_residuals, other_signs, table_by_the_first_column,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_an_error_in_the_program(monkeypatch, whole, differences, plant):
    budget = dps.ZCDP(1) if plant is half_of_residuals else dps.PureDP(1)
    names = {half_of_residuals: ["tables"], one_pair_of_losses: ["far"]}.get(plant, [])
    plan = whole(budget, "replace", *names)
    assert differences(plan) == []
    plant(monkeypatch)
    with suppress(reading.NotReadError):  # which is to see it too
        assert differences(plan)


def test_the_law_of_the_noise():
    for scale, power in itertools.product((0.3, 1.0, 7.5, 150.0, 450.0, 9e5), (1, 2)):
        law = dps.PureDP(1).law(scale) if power == 1 else dps.ZCDP(1).law(scale)
        for q in (0, 1, int(scale), int(3 * scale), int(6 * scale)):
            assert noise.beyond(scale, power, q) == pytest.approx(float(law.tail(q + 1)), 1e-6)
        assert noise.quantile(scale, power, 0.01) == law.quantile(0.01)


def test_the_curve_against_exact_sums():
    """One sum with noise of scale 1/mu: the exact delta is below the bound, and near it."""
    for scale, epsilon in ((4.0, 1.0), (9.0, 0.5), (25.0, 0.3)):
        z = np.arange(-60 * int(scale), 60 * int(scale) + 1)
        p = np.exp(-(z**2) / (2 * scale**2))
        p /= p.sum()
        exact = np.clip(p[1:] - np.exp(epsilon) * p[:-1], 0, None).sum()
        exact = max(exact, np.clip(p[:-1] - np.exp(epsilon) * p[1:], 0, None).sum())
        rho = 1 / (2 * Fraction(scale) ** 2)
        found, _ = noise.delta_of(rho, Fraction(repr(epsilon)))
        assert 0.6 * float(found) < exact <= float(found)


def test_the_curve_against_the_package():
    for epsilon in [Fraction(1, 10), Fraction(1), Fraction(3), Fraction(6)]:
        budget = dps.ApproxDP(epsilon, Fraction(1, 10**6))
        assert noise.promises(budget.rho, epsilon, budget.delta)[0]
        assert not noise.promises(budget.rho * Fraction(1002, 1000), epsilon, budget.delta)[0]


def test_half_a_tail_is_seen(monkeypatch, released):
    path, _ = released
    right = certificate.jointly
    monkeypatch.setattr(
        certificate, "jointly", lambda *given: {s: q // 2 for s, q in right(*given).items()}
    )
    assert "larger by a factor" in verify(path).text.split("Certificate: ")[1]
