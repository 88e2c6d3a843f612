"""An archive that was edited, its digests made to fit: `load` refuses it, `verify` does not agree.

Both know on their own what a file may hold: every key once, every value of its type and in the one
way that it is written, the members of a release and no others.
"""

import csv
import functools
import hashlib
import io
import itertools
import json
import operator
import warnings
import zipfile
from contextlib import suppress
from fractions import Fraction

import pytest

import dpstats as dps
from dpstats.errors import FileFormatError
from dpstats.files import archives
from dpstats.schema.design import STEPS
from dpstats.verifying import arguing, certificate, reading
from dpstats.verifying.arguing import verify
from dpstats.verifying.shapes import NotReadError

NAMES = ("smoking", "ages", "rents", "logs")
FREE = ("analyses", "reference")  # whose keys are those of analyses, of other packages too


@pytest.fixture(scope="module")
def saved(whole, rows, tmp_path_factory):
    """A release of each relation."""
    folder = tmp_path_factory.mktemp("saved")
    for unit in ("replace", "add_remove"):
        plan = whole(dps.PureDP(2), unit, *NAMES)
        dps.release(plan, rows, m=60, k=40, rng=1).save(folder / f"{unit}.zip")
    return folder


def texts_of(path):
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    del found["digests.json"]
    return found


@pytest.fixture
def texts(saved):
    return texts_of(saved / "replace.zip")


@pytest.fixture(scope="module", autouse=True)
def costs_are_known():
    """Blocks are argued about once."""
    find, known = arguing.find, {}

    def found(block, unit, power):
        key = (json.dumps(block.plain), unit, power)
        return known[key] if key in known else known.setdefault(key, find(block, unit, power))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arguing, "find", found)
        yield


def in_json(texts, member, change):
    """The texts with a changed document, and the digest of its plan where it has one."""
    document = json.loads(texts[member])
    change(document)
    if member == "measurements.json":
        keys = ("budget", "unit", "schema", "design", "blocks", "tables", "analyses", "reference")
        plain = {key: document.get(key) for key in keys if key != "design" or key in document}
        plain["blocks"] = [b | {"pilot": None} if "pilot" in b else b for b in plain["blocks"]]
        text = json.dumps(plain, separators=(",", ":"))
        document["plan"] = hashlib.sha256(text.encode()).hexdigest()
    return texts | {member: json.dumps(document)}


def packed(path, texts, *twice):
    """An archive with digests that fit."""
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a member that is written twice
        for name, text in (*twice, *texts.items(), ("digests.json", json.dumps(digests))):
            archive.writestr(name, text)
    return path


def loads(path):
    try:
        return bool(dps.load(path))
    except FileFormatError as error:
        return str(path.parent) in str(error)  # it names the file, not where it lies


def agrees(path):
    with suppress(NotReadError):
        return verify(path).agrees
    return False


@pytest.fixture
def opinions(tmp_path):
    """Whether an archive of some texts is read, and whether verify agrees with it."""

    def of(texts, *twice):
        path = packed(tmp_path / "r.zip", texts, *twice)
        return loads(path), agrees(path)

    return of


REFUSED = (False, False)


def test_exact_rows_where_neighbours_add_or_remove_one(saved, opinions, tmp_path, unit):
    texts = texts_of(saved / f"{unit}.zip")
    assert opinions(texts) == (True, True)
    for rows in (400, 399):
        change = operator.methodcaller("update", rows=rows)
        found = opinions(in_json(texts, "measurements.json", change))
        if unit == "add_remove":
            assert found == REFUSED
            assert "states the number of rows" in verify(tmp_path / "r.zip").wrong[0]
        else:
            assert found[1] == (rows == 400)  # the certificate states 400


def other_types(value):
    """Values that many programs take for the same."""
    if isinstance(value, bool):
        return [int(value), str(value)]
    if isinstance(value, int):
        return [float(value), str(value), *([bool(value)] if value in (0, 1) else [])]
    if isinstance(value, float):
        return [str(value)]
    if isinstance(value, str):
        return [[value], None]
    return [str(value)] if value is None else []


def places(value, at=()):
    """Every place; of a list, in its first element of each kind and with the same keys."""
    yield at
    parts = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        kinds = [(v.get("kind"), *v) if isinstance(v, dict) else None for v in value]
        parts = [(kinds.index(kind), value[kinds.index(kind)]) for kind in dict.fromkeys(kinds)]
    for key, inner in parts:
        yield from places(inner, (*at, key))


def within(value, at):
    return functools.reduce(operator.getitem, at, value)


def test_a_value_of_another_type_and_an_unknown_key_at_every_place(texts, opinions):
    for member in ["measurements.json", "release.json"]:
        document, tried = json.loads(texts[member]), 0
        for at in places(document):
            if at[:1] in [(key,) for key in FREE] or at == ("plan",):
                continue
            old = within(document, at)
            changes = [(at[:-1], at[-1], value) for value in other_types(old) if at]
            if isinstance(old, dict) and at != ("accuracy", "analyses") and "levels" not in at:
                changes.append((at, "more", "Sentinel"))
            for where, key, value in changes:
                if at[:1] == ("schema",) and type(old) is int and type(value) is float:
                    continue  # a bound may be a float
                changed = json.loads(texts[member])
                within(changed, where)[key] = value
                change = operator.methodcaller("update", changed)
                read, agreed = opinions(in_json(texts, member, change))
                tried += 1
                if at[:1] != ("accuracy",):  # which dpstats computes again when it is shown
                    assert not read, (at, value)
                if at[-1:] != ("missing",) or not isinstance(value, str):  # which may be a date
                    assert not agreed, (at, value)
        assert tried > 20


TEXTS = {
    "a key twice": lambda text: text.replace('"version"', '"version": 3, "version"', 1),
    "no number": lambda text: text.replace('"version"', '"more": NaN, "version"', 1),
    "half a character": lambda text: text.replace(": \"", ': "\\ud800', 1),
    "a mark of its bytes": lambda text: "\ufeff" + text,
    "a version that is a float": lambda text: text.replace('"version": 3', '"version": 3.0', 1),
}  # fmt: skip


def test_json_of_several_meanings(texts, opinions):
    for member, how in itertools.product(["measurements.json", "release.json"], TEXTS):
        changed = TEXTS[how](texts[member])
        assert changed != texts[member]
        assert opinions(texts | {member: changed}) == REFUSED, how


def unreduced(text):
    return "{}/{}".format(*(7 * part for part in Fraction(text).as_integer_ratio()))


def divide(divisor, *roles):
    """Less noise for the blocks of some roles, or for all."""

    def change(plain):
        for block in plain["blocks"]:
            if block["role"] in roles or not roles:
                block["multiplier"] = str(Fraction(block["multiplier"]) / divisor)

    return change


VALUES = {
    "a multiplier of other terms": lambda p: p["blocks"][0].update(
        multiplier=unreduced(p["blocks"][0]["multiplier"])),
    "a table without residuals": lambda p: p.update(tables=[["region", "smoker"]]),
    "noise that does not spend the budget": divide(100),
    "the role of another block": lambda p: p["blocks"][0].update(role="count"),
    "a key of another name": lambda p: p["blocks"][0].update(
        multiplied=p["blocks"][0].pop("multiplier")),
    "rows that no table has": lambda p: p.update(rows=0),
    "one row per person, which is not written": lambda p: p.update(rows_per_person=1),
    "a bin of no width": lambda p: p["schema"][3].update(edges=[18, 18, 65]),
    "noise of a test source": lambda p: p.update(not_private=True),
}  # fmt: skip


def test_values_that_no_file_has(texts, opinions, tmp_path):
    for how in VALUES:
        read, agreed = opinions(in_json(texts, "measurements.json", VALUES[how]))
        # a summary says it of a test source
        assert not read or "NOT PRIVATE" in str(dps.load(tmp_path / "r.zip")), how
        assert read == (how == "noise of a test source"), how
        assert not agreed, how


def test_members_that_a_release_does_not_have(texts, opinions, tmp_path):
    for name in ("raw.csv", "../../evil.txt"):
        assert not opinions(texts | {name: "Sentinel\n"})[0]
        wrong = verify(tmp_path / "r.zip").wrong
        assert wrong == (f"members that dpstats does not write: {[name]}",)
    for name in texts:
        assert opinions(texts, (name, "{}")) == REFUSED
        assert opinions({key: text for key, text in texts.items() if key != name}) == REFUSED
    # Measurements alone have two members.
    own = {name: texts[name] for name in ("measurements.json", "answers.csv")}
    path = packed(tmp_path / "m.zip", own)
    dps.Measurements.load(path)
    assert agrees(path)
    for name in ("rows.csv", "candidates.csv", "raw.csv"):
        packed(path, own | {name: texts.get(name, "Sentinel\n")})
        with pytest.raises(FileFormatError, match="those alone"):
            dps.Measurements.load(path)
        assert not agrees(path)


def test_members_together_are_no_larger_than_a_file(saved, monkeypatch):
    path = saved / "replace.zip"
    with zipfile.ZipFile(path) as archive:
        total = sum(info.file_size for info in archive.infolist())
    for most, read in ((total, True), (total - 1, False)):
        monkeypatch.setattr(archives, "MOST_BYTES", most)
        monkeypatch.setattr(reading, "_MOST", most)
        assert loads(path) == read
        assert agrees(path) == read


def cell(row, column, change):
    def changed(text):
        lines = list(csv.reader(io.StringIO(text)))
        counts = [int(line[-1]) for line in lines[1:]] if row == "most" else []
        at = 1 + counts.index(max(counts)) if counts else row  # of a row already
        lines[at][column] = str(change(lines[at][column]))
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        return buffer.getvalue()

    return changed


def large(row):
    return cell(row, -1, lambda _: 2**62)


def swapped(text):
    head, first, *others = text.splitlines()
    return "\n".join([head, *others, first]) + "\n"


ODD = ['"', "\x00", "block,function,name,noisy_sum,uniform\n0,0," + "x" * 200_000 + ",1,0.1\n"]
TABLES = {
    ("answers.csv", "half"): lambda text: text[: len(text) // 2],
    ("candidates.csv", "half"): lambda text: text[: len(text) // 2],
    ("candidates.csv", "its header alone"): lambda text: text.splitlines()[0] + "\n",
    **{("answers.csv", f"odd text {i}"): lambda _, odd=odd: odd for i, odd in enumerate(ODD)},
    ("answers.csv", "the name of another"): lambda text: text.replace("smoker", "hiv", 1),
    ("answers.csv", "another order of functions"): swapped,
    ("answers.csv", "the other end"): cell(1, 4, lambda c: "-0.5"),
    ("candidates.csv", "more rows than an integer holds"): lambda text: large(1)(large(2)(text)),
    ("answers.csv", "another heading"): lambda text: text.replace("noisy_sum", "sum"),
    ("answers.csv", "a text"): cell(1, 3, lambda c: "nine"),
    ("answers.csv", "beyond 64 bits"): cell(1, 3, lambda c: 2**70),
    ("answers.csv", "no such block"): cell(1, 0, lambda c: "99"),
    ("answers.csv", "a zero before"): cell(2, 3, lambda c: f"0{c.lstrip('-')}"),
    ("answers.csv", "a number in other digits"): cell(1, 1, lambda c: "\u0660"),
    ("answers.csv", "hidden digits"): cell(1, 4, lambda c: f"{c}00012345678"),
    ("answers.csv", "other ends of lines"): lambda text: text.replace("\n", "\r\n"),
    ("candidates.csv", "another heading"): lambda text: text.replace("_count", "count"),
    ("candidates.csv", "no such code"): cell(1, 0, lambda c: "99"),
    ("candidates.csv", "a negative count"): cell(1, -1, lambda c: "-3"),
    ("candidates.csv", "too large a weight"): cell(1, -2, lambda c: "0.9"),
    ("candidates.csv", "hidden digits"): cell(1, -2, lambda c: f"{c}0001234"),
    ("candidates.csv", "a cell more"): lambda text: text.replace("\n", ",0\n"),
    ("rows.csv", "a row more"): lambda text: text + text.splitlines()[1] + "\n",
    ("rows.csv", "a value"): cell(1, 0, lambda c: "south" if c == "north" else "north"),
    ("rows.csv", "hidden digits"): cell(1, 2, lambda c: f"{c}000000001"),
    ("rows.csv", "another missing value"): lambda text: text.replace("nan", "", 1),
    ("rows.csv", "another order"): swapped,
}  # fmt: skip


def test_tables_that_dpstats_does_not_write(texts, opinions):
    for which, change in TABLES.items():
        member, how = which
        changed = change(texts[member])
        assert changed != texts[member]
        # It knows the rows and not their order, and functions by their numbers.
        known = how in ("another order", "the name of another")
        assert opinions(texts | {member: changed}) == (False, known), which


CELLS = {
    ("candidates.csv", "a count"): cell("most", -1, lambda c: int(c) + 1),
    ("candidates.csv", "a code"): cell("most", 0, lambda c: 1 - int(c) if int(c) < 2 else 0),
    ("candidates.csv", "a weight"): cell(3, -2, lambda c: float(c) + 0.01),
    ("answers.csv", "an answer"): cell(1, 3, lambda c: int(c) + 3000),
    ("answers.csv", "a uniform"): cell(1, 4, lambda c: 0.7),
    ("answers.csv", "another function"): cell(1, 1, lambda c: 1),
}  # fmt: skip


def leave_one_out(plain):
    for block in plain["blocks"]:  # as if the condition cost nothing
        share = 1 - 1 / Fraction(block["multiplier"]) / 2
        block["multiplier"] = str(Fraction(block["multiplier"]) * share)


def smaller_delta(plain):
    plain["accuracy"]["delta"] *= 0.99


COSTS = [
    lambda plain: plain["budget"].update(epsilon="1"),  # noise of 2
    divide(2),
    leave_one_out,
    lambda plain: plain.update(unit="add_remove"),
]


def test_what_verify_alone_compares(texts, tmp_path, monkeypatch):
    path = tmp_path / "r.zip"

    def wrong(changed):
        return verify(packed(path, changed)).wrong

    for which, change in CELLS.items():
        assert wrong(texts | {which[0]: change(texts[which[0]])}), which
    for plant in COSTS:
        assert wrong(in_json(texts, "measurements.json", plant))
        assert "agrees" not in verify(path).text.splitlines()
    (found,) = wrong(in_json(texts, "release.json", smaller_delta))
    assert "the certificate states delta" in found
    (found,) = wrong(in_json(texts, "measurements.json", lambda p: p.update(person="no one")))
    assert found == "the file does not say that it protects persons with one row"
    assert wrong(texts) == ()
    with zipfile.ZipFile(path) as archive:
        digests = archive.read("digests.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("digests.json", digests)
        for name, text in (texts | {"rows.csv": texts["rows.csv"] + "\n"}).items():
            archive.writestr(name, text)
    assert any("SHA-256" in one for one in verify(path).wrong)
    right = certificate.jointly
    monkeypatch.setattr(
        certificate, "jointly", lambda *given: {s: q // 2 for s, q in right(*given).items()}
    )
    assert "larger by a factor" in verify(path).text.split("Certificate: ")[1]


def test_a_certificate_of_combined_tables_just_too_small(whole, rows, tmp_path):
    path = tmp_path / "r.zip"
    dps.release(whole(dps.ZCDP(0.001), "replace", "tables"), rows, m=60, rng=1).save(path)
    (wrong,) = verify(packed(path, in_json(texts_of(path), "release.json", smaller_delta))).wrong
    assert "the certificate states delta" in wrong


def in_design(**changes):
    return lambda plain: plain["design"].update(changes)


def in_contrasts(**changes):
    return lambda plain: [b.update(changes) for b in plain["blocks"] if b["role"] == "contrasts"]


def a_common_cell(plain):
    sets = next(b for b in plain["blocks"] if b["kind"] == "partition")["sets"]
    sets[0]["cells"].append(sets[1]["cells"][0])


OF_DESIGNS = {
    "weights of one step": divide(STEPS),
    "contrasts of half the noise": divide(2, "contrasts"),
    "no count": lambda plain: plain["blocks"].pop(),
    "no design": lambda plain: plain.pop("design"),
    "a unit more": in_design(units=[["north", [1, 2, 3, 4, 5, 6, 7]], ["south", [11, 12]]]),
    "an odd unit": in_design(units=[["north", [1, 2, 3, 4, 5]], ["south", [11, 12, 13]]]),
    "units of two types": in_design(units=[["north", [1, 2, 3, 4, "5"]], ["south", [11, 12]]]),
    "more pairs": in_contrasts(pairs=[7, 1]),
    "no triples": in_contrasts(triples=[0, 0]),
    "contrasts of contrasts": in_contrasts(
        base={"kind": "contrasts", "pairs": [2, 1], "triples": [1, 1],
              "base": {"kind": "table", "columns": ["smoker"]}}
    ),
    "a cell in two sets": a_common_cell,
    "a small cap": in_design(cap=200),
    "a negative cap": in_design(cap=-2_500),
    "no cap": in_design(cap=None),
    "a mean beyond the bounds": in_design(mean=10_000, cap=9_000),
    "another key": in_design(more=1),
}  # fmt: skip


def test_an_edited_archive_of_a_survey_is_refused_by_both(weighted, survey, opinions, tmp_path):
    asked = {"apart": dps.Difference("smoker", by="level", groups=("a", "b")), "m": dps.Mean("age")}
    schema = weighted(dps.PureDP(2), "replace").schema
    plan = dps.plan(schema, asked, budget=dps.PureDP(2), n=500)
    dps.release(plan, survey, m=60, k=40, rng=1).save(tmp_path / "saved.zip")
    texts = texts_of(tmp_path / "saved.zip")
    assert opinions(in_json(texts, "measurements.json", lambda plan: None)) == (True, True)
    for name, edit in OF_DESIGNS.items():
        assert opinions(in_json(texts, "measurements.json", edit)) == REFUSED, name
    document = json.loads(texts["measurements.json"])
    document["design"]["cap"] = 2_600  # which the digest of the plan covers
    assert opinions(texts | {"measurements.json": json.dumps(document)}) == REFUSED
