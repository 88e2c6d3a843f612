"""Ledgers of every kind, with requests of every kind."""

import re

from dpstats.cli import OVER_BUDGET, REFUSED


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
