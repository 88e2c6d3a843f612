"""The reference pages list what the parsers take, the files hold and the package exports."""

import io
import json
import re
import zipfile
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

import pandas as pd
import pytest

import dpstats as dps
from dpstats import families
from dpstats.analyses.registry import _parameters, _required, registry
from dpstats.families.losses.linear import LOSSES
from dpstats.measured.measurements import ANSWERS_HEADER
from dpstats.planning import requests
from dpstats.privacy import ledger_file
from dpstats.rows import reference_from_dict
from dpstats.schema import TextFile, guesses
from dpstats.schema.schema import _KEYS as COLUMN_KEYS
from dpstats.schema.toml_files import KEYS

PAGES = Path(__file__).parents[2] / "docs" / "reference"
REFERENCES = (dps.Uniform, dps.LogLinear, dps.PerturbedHistogram, dps.BernsteinKDE)


def tables(page, heading):
    """The tables under a heading: the names in the first column, and the other cells."""
    text = (PAGES / page).read_text("utf-8")
    (found,) = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    lines = [line.split(" | ") for line in re.findall(r"^\| `(.*) \|$", found, re.MULTILINE)]
    listed = {name.removesuffix("`"): cells for name, *cells in lines}
    assert len(listed) == len(lines)
    return listed


def keys(page, heading):
    return list(tables(page, heading))


def named(cell):
    """All names in one cell."""
    return re.findall(r"`(\w+)`", cell)


def test_keys_of_the_schema_file():
    shared = set(keys("schema-file.md", "Keys of every column"))
    own = {
        "boolean": set(),
        "category": set(keys("schema-file.md", "Keys of a category")),
        "number": set(keys("schema-file.md", "Keys of a number")),
    }
    for kind, taken in COLUMN_KEYS.items():
        assert shared | own[kind] == taken | {"kind"}, kind
    own = {field.name for kind in (dps.Never, dps.Determines, dps.Order) for field in fields(kind)}
    rules = own - {"condition", "column", "comparison"} | {"never", "determines", "order"}
    assert set(keys("schema-file.md", "Keys of [[rule]]")) == rules
    assert tuple(keys("schema-file.md", "Keys of [guesses]")) == guesses._KEYS
    known = [field.name for field in fields(TextFile)]
    assert keys("schema-file.md", "Keys of [file]") == known


def test_keys_of_a_request():
    assert set(keys("request-file.md", "Keys at the top")) == KEYS
    budgets = [{"epsilon": 1}, {"epsilon": 1, "delta": 1e-6}, {"rho": 1}]
    assert set(keys("request-file.md", "Keys of [budget]")) == set().union(*budgets)
    for budget in budgets:
        requests._read_budget(budget)
    entry = {"name": "a", "kind": "proportion", "share": 2, "condition": "a"}
    analyses, shares = requests._analyses([entry])
    assert (list(analyses), shares) == (["a"], {"a": 2})
    assert keys("request-file.md", "Keys of [[analysis]]") == list(entry)[:3]


def test_kinds_of_analyses_and_their_parameters():
    found = tables("request-file.md", "Kinds of analyses")
    assert list(found) == sorted(registry())
    for kind, analysis in registry().items():
        parameters = [f"`{field.name}`" + (r"\*" if _required(field) else "")
                      for field in _parameters(analysis)]  # fmt: skip
        assert found[kind] == [f"`dps.{analysis.__name__}`", ", ".join(parameters)]


def test_kinds_of_losses_and_their_keys():
    asked, held = tables("request-file.md", "Keys of loss"), tables("archive.md", "Keys of loss")
    assert set(asked) == set(held) == {*LOSSES, dps.TabulatedLoss.kind}
    for kind, loss in LOSSES.items():
        own = [field.name for field in fields(loss)]
        assert asked[kind][0] == f"`dps.{loss.__name__}`"
        assert named(asked[kind][1]) == named(held[kind][0]) == own
    schema = dps.Schema([dps.Boolean("a")])
    made = dps.TabulatedLoss.of(schema, ["a"], {"t": (0, 1, 3)}, lambda row, at: at["t"])
    assert ["kind", *named(held["table"][0])] == list(made.to_dict())


def test_kinds_of_references_and_their_keys():
    found = tables("request-file.md", "Keys of [reference]")
    for made in (cls() for cls in REFERENCES):
        kind = made.to_dict()["kind"]
        name, listed = found.pop(kind)
        assert name == f"`dps.{type(made).__name__}`"
        assert set(named(listed)) == set(made.__dataclass_fields__)
        assert reference_from_dict({"kind": kind}) == made
    assert not found


def test_keys_of_budgets():
    found = tables("archive.md", "Keys of budget")
    for budget in (dps.PureDP(1), dps.ZCDP(1), dps.ApproxDP(1, 1e-6)):
        kind, *others = budget.to_dict()
        assert kind == "kind"
        assert set(named(found.pop(budget.kind)[0].split(":")[0])) == set(others)
    assert not found


def check_plan(plan):
    """Its keys, and those of its blocks."""
    plain, found = plan.to_dict(), tables("archive.md", "Keys of blocks")
    listed = keys("archive.md", "Keys of a plan")
    assert [key for key in listed if key in plain] == list(plain)
    assert set(found) == set(families.KINDS)
    for block in plain["blocks"]:
        assert set(named(found[block["kind"]][0])) >= set(block) - {"kind", "role", "multiplier"}
    return plain


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_keys_of_the_archive(unit):
    columns = [dps.Boolean("a"), dps.Number("b", 0, 9, edges=[5], missing=1)]
    rule = dps.Never("a and b < 5", set={"a": False})
    guesses = dps.Guesses(shares={"a": 0.3})
    totals = [dps.Total("a", 10**6, of="population")]
    schema = dps.Schema(columns, guesses, {"decimal": ","}, [rule], totals)
    asked = {"a": dps.Proportion("a"), "b": dps.Mean("b"), "t": dps.Marginals(["a", "b"])}
    options = {"unit": unit, "rows_per_person": 2, "person": "id"}
    plan = dps.plan(schema, asked, budget=dps.ApproxDP(1, 1e-6), **options)
    rows = pd.DataFrame({"a": [True, False] * 50, "b": [1, 8] * 50, "id": range(100)})
    with zipfile.ZipFile(io.BytesIO(dps.release(plan, rows, m=50).to_bytes())) as held:
        members = {name: held.read(name).decode() for name in held.namelist()}
    document = json.loads(members["release.json"])
    accuracy, measurements = document["accuracy"], json.loads(members["measurements.json"])
    heads = {name: members[name].split("\n")[0].split(",") for name in members if "csv" in name}
    assert heads["answers.csv"] == list(ANSWERS_HEADER)
    for heading, found in {
        "Members of a release": members,
        "Keys of release.json": document,
        "Keys of accuracy": accuracy,
        "Keys of measurements.json": measurements,
        "Columns of answers.csv": ANSWERS_HEADER,
    }.items():
        listed = keys("archive.md", heading)
        assert [key for key in listed if key != "design"] == list(found), heading
    *_, (radius,) = tables("archive.md", "Keys of accuracy").values()
    assert set(named(radius)) == set(accuracy["analyses"]["a"])
    assert set(keys("archive.md", "Keys of a plan")) - set(check_plan(plan)) == {"design", "start"}
    own = keys("archive.md", "Columns of candidates.csv and rows.csv")
    assert heads["candidates.csv"] == [*heads["rows.csv"], *own]


def test_keys_of_a_plan_for_a_survey():
    design = dps.Design("w", mean=1, cap=2, unit="u", units=[1, 2, 3, 4])
    schema = dps.Schema([dps.Boolean("a")], design=design)
    plain = check_plan(dps.plan(schema, {"a": dps.Proportion("a")}, budget=dps.PureDP(1)))
    assert "design" in plain
    assert {block["kind"] for block in plain["blocks"]} >= {"partition", "contrasts"}


def test_keys_of_a_ledger(tmp_path):
    page = (PAGES / "archive.md").read_text("utf-8")
    assert "## Keys of a ledger" in page
    first, other = page.split("## Keys of a ledger")[1].split("Every other line")
    book = dps.Ledger.create(tmp_path / "l", dps.ApproxDP(1, 1e-6), rows_per_person=2)
    book.spend(dps.ApproxDP(0.5, 1e-6), rows_per_person=2)
    lines = [json.loads(line) for line in (tmp_path / "l").read_text().splitlines()]
    for text, line in zip((first, other), lines, strict=True):
        listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert [key for key in listed if key != "person_key"] == list(line)
    assert set(lines[1]) - {"digest"} == ledger_file.SPENDING


def public_names():
    """All public names, those of public modules with the name of the module."""
    for name in dps.__all__:
        value = getattr(dps, name)
        if hasattr(value, "__path__") or name == "testing":
            yield from (f"{name}.{part}" for part in value.__all__)
        elif name != "__version__":
            yield name


def test_every_public_name_has_a_page_and_an_example():
    listed = re.findall(r"^   ([\w.]+)$", (PAGES / "names.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(public_names())
    assert [name for name in listed if ">>>" not in attrgetter(name)(dps).__doc__] == []


def test_the_examples_of_the_pages_are_read(tmp_path):
    for page in ("schema-file", "request-file"):
        text = (PAGES / f"{page}.md").read_text("utf-8")
        example = "".join(re.findall(r"^```toml\n(.*?)```", text, re.DOTALL | re.MULTILINE))
        (tmp_path / f"{page}.toml").write_text(example)
    assert len(dps.Schema.load(tmp_path / "schema-file.toml").columns) == 5
    plan = requests.load_request(tmp_path / "request-file.toml")
    assert set(plan.analyses) == {"smoking", "ages"}
