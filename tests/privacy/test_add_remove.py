"""Neighbours that add or remove a row: the exact number of rows appears nowhere."""

import pickle
import re
import zipfile

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from
from dpstats.private import measure as measuring
from dpstats.private.sources import Source

ROWS = 48_611
SCHEMA = dps.Schema([dps.Category("c", ["u", "v", "w"]), dps.Boolean("b")])
ONE = dps.PureDP(1)


def planned(budget=ONE, n=None, **asked):
    return dps.plan(SCHEMA, asked, budget=budget, unit="add_remove", n=n)


def rows(n):
    cells = {"c": np.resize(["u", "v"], n), "b": np.resize([True, False], n)}
    return pd.DataFrame(cells).astype({"c": object, "b": bool})


@pytest.mark.parametrize("budget", [dps.PureDP(1e-4), dps.ZCDP(1e-8)], ids=type)
def test_p67_the_exact_n_is_nowhere_and_a_planted_one_is_found(
    budget, tmp_path, caplog, silent_noise
):
    """Noise of this size leaves it as it is once in 20,000 times; twice in a row is no chance."""
    plan = planned(budget, t=dps.Proportion("c == 'u'"), g=dps.GoodnessOfFit("c", [0.4, 0.4, 0.2]))
    path = tmp_path / "release.zip"

    def shown():
        """Every whole number in the file, the texts, the log and the pickle of a release."""
        caplog.clear()
        with caplog.at_level("DEBUG"):
            release = dps.release(plan, rows(ROWS), rng=0, m=50)
        release.save(path, overwrite=True)
        with zipfile.ZipFile(path) as archive:
            texts = [archive.read(name).decode() for name in archive.namelist()]
        copied = pickle.loads(pickle.dumps(release))
        texts += [str(copied), str(release.accuracy()), caplog.text]
        texts += [repr(vars(copied.measurements))]
        texts += [release.infer(name).summary() for name in plan.analyses]
        texts += [re.sub(r"(?<=\d)[,_ ](?=\d{3})", "", text) for text in texts]  # 48,611
        return {int(number) for text in texts for number in re.findall(r"\d+", text)}

    assert any(ROWS not in shown() for _ in range(2))
    with _noise_from(silent_noise):
        assert ROWS in shown()


@pytest.mark.parametrize(
    ("asked", "n"), [(dps.Proportion("b"), 0), (dps.Logistic("b ~ c", stages=2), 1_009)]
)
def test_p67_a_guess_of_n_decides_nothing(asked, n, seeded_noise, tmp_path):
    """Right, wrong or none, of a table of some rows or of none: the same in every file and text."""
    data = rows(n)
    data.to_csv(tmp_path / "data.csv", index=False)
    seen = []
    for guess in (None, max(n, 1), 10**9):
        plan = planned(n=guess, a=asked)
        for number, table in enumerate((data, tmp_path / "data.csv")):
            path = tmp_path / f"ledger {guess} {number}"
            ledger, said = dps.Ledger.create(path, ONE, unit="add_remove"), []
            with _noise_from(seeded_noise(5)):
                measured = dps.measure(
                    plan, table, ledger=ledger, progress=lambda *a, said=said: said.append(a)
                )
            assert measured.strategy.n is None
            seen.append((measured.to_members(), str(measured), said[-1]))
            assert ledger.spent == 1
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("target", [(dps.Ledger, "spend"), (measuring, "_with_noise")], ids=str)
def test_p67_a_failure_holds_no_exact_n(target, monkeypatch, tmp_path):
    """No frame of a traceback has it, whatever fails once the rows are read."""

    def fail(*given, **options):
        raise dps.BudgetError("another process has spent it")

    ledger = dps.Ledger.create(tmp_path / "ledger", ONE, unit="add_remove")
    rows(1_009).to_parquet(tmp_path / "rows.parquet")  # which states the number
    monkeypatch.setattr(*target, fail)
    with pytest.raises(dps.BudgetError) as caught:
        dps.measure(planned(t=dps.Proportion("b")), tmp_path / "rows.parquet", ledger=ledger)
    held = [v for f in caught.traceback if "dpstats" in str(f.path)
            for v in f.frame.f_locals.values()]  # fmt: skip
    assert held
    assert 1_009 not in [value for value in held if isinstance(value, int)]
    assert all(value.rows is None for value in held if isinstance(value, Source))
