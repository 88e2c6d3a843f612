"""Parameters by number and by name."""

import copy
import pickle

import numpy as np
import pytest

import dpstats as dps
from dpstats.results.named import Named

PARAMS = Named([1.5, -2.0, 4.0], ["Intercept", "age", "pay"])


def test_entries_go_by_number_and_by_name():
    assert (PARAMS["age"], PARAMS[1], PARAMS[-1]) == (-2.0, -2.0, 4.0)
    assert PARAMS[["pay", "age"]].tolist() == [4.0, -2.0]
    assert Named([[0.0, 1.0], [2.0, 3.0]], ["a", "b"])["b"].tolist() == [2.0, 3.0]
    with pytest.raises(dps.RequestError, match=r"no parameter 'height'; the names are .*'age'"):
        PARAMS["height"]
    with pytest.raises(dps.RequestError, match="several parameters are called 'a'; give the num"):
        Named([1.0, 2.0], ["a", "a"])["a"]


@pytest.mark.parametrize("derive", [
    np.asarray, np.exp, lambda x: x[1:], lambda x: 2 * x, lambda x: x[x > 0],
    lambda x: x @ np.eye(3), lambda x: np.add(x, 1, out=Named(x)),
])  # fmt: skip
def test_what_is_computed_from_them_is_a_plain_array(derive):
    found = derive(PARAMS)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, derive(np.array([1.5, -2.0, 4.0])))


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_and_files_keep_the_names(again):
    found = again(PARAMS)
    assert found.names == PARAMS.names
    assert found["pay"] == 4.0
    assert not np.shares_memory(found, PARAMS)
