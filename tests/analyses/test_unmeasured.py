"""Every analysis on releases that measured other columns, and bounds of its functions there."""

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.bounds.bounding import UNKNOWN

OTHERS = {
    "region": dps.GoodnessOfFit("region", [0.5, 0.3, 0.2]),
    "retired": dps.Proportion("retired"),
    "score": dps.Mean("score"),
}


@pytest.fixture(scope="module")
def of_others(people):
    """A release of one column each."""
    return {
        name: dps.release(
            dps.plan(people.schema, {name: asked}, budget=dps.PureDP(3)), people.rows, m=50, rng=1
        )
        for name, asked in OTHERS.items()
    }


def test_an_analysis_of_unmeasured_columns_is_out_of_reach(example, people, of_others):
    used = example.family(people.schema).column_names
    release = next(of_others[name] for name in OTHERS if name not in used)
    with pytest.raises(dps.NotMeasuredError, match="this release cannot answer"):
        release.infer(example)
    found = release.explain(example)
    assert found.verdict == "out of reach"
    assert np.all(found.bounds.low <= found.bounds.high)
    assert set(found.bounds.known_from) == {UNKNOWN}


ERROR = 1e-5  # of each interval, since the noise is not fixed
UNITS = {"replace": dps.PureDP(3), "add_remove": dps.ZCDP(0.1)}


@pytest.fixture(scope="module")
def of_pairs(people):
    """Releases of all pair tables; pay has no bins, so that nothing is known of it alone."""
    asked = {"pairs": dps.Marginals([c.name for c in people.schema if c.bins > 1])}
    return {
        unit: dps.release(
            dps.plan(people.schema, asked, budget=budget, unit=unit), people.rows, m=100, rng=1
        )
        for unit, budget in UNITS.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_functions_that_were_not_measured(example, people, of_pairs, unit):
    family = example.family(people.schema).answering
    batch = pa.RecordBatch.from_pandas(people.rows, preserve_index=False)
    sums = np.concatenate(family.sums(people.schema.encode(batch)))
    truth = sums / (len(people.rows) * family.bounds)
    found = of_pairs[unit].bound(family, alpha=ERROR)
    assert np.all((found.low <= truth + 1e-9) & (truth <= found.high + 1e-9))
    nothing = family.column_names == {"pay"} or "combinations of levels" in "".join(found.notes)
    assert found.informative.any() != nothing
