"""Ledgers of every kind, with requests of every kind."""

import re

from dpstats.cli import DONE, OVER_BUDGET, REFUSED, main


def test_a_ledger_of_persons_counts_no_rows(folder, capsys):
    new = ["ledger", "new", "book", "--cap", "1", "--person", "id"]
    assert main([*new, "--rows-per-person", "3"]) == REFUSED
    assert "leave --rows-per-person out" in capsys.readouterr().err
    assert main(new) == DONE


def test_a_ledger_and_a_request_of_approximate_privacy(folder, capsys):
    request = (folder / "request.toml").read_text()
    whole = "epsilon = 1\ndelta = 1e-6"
    (folder / "request.toml").write_text(request.replace("epsilon = 1", whole, 1))
    release = ["release", "--unchecked", "request.toml", "survey.csv", "--m", "50"]
    release += ["-o", "out.zip"]
    new = ["ledger", "new", "book", "--kind", "approx", "--cap"]
    assert main([*new, "1.2"]) == REFUSED
    assert "give --delta with --kind approx" in capsys.readouterr().err
    assert main([*new, "1.2", "--delta", "1e-6"]) == DONE
    assert "epsilon = 1.2 at delta = 1e-06" in capsys.readouterr().out
    assert main([*release, "--ledger", "book"]) == DONE
    assert "epsilon = 1, delta = 1e-06 (approximate" in capsys.readouterr().out
    assert main([*release, "--overwrite", "--ledger", "book"]) == OVER_BUDGET
    assert "requested 0.027634" in capsys.readouterr().err
    assert main(["ledger", "show", "book"]) == DONE
    assert re.search(r"spent .*: epsilon = 1 at delta = 1e-06", capsys.readouterr().out)
    solve = ["preview", "request.toml", "--of", "smoking", "--width", "0.5"]
    assert main([*solve, "--budget", "0.5"]) == DONE
    assert "(epsilon = 0.5 at delta = 1e-06)" in capsys.readouterr().out
    assert main([*release[:-1], "other.zip"]) == DONE
    assert "--kind approx --cap EPSILON --delta DELTA" in capsys.readouterr().err
