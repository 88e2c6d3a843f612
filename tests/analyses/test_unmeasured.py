"""Of a release that measured other columns, every analysis is out of reach, and says so."""

import numpy as np
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
