"""Release and synthesize: what is spent, who decides, what is kept."""

import io
import sys

import pandas as pd
import pytest

import dpstats as dps
from dpstats.cli import DONE, REFUSED, main
from dpstats.planning.requests import load_request


def test_nothing_is_spent_when_the_output_cannot_be_kept(folder, capsys):
    main(["ledger", "new", "book", "--cap", "5"])
    release = ["release", "--unchecked", "request.toml", "survey.csv", "--ledger", "book", "-o"]
    assert main([*release, "nowhere/out.zip"]) == REFUSED
    assert "nothing was spent" in capsys.readouterr().err
    for option, value in {"--m": 0, "--k": 10**11, "--rng": -1}.items():
        assert main([*release, "out.zip", option, str(value)]) == REFUSED
        assert f"dpstats: {option.lstrip('-')} must be" in capsys.readouterr().err
    assert dps.Ledger.open("book").spent == 0
    assert main([*release, "out.zip", "--m", "50"]) == DONE
    paid = (folder / "out.zip").read_bytes()
    assert main([*release, "out.zip"]) == REFUSED
    assert (
        "is kept; name another file, or replace it with overwrite=True;" in capsys.readouterr().err
    )
    assert (folder / "out.zip").read_bytes() == paid
    assert dps.Ledger.open("book").spent == 1


def test_seed_repeats_rows_but_never_noise(folder):
    for name in ("a.zip", "b.zip"):
        run = ["release", "--unchecked", "request.toml", "survey.csv", "--rng", "1", "--m", "50"]
        assert main([*run, "-o", name]) == DONE
    first, second = dps.load("a.zip"), dps.load("b.zip")
    assert list(first.measurements.means) != list(second.measurements.means)
    pd.testing.assert_frame_equal(pd.DataFrame(first.candidates), pd.DataFrame(second.candidates))


@pytest.mark.parametrize("fits", [True, False])
def test_without_a_terminal_a_flag_says_whether_somebody_looked(folder, fits, capsys, monkeypatch):
    monkeypatch.setattr("dpstats.private.fit_of_schema.check", lambda *a: pytest.fail("it ran"))
    if not fits:
        (folder / "survey.csv").write_text("Ann;44\n")
    main(["ledger", "new", "book", "--cap", "9"])
    release = ["release", "request.toml", "survey.csv", "--ledger", "book", "-o", "out.zip"]
    release += ["--m", "50"]
    assert main(release) == REFUSED
    assert "nobody can be asked whether the table fits" in capsys.readouterr().err
    assert dps.Ledger.open("book").spent == 0
    assert main([*release, "--checked"]) == (DONE if fits else REFUSED)
    with pytest.raises(SystemExit, match="2"):
        main([*release, "--checked", "--unchecked"])


class Terminal(io.StringIO):
    """What a person types, or sees."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "flags", "ending", "looks", "spends"),
    [
        ("n\ny\n", [], "", False, True),
        ("", [], "dpstats: you declined; nothing was spent\n", False, False),
        ("y\ny\n", [], "", True, True),
        ("y\nn\n", [], "dpstats: you declined; nothing was spent\n", True, False),
        ("", ["--unchecked"], "", False, True),
    ],
)
def test_on_a_terminal_a_person_decides(folder, monkeypatch, typed, flags, ending, looks, spends):
    seen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", seen)
    release = ["release", "request.toml", "survey.csv", "-o", "out.zip", "--m", "50"]
    digest = load_request("request.toml").digest[:16]
    assert main([*release, *flags]) == (DONE if spends else REFUSED)
    assert (folder / "out.zip").exists() == spends
    text = seen.getvalue().replace("\n    ", " ")  # lines that were wrapped
    assert ("look at the fit of the schema first? [y/N] " in text) == (not flags)
    assert ("not private: do not publish" in text) == looks
    asked = f"spend epsilon = 1 under plan {digest}, no ledger records it, write out.zip? [y/N] "
    assert (asked in text) == (not flags)
    assert text.endswith(ending)


def test_a_plan_of_another_digest_is_refused_before_anything_is_read(folder, monkeypatch, capsys):
    digest = load_request("request.toml").digest
    release = ["release", "request.toml", "none.csv", "--unchecked", "-o", "out.zip", "--digest"]
    for wrong in ("0" * 16, digest[:-1] + ("1" if digest[-1] == "0" else "0"), digest + "0"):
        assert main([*release, wrong]) == REFUSED
        said = capsys.readouterr().err
        assert said.startswith(f"dpstats: the plan has the digest {digest[:16]}, not that of")
    assert main([*release, digest[:15]]) == REFUSED
    assert "needs the 16 digits that 'dpstats show' prints" in capsys.readouterr().err
    for right in (digest, digest[:16], digest[:16].upper()):
        assert main([*release, right]) == REFUSED
        assert "there is no file 'none.csv'" in capsys.readouterr().err


def test_the_terminal_shows_no_number_of_rows_where_it_is_private(folder, monkeypatch, capsys):
    request = (folder / "request.toml").read_text()
    (folder / "request.toml").write_text('unit = "add_remove"\n' + request)
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    rows = pd.read_csv("survey.csv").iloc[:1_987]
    rows.to_csv("rows.csv", index=False)
    rows.to_parquet("rows.parquet")
    for data in ("rows.csv", "rows.parquet"):
        command = ["release", "--unchecked", "request.toml", data, "-o", f"{data}.zip"]
        assert main([*command, "--m", "50", "--k", "20"]) == DONE
    assert "reading rows 100%" in seen.getvalue()
    assert "1987" not in seen.getvalue().replace(",", "")
