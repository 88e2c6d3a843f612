"""Neighbours that add or remove a row: the exact number of rows appears nowhere."""

import pickle
import re
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from
from dpstats.private import measure as measuring
from dpstats.private.sources import Source

ROWS = 48_611
SCHEMA = dps.Schema([dps.Category("c", ["u", "v", "w"]), dps.Boolean("b")])
BUDGETS = pytest.mark.parametrize(
    "budget", [dps.PureDP(1e-4), dps.ZCDP(1e-8)], ids=["laplace", "gaussian"]
)


def numbers_shown(budget, tmp_path, caplog):
    """Every whole number in the file, the texts, the log and the pickle of a release."""
    rows = pd.DataFrame({"c": np.resize(["u", "v"], ROWS), "b": np.resize([True, False], ROWS)})
    analyses = {"t": dps.Proportion("c == 'u'"), "g": dps.GoodnessOfFit("c", [0.4, 0.4, 0.2])}
    plan = dps.plan(SCHEMA, analyses, budget=budget, unit="add_remove")
    caplog.clear()
    with caplog.at_level("DEBUG"):
        release = dps.release(plan, rows, rng=0, m=50)
    release.save(tmp_path / "release.zip", overwrite=True)
    with zipfile.ZipFile(tmp_path / "release.zip") as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    copied = pickle.loads(pickle.dumps(release))
    texts += [str(copied), str(release.accuracy()), caplog.text, repr(vars(copied.measurements))]
    texts += [release.infer(name).summary() for name in analyses]
    texts += [re.sub(r"(?<=\d)[,_ ](?=\d{3})", "", text) for text in texts]  # 48,611
    return {int(number) for text in texts for number in re.findall(r"\d+", text)}


@BUDGETS
def test_p67_the_exact_n_is_nowhere(budget, tmp_path, caplog):
    """Noise of this size leaves it as it is once in 20,000 times; twice in a row is no chance."""
    assert any(ROWS not in numbers_shown(budget, tmp_path, caplog) for _ in range(2))


@BUDGETS
def test_p67_a_planted_exact_n_is_found(budget, tmp_path, caplog):
    with _noise_from(lambda scale, size: np.zeros(size, dtype=np.int64)):
        assert ROWS in numbers_shown(budget, tmp_path, caplog)


@pytest.mark.parametrize(
    ("analyses", "rows"),
    [({"t": dps.Proportion("b")}, 0), ({"l": dps.Logistic("b ~ c", stages=2)}, 1_009)],
)
def test_p67_a_guess_of_n_decides_nothing(analyses, rows, seeded_noise, tmp_path):
    """Right, wrong or none, of a table of some rows or of none: the same in every file and text."""
    data = pd.DataFrame({"c": np.resize(["u", "v"], rows), "b": np.resize([True, False], rows)})
    data.to_csv(tmp_path / "data.csv", index=False)
    data = data.astype({"c": object, "b": bool})
    seen = []
    for guess in (None, max(rows, 1), 10**9):
        plan = dps.plan(SCHEMA, analyses, budget=dps.PureDP(1), unit="add_remove", n=guess)
        for number, table in enumerate((data, tmp_path / "data.csv")):
            ledger = tmp_path / f"ledger {guess} {number}"
            dps.Ledger.create(ledger, dps.PureDP(1), unit="add_remove")
            said = []
            with _noise_from(seeded_noise(5)):
                measured = dps.measure(
                    plan, table, ledger=ledger, progress=lambda *a, said=said: said.append(a)
                )
            assert measured.strategy.n is None
            seen.append((measured.to_members(), str(measured), said[-1]))
            assert dps.Ledger.open(ledger).spent == 1
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("where", ["spend", "draw"])
def test_p67_a_failure_holds_no_exact_n(where, monkeypatch, tmp_path):
    """No frame of a traceback has it, whatever fails once the rows are read."""

    def fail(*given, **options):
        raise dps.BudgetError("another process has spent it")

    plan = dps.plan(SCHEMA, {"t": dps.Proportion("b")}, budget=dps.PureDP(1), unit="add_remove")
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1), unit="add_remove")
    pq.write_table(pa.table({"c": ["u"] * 1_009, "b": [True] * 1_009}), tmp_path / "rows.parquet")
    target = (dps.Ledger, "spend") if where == "spend" else (measuring, "_with_noise")
    monkeypatch.setattr(*target, fail)
    with pytest.raises(dps.BudgetError) as caught:
        dps.measure(plan, tmp_path / "rows.parquet", ledger=ledger)  # it states the number
    held = [v for f in caught.traceback if "dpstats" in str(f.path)
            for v in f.frame.f_locals.values()]  # fmt: skip
    assert held
    assert 1_009 not in [value for value in held if isinstance(value, int)]
    assert all(value.rows is None for value in held if isinstance(value, Source))
