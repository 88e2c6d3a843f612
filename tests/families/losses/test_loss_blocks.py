"""Losses on a grid: values, sums, sensitivities by brute force, and files."""

import itertools

import numpy as np
import pytest

import dpstats as dps
from dpstats.families import block_from_dict
from dpstats.families.losses import block as loss_block
from dpstats.families.losses.block import LARGEST
from dpstats.families.losses.linear import LinearLosses

SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=9, missing=0), dps.Number("z", 0, 10, points=11, missing=0),
    dps.Boolean("y"), dps.Category("g", ["a", "b"]),
    dps.Number("score", values=[17.5, 22, 27], allow_missing=True),
    dps.Number("pay", 1, 1000, points=31, scale="log", edges=[10, 100], missing=1),
])  # fmt: skip
SQUARE = {"Intercept": (-2, 2, 5), "x": (-2, 3, 4)}
LEVEL = {"Intercept": (0, 10, 4), "x": (-5, 5, 3), "g[T.b]": (-1, 1, 3)}


def absolute(row, at):
    of_score = np.where(np.isnan(row["score"]), 0, np.abs(row["score"] - at["m"]))
    return of_score + (row["g"] == "b") * (at["b"] - 1) ** 2


def table(**options):
    grid = {"m": (17, 28, 5), "b": (0, 2, 3)}
    return dps.TabulatedLoss.of(SCHEMA, ["score", "g"], grid, absolute, **options)


BLOCKS = [
    LinearLosses.of(SCHEMA, loss, formula, grid)
    for loss, formula, grid in [
        (dps.LogisticLoss(), "y ~ x", SQUARE),
        (dps.LogisticLoss(), "y ~ x + g", SQUARE | {"g[T.b]": (-1, 1, 3)}),
        (dps.HuberLoss(1.5), "z ~ x", {"Intercept": (0, 10, 5), "x": (-5, 5, 4)}),
        (dps.HuberLoss(1.5), "z ~ x + g", LEVEL),
        (dps.PinballLoss(0.3), "z ~ 1", {"Intercept": (0, 10, 11)}),
    ]
]


@pytest.mark.parametrize(("block", "few"), list(zip(BLOCKS, (10, 20, 30, 40, 4), strict=True)))
def test_a_sensitivity_from_some_states_is_a_bound(block, few, rows_of, change_of, monkeypatch):
    """Every row is within the slack of a listed one, so norms and distances are bounded."""
    rows = rows_of(block.columns)
    exact = {"replace": change_of(block, rows, rows), "add_remove": change_of(block, rows)}
    assert exact == {unit: block.sensitivity(unit) for unit in exact}  # all states are listed
    monkeypatch.setattr(loss_block, "_LISTED", 0)
    monkeypatch.setattr(loss_block, "_FEWEST", few)
    loss_block._sensitivity.cache_clear()
    lists, slack = block.listed()
    values, listed = block.values(rows), np.concatenate(list(block.states(lists)))
    assert len(listed) < len(values)
    gaps = np.abs(values[:, None] - listed).max(axis=-1).argmin(axis=1)
    assert np.all(np.abs(values - listed[gaps]) <= slack)
    assert np.any(np.abs(values - listed[gaps]) > slack / 4)
    for unit, some, times in (("replace", listed[:, None] - listed, 2), ("add_remove", listed, 1)):
        claimed = block.sensitivity(unit)
        assert exact[unit].l1 <= claimed.l1 <= 2 * exact[unit].l1
        assert exact[unit].l2_squared <= claimed.l2_squared <= 4 * exact[unit].l2_squared
        # The largest may be a listed one: the slack is there in any case.
        assert claimed.l1 * LARGEST == np.abs(some).sum(-1).max() + times * slack.sum()
        longest = np.sqrt((some**2).sum(-1).max()) + times * np.sqrt((slack**2).sum())
        assert float(claimed.l2_squared) * LARGEST**2 >= longest**2 * (1 - 1e-12)
    loss_block._sensitivity.cache_clear()
    monkeypatch.setattr(loss_block, "_FEWEST", 2)
    with pytest.raises(dps.RequestError, match="too many states of a row"):
        block.listed()


@pytest.mark.parametrize(("kept", "work"), [(1, 10**9), (10**6, 0), (40, 200), (10**6, 10**9)])
def test_distances_of_some_pairs_bound_those_of_all(kept, work, monkeypatch):
    monkeypatch.setattr(loss_block, "_KEPT", kept)
    monkeypatch.setattr(loss_block, "_WORK", work)
    rng = np.random.default_rng(0)
    for _ in range(20):
        vectors = rng.integers(-50, 50, (40, 3))
        moved = vectors[:, None] - vectors
        exact = np.abs(moved).sum(-1).max(), (moved**2).sum(-1).max()
        found = [loss_block.largest_distance(vectors, vectors[:4], power) for power in (1, 2)]
        assert np.all(np.array(found) >= exact)
        assert np.all(np.array(found) <= (1 + 2 * np.array(exact)) * 2)
        assert min(kept, work) < 10**6 or found == list(exact)


def test_values_are_the_losses_within_the_rounding(rows_of):
    block = BLOCKS[0]
    rows, axes = rows_of(block.columns), [axis.values for axis in block.axes]
    intercept, slope = np.array(list(itertools.product(*axes))).T
    sign, x = 2 * rows["y"][:, None] - 1, rows["x"][:, None] / 4
    exact = np.logaddexp(0, -sign * (intercept + slope * x))
    values = block.values(rows) * block.unit
    np.testing.assert_allclose(values, exact, atol=block.rounding, rtol=0)
    assert 0 <= values.min() <= values.max() <= block.largest_loss
    residuals = np.linspace(-9, 9, 101)
    huber = np.where(np.abs(residuals) <= 2, residuals**2 / 2, 2 * (np.abs(residuals) - 1))
    np.testing.assert_allclose(dps.HuberLoss(2).values(residuals, 0.0), huber, atol=1e-14)


def test_the_interpolated_logistic_loss_is_convex_and_close():
    t = np.linspace(-45, 45, 200_001)
    loss = dps.LogisticLoss()
    found = loss.values(np.ones(1), t)
    assert np.abs(found - np.logaddexp(0, -t)).max() <= loss.rounding + 1e-14
    assert np.diff(found, 2).min() >= -1e-13
    assert np.abs(np.diff(found)).max() <= np.diff(t)[0] * (1 + 1e-9)


def test_edited_tables_are_refused():
    plain = table(convex=True).losses.to_dict()
    for edit in [
        {"losses": [[-1] * 15] * 8}, {"losses": [[0.5] * 15] * 8}, {"losses": [[1] * 15] * 7},
        {"losses": [[1, 9, 1, *[1] * 12]] * 8}, {"unit": "a"}, {"lipschitz": {"m": 1e-9}},
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError):
            block_from_dict({**plain, "loss": {**plain["loss"], **edit}}, SCHEMA)
    plain = BLOCKS[0].to_dict()
    for edit in ({"response": ["z", None]}, {"axes": plain["axes"][:1]}, {"response": ["y", 7]}):
        with pytest.raises(dps.RequestError, match="the file holds losses"):
            block_from_dict({**plain, **edit}, SCHEMA)


def test_grids_and_tables_that_cannot_be_used_are_refused():
    grid = {"Intercept": (-1, 1, 3), "log(pay)": (-1, 1, 3)}
    for analysis in [  # a grid in original units, its middle and half range in logarithms
        dps.Huber("log(pay) ~ x", k=1), dps.Huber("x ~ log(pay)", k=1), dps.Huber("pay ~ 1", k=1),
        dps.LossGrid(dps.PinballLoss(), "pay ~ 1", {"Intercept": (1, 9, 5)}),
        dps.LossGrid("logistic", "y ~ log(pay)", grid),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match=r"'pay' has scale='log'.*even grid"):
            analysis.family(SCHEMA)
    grid = {"m": (0, 1, 3)}
    for column, function, message in [
        ("score", lambda row, at: row["score"] - 20 + 0 * at["m"], "not negative"),
        ("x", lambda row, at: 0 * row["x"] * at["m"], "not all zero"),
    ]:
        with pytest.raises(dps.RequestError, match=message):
            dps.TabulatedLoss.of(SCHEMA, [column], grid, function)
    fine = dps.Schema([dps.Number("x", 0, 1, points=100_001, missing=0)])
    with pytest.raises(dps.RequestError, match="too many losses"):
        dps.TabulatedLoss.of(fine, ["x"], grid, lambda row, at: row["x"] + at["m"])
    with pytest.raises(dps.RequestError, match="no parameters of the grid"):
        table(lipschitz={"k": 1})
    for wrong in (0.001, {"m": "a"}, {"m": -1}, {"m": np.nan}, [1]):
        with pytest.raises(dps.RequestError, match="lipschitz must name parameters"):
            table(lipschitz=wrong)
