"""Cautions that plans print where a budget protects little."""

from __future__ import annotations

from dpstats.privacy.budget import ZCDP, ApproxDP, Budget

_LARGE_EPSILON = 10.0
_LARGE_DELTA = 1e-3
_FEW_UNITS = 300


def pair_of(budget: Budget) -> tuple[float, float]:
    """Epsilon and delta that a budget guarantees; delta is 0 for pure privacy."""
    if isinstance(budget, ApproxDP):
        return float(budget.epsilon), float(budget.delta)
    if isinstance(budget, ZCDP):
        return budget.epsilon_at(), float(budget.delta)
    return float(budget.total), 0.0


def cautions(
    budget: Budget, n: int | None, whom: str = "row", units: int | None = None
) -> list[str]:
    """Sentences on a large epsilon or delta, or few units of a survey; none for most budgets.

    `whom` is what is protected, as `Neighbours.whom`, and `units` the number of whole units that
    are, if they are. Under `ZCDP` delta is a choice of how to
    state the guarantee, and says nothing about it.

    Examples
    --------
    >>> import dpstats as dps
    >>> cautions(dps.PureDP(1), 1000)
    []
    >>> cautions(dps.PureDP(20), 1000)[0][:38]
    'Caution: epsilon = 20 is a large budge'
    """
    epsilon, delta = pair_of(budget)
    said = []
    if epsilon > _LARGE_EPSILON:
        said.append(
            f"Caution: epsilon = {epsilon:.4g} is a large budget: it hardly limits what somebody "
            f"who knows all other rows can learn about one {whom}. Take a smaller one unless that "
            "is acceptable"
        )
    if units is not None and units < _FEW_UNITS:
        said.append(
            f"Caution: whole units are protected, and there are {units}: with fewer than "
            f"{_FEW_UNITS}, noise hides most of what they say. Leave person= out, or let it name "
            "the persons, unless units must be protected"
        )
    if not isinstance(budget, ApproxDP):
        return said
    if n is not None and delta * n >= 1:
        said.append(
            f"Caution: delta = {delta:.4g} is at least 1/n: to publish the whole row of a person "
            "chosen at random would meet such a guarantee. Take delta far below 1/n"
        )
    elif delta > _LARGE_DELTA:
        said.append(
            f"Caution: delta = {delta:.4g} is large: with up to that probability there is no limit "
            "to what a release reveals about a person. Take it far below one over the number of "
            "rows"
        )
    return said
