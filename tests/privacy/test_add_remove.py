"""Neighbours that add or remove a row: the exact number of rows appears nowhere."""

import pickle
import re
import zipfile
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from

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


@pytest.mark.parametrize("allocation", ["equal", "optimal"])
@pytest.mark.parametrize(
    "budget", [dps.PureDP(Fraction(1, 3)), dps.ZCDP(0.1)], ids=["laplace", "gaussian"]
)
def test_p03_the_count_is_paid_for_exactly(budget, allocation):
    analyses = {"t": dps.Marginals(["c", "b"], 2), "p": dps.Proportion("b and c == 'u'")}
    plan = dps.plan(SCHEMA, analyses, budget=budget, unit="add_remove", allocation=allocation)
    assert plan.cost() == budget.total
    without = plan.cost() - budget.cost(
        plan.count.block.sensitivity("add_remove"), plan.count.multiplier
    )
    assert 0 < without < budget.total
    again = dps.Plan.from_dict(plan.to_dict())
    assert (again.count, again.blocks) == (plan.count, plan.blocks)
