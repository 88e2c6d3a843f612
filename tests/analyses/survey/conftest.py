"""A survey whose figures R gave, and releases of it with next to no noise."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.analyses.survey import rao_scott, weighted
from dpstats.analyses.survey.weighted import Estimates, Totals

DATA = Path(__file__).parents[2] / "data"
FIGURES = json.loads((DATA / "survey.json").read_text("utf-8"))
ABOUT = FIGURES["survey"]["about"]
ROWS = pd.read_csv(DATA / "survey.csv").assign(age10=lambda rows: rows["age"] / 10)
HUGE = dps.PureDP(1e9)
COLUMNS = [
    dps.Boolean("ill"), dps.Category("sex", ["f", "m"]),
    dps.Category("region", ["coast", "hills", "plain"]),
    dps.Number("income", 0, 100, points=1001, edges=range(10, 100, 10), missing=0),
    dps.Number("age", 18, 90, points=73, missing=18),
    dps.Number("age10", 1.8, 9, points=73, missing=1.8,
               edges=[(age + 0.5) / 10 for age in range(18, 90)]),
    dps.Number("visits", 0, 20, points=21, missing=0),
]  # fmt: skip


def units_of(frame, stratum="stratum", unit="psu"):
    """Keys of the units of every stratum."""
    return {str(h): sorted(set(rows[unit].tolist())) for h, rows in frame.groupby(stratum)}


def design_of(frame=ROWS, **options):
    """The design of the survey; its mean weight is that of the rows."""
    given = {"mean": ABOUT["mean_weight"], "cap": ABOUT["cap"], "units": units_of(frame)}
    return dps.Design("w", strata="stratum", unit="psu", **(given | options))


def schema_of(*columns, frame=ROWS, **options):
    return dps.Schema(list(columns or COLUMNS), design=design_of(frame, **options))


def released(asked, schema, budget=HUGE, rows=ROWS, unit="add_remove"):
    """A release of rows of the survey for analyses by name, or for one of the name ``x``."""
    asked = asked if isinstance(asked, dict) else {"x": asked}
    options = {"budget": budget, "unit": unit, "n": len(rows), "reference": dps.Uniform()}
    return dps.release(dps.plan(schema, asked, **options), rows, rng=0, m=2, k=10)


def values_of(block, schema, frame=ROWS):
    """Functions (d, n) of a block at the rows, in unit scale."""
    columns = schema.select([column.name for column in block.columns])
    codes = columns.encode(pa.RecordBatch.from_pandas(frame))
    return block.functions(codes) / block.bounds[:, np.newaxis]


def with_all_contrasts(totals, block, schema, frame=ROWS, lonely=None):
    """Totals with contrasts of all units of a stratum in place of those of pairs.

    As many as there are degrees of freedom, orthogonal to each other and to the mean: the sum of
    their squares is the variance that R gives, as is the mean of those of pairs over all pairings.
    """
    of_rows = pd.DataFrame((frame["u"].to_numpy() * values_of(block, schema, frame)).T)
    sums = of_rows.groupby([frame["stratum"], frame["psu"]]).sum()
    contrasts = []
    for _, x in sums.groupby(level=0):
        m = len(x)
        if m == 1:
            contrasts += [] if lonely == "certainty" else [x.to_numpy()]
            continue
        basis = np.linalg.qr(np.column_stack([np.ones(m), np.eye(m)[:, 1:]]))[0][:, 1:]
        contrasts.append((m / (m - 1)) ** 0.5 * basis.T @ x.to_numpy())
    contrasts = np.concatenate(contrasts)
    noise = np.zeros_like(totals.contrast_noise)
    return replace(totals, contrasts=contrasts, factors=np.ones(len(contrasts)),
                   contrast_noise=noise)  # fmt: skip


def exact(part, schema, frame=ROWS, lonely=None):
    """Estimates with the variance of all contrasts."""
    block = part.estimand.block
    return Estimates(part.estimand, with_all_contrasts(part.totals, block, schema, frame, lonely))


@pytest.fixture(scope="session")
def surveyed():
    """Figures of R, the rows they were computed from, and releases of these."""
    return SimpleNamespace(
        all_figures=FIGURES, figures=FIGURES["survey"], rows=ROWS, df=ABOUT["degf"], data=DATA,
        columns=COLUMNS, units_of=units_of, design=design_of, schema=schema_of, release=released,
        values=values_of, exact=exact,
    )  # fmt: skip


@pytest.fixture
def all_contrasts(monkeypatch):
    """Contrasts of all units of a stratum in all results."""
    plain = Totals.of.__func__

    def of(cls, release, block, *, needed=True):
        totals = plain(cls, release, block, needed=needed)
        if not len(totals.factors):
            return totals
        return with_all_contrasts(totals, block, release.schema)

    monkeypatch.setattr(Totals, "of", classmethod(of))
    for module in (weighted, rao_scott):  # as many degrees of freedom as R takes
        whole = lambda squares, shape, most: np.full(squares.shape[1:], most)  # noqa: E731
        monkeypatch.setattr(module, "effective_number", whole)
