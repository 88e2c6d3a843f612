"""One measurement: what it spends, holds and refuses."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.privacy import noise

ANALYSES = {"p": dps.Proportion("smoker == 'yes'"), "t": dps.Marginals(["smoker", "age"])}


def make_plan(schema, **options):
    return dps.plan(schema, ANALYSES, **{"budget": dps.PureDP(1), **options})


def test_ledger_is_written_before_noise_is_drawn(schema, survey, tmp_path):
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(2))
    seen = []

    def source(scale, size):
        seen.append(dps.Ledger.open(tmp_path / "ledger").spent)
        return np.zeros(size, dtype=np.int64)

    survey.to_csv(tmp_path / "survey.csv", index=False)
    with noise._noise_from(source):
        dps.measure(make_plan(schema), tmp_path / "survey.csv", ledger=tmp_path / "ledger")
    assert set(seen) == {ledger.spent} == {1}
    assert ledger.spendings[0].data == "survey.csv"  # without its folder


def test_measurements_that_were_changed_are_refused(schema, survey):
    """The noise follows from the budget; a private number of rows is known with noise alone."""
    measured = dps.measure(make_plan(schema, budget=dps.ZCDP(0.1)), survey)
    for budget in (dps.PureDP(Fraction(1, 10)), dps.ZCDP(0.2)):
        changed = replace(measured, strategy=replace(measured.strategy, budget=budget))
        with pytest.raises(dps.FileFormatError, match="edited by hand"):
            dps.Measurements.from_members(changed.to_members())
    for name in ("noisy_sums", "uniforms"):
        with pytest.raises(dps.RequestError, match=f"as many {name}"):
            replace(measured, **{name: getattr(measured, name)[1:]})
    with pytest.raises(dps.RequestError, match="public number of rows"):
        replace(measured, strategy=replace(measured.strategy, n=None))
    private = dps.measure(make_plan(schema, unit="add_remove"), survey)
    with pytest.raises(dps.RequestError, match="none but the noisy one"):
        replace(private, strategy=replace(private.strategy, n=len(survey)))
    members = private.to_members()
    document = json.loads(members["measurements.json"])
    edited = json.dumps({**document, "rows": len(survey)})
    with pytest.raises(dps.FileFormatError, match="none but the noisy one"):
        dps.Measurements.from_members({**members, "measurements.json": edited})


def test_an_empty_line_of_a_one_column_file_is_a_row(tmp_path):
    # Were it dropped, the published n would distinguish a missing cell from any other.
    schema = dps.Schema([dps.Category("t", ["a", "b"])])
    plan = dps.plan(schema, {"p": dps.Proportion("t == 'a'")}, budget=dps.PureDP(1), n=3)
    for number, text in enumerate(("t\na\nb\na\n", "t\na\n\na\n", 't\na\n""\na', "t\na\nb\n\n")):
        path = tmp_path / f"{number}.csv"
        path.write_text(text)
        assert dps.measure(plan, path).n == 3
