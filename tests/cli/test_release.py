"""Release and ledger: what is spent, who decides, what is kept."""

import io
import re
import sys

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, OVER_BUDGET, REFUSED, main
from dpstats.planning.requests import load_request

RELEASE = "release request.toml survey.csv --m 50"


def test_seed_repeats_rows_but_never_noise(folder, printed, streams):
    for name in ("a.zip", "b.zip"):
        _, err = streams(f"{RELEASE} --unchecked --rng 1 -o {name}")
        assert "reading rows" in err
    assert not list(folder.glob("*.measurements.zip"))  # they are in the releases
    refused = printed(f"{RELEASE} --unchecked -o a.zip", code=REFUSED)
    assert "is kept; name another file, or replace it with overwrite=True;" in refused
    first, second = dps.load("a.zip"), dps.load("b.zip")
    assert list(first.measurements.means) != list(second.measurements.means)
    pd.testing.assert_frame_equal(pd.DataFrame(first.candidates), pd.DataFrame(second.candidates))


@pytest.mark.parametrize("fits", [True, False])
def test_without_a_terminal_a_flag_says_whether_somebody_looked(folder, fits, printed, monkeypatch):
    monkeypatch.setattr("dpstats.private.fit_of_schema.check", lambda *a: pytest.fail("it ran"))
    if not fits:
        (folder / "survey.csv").write_text("Ann;44\n")
    printed("ledger new book --cap 9")
    release = f"{RELEASE} --ledger book -o out.zip"
    refused = printed(release, code=REFUSED)
    assert "nobody can be asked whether the table fits" in refused
    assert dps.Ledger.open("book").spent == 0
    printed(f"{release} --checked", code=DONE if fits else REFUSED)
    with pytest.raises(SystemExit, match="2"):
        printed(f"{release} --checked --unchecked")


class Terminal(io.StringIO):
    """What a person types, or sees."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "flags", "looks", "spends"),
    [("n\ny\n", "", False, True), ("", "", False, False), ("y\ny\n", "", True, True),
     ("y\nn\n", "", True, False), ("", " --unchecked", False, True)],
)  # fmt: skip
def test_on_a_terminal_a_person_decides(folder, monkeypatch, typed, flags, looks, spends):
    seen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", seen)
    digest = load_request("request.toml").digest[:16]
    assert main(f"{RELEASE} -o out.zip{flags}".split()) == (DONE if spends else REFUSED)
    assert (folder / "out.zip").exists() == spends
    text = seen.getvalue().replace("\n    ", " ")  # lines that were wrapped
    assert ("look at the fit of the schema first? [y/N] " in text) == (not flags)
    assert ("not private: do not publish" in text) == looks
    asked = f"spend epsilon = 1 under plan {digest}, no ledger records it, write out.zip? [y/N] "
    assert (asked in text) == (not flags)
    assert text.endswith("dpstats: you declined; nothing was spent\n") == (not spends)


def test_a_plan_of_another_digest_is_refused_before_anything_is_read(folder, printed):
    digest = load_request("request.toml").digest
    other = f"dpstats: the plan has the digest {digest[:16]}, not that of"
    last = digest[:-1] + ("1" if digest[-1] == "0" else "0")
    for given, says in {
        "0" * 16: other, last: other, digest + "0": other,
        digest[:15]: "needs the 16 digits that 'dpstats show' prints",
        **dict.fromkeys((digest, digest[:16], digest[:16].upper()), "there is no file 'none.csv'"),
    }.items():  # fmt: skip
        release = f"release request.toml none.csv --unchecked -o out.zip --digest {given}"
        assert says in printed(release, code=REFUSED)


def test_the_terminal_shows_no_number_of_rows_where_it_is_private(folder, monkeypatch):
    request = (folder / "request.toml").read_text()
    (folder / "request.toml").write_text('unit = "add_remove"\n' + request)
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    rows = pd.read_csv("survey.csv").iloc[:1_987]
    rows.to_csv("survey.csv", index=False)
    rows.to_parquet("survey.parquet")
    for data in ("survey.csv", "survey.parquet"):
        release = f"{RELEASE} --unchecked -o {data}.zip --k 20".replace("survey.csv", data, 1)
        assert main(release.split()) == DONE
    assert "reading rows 100%" in seen.getvalue()
    assert "1987" not in seen.getvalue().replace(",", "")


def test_a_ledger_of_persons_counts_no_rows(folder, printed):
    new = "ledger new book --cap 1 --person id"
    assert "leave --rows-per-person out" in printed(f"{new} --rows-per-person 3", code=REFUSED)
    printed(new)


def test_a_ledger_and_a_request_of_approximate_privacy(folder, printed, streams, fast):
    request = (folder / "request.toml").read_text()
    whole = "epsilon = 1\ndelta = 1e-6"
    (folder / "request.toml").write_text(request.replace("epsilon = 1", whole, 1))
    release = "release --unchecked request.toml survey.csv --m 50 -o"
    new = "ledger new book --kind approx --cap 1.2"
    assert "give --delta with --kind approx" in printed(new, code=REFUSED)
    assert "epsilon = 1.2 at delta = 1e-06" in printed(f"{new} --delta 1e-6")
    spent = printed(f"{release} out.zip --ledger book")
    assert "epsilon = 1, delta = 1e-06 (approximate" in spent
    refused = printed(f"{release} out.zip --overwrite --ledger book", code=OVER_BUDGET)
    assert "requested 0.027634" in refused
    assert re.search(r"spent .*: epsilon = 1 at delta = 1e-06", printed("ledger show book"))
    solved = printed("preview request.toml --of smoking --width 0.5 --budget 0.5")
    assert "(epsilon = 0.5 at delta = 1e-06)" in solved
    _, hint = streams(f"{release} other.zip")
    assert "--kind approx --cap EPSILON --delta DELTA" in hint
