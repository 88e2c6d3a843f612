"""The functions of every analysis have certified bounds, in the family of a release or not."""

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def means(people):
    """Means of functions over the private rows, in unit scale."""
    batch = pa.RecordBatch.from_pandas(people.rows, preserve_index=False)
    codes = people.schema.encode(batch)

    def of(family):
        return np.concatenate(family.sums(codes)) / (len(people.rows) * family.bounds)

    return of


@pytest.mark.parametrize("unit", UNITS)
def test_functions_that_were_not_measured(example, people, of_pairs, means, unit):
    family = example.family(people.schema).answering
    found = of_pairs[unit].bound(family, alpha=ERROR)
    truth = means(family)
    assert np.all(found.low <= truth + 1e-9)
    assert np.all(truth <= found.high + 1e-9)
    nothing = family.column_names == {"pay"} or "combinations of levels" in "".join(found.notes)
    assert found.informative.any() != nothing


@pytest.mark.parametrize("unit", UNITS)
def test_measured_functions_are_within_the_joint_certificate(example, people, means, unit):
    plan = dps.plan(people.schema, {"asked": example}, budget=UNITS[unit], unit=unit)
    release = dps.release(plan, people.rows, m=100, rng=1)
    family = release.measurements.published.answering
    truth = means(family)
    for alpha in (ERROR, 0.05, 0.4):
        found = release.bound(family, alpha=alpha)
        low, high = release.accuracy(alpha=alpha).joint_ends
        assert np.all(found.low >= low - 1e-12)
        assert np.all(found.high <= high + 1e-12)
        if alpha == ERROR:
            assert np.all(found.low <= truth + 1e-9)
            assert np.all(truth <= found.high + 1e-9)
