"""Losses of a response and of a linear predictor on a grid of parameters, from 0 to 2^16."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

from dpstats.verifying.blocks import Block, Box, Feature, Ranges, Row
from dpstats.verifying.columns import Column

UNIT = 2**16
_KNOTS, _LAST = 64, 40


def linear_losses(
    plain: dict[str, Any],
    columns: tuple[Column, ...],
    response: Feature,
    regressors: Sequence[Feature | None],
) -> Block:
    """Losses at every point of the grid; numbers among regressors are taken from their middles."""
    loss, by_name = plain["loss"], {column.name: column for column in columns}
    along = [
        [low + (high - low) * i / (points - 1) for i in range(points)]
        for _, low, high, points in plain["axes"]
    ]

    def value(feature: Feature | None, code: int) -> float:
        if feature is None:
            return 1.0
        column = by_name[feature[0]]
        if feature[1] is not None:
            return float(column.bin_of[code] == feature[1])
        low, high = column.ends
        return float(column.values.get(code, low + (high - low) * (code / column.half + 1) / 2))

    def from_middle(feature: Feature | None, code: int) -> float:
        low, high = by_name[feature[0]].ends if feature and feature[1] is None else (0.0, 0.0)
        return value(feature, code) - (low + high) / 2

    sides = []
    for (_, low, high, _), feature in zip(plain["axes"], regressors, strict=True):
        span = [1.0] if feature is None else [0.0, 1.0]
        if feature is not None and feature[1] is None:
            ends = by_name[feature[0]].ends
            span = [end - (ends[0] + ends[1]) / 2 for end in ends]
        sides.append([b * x for b in (low, high) for x in span])
    answers = by_name[response[0]]
    corners = itertools.product(
        answers.ends if answers.half else (0.0, 1.0), (sum(map(min, sides)), sum(map(max, sides)))
    )
    unit = max(loss_of(loss, y, t) for y, t in corners) * (1 + 1e-9) / UNIT

    def ranges(ends: Box) -> Ranges:
        """Least and largest of every loss over a box of rows, or one beyond them, for rounding.

        The predictor is largest and least at ends of the box, and the loss, convex in the response
        less the predictor, is largest at an end and least at zero or an end.
        """
        low, high = [0.0], [0.0]
        for feature, parameters in zip(regressors, along, strict=True):
            codes = (0, 0) if feature is None else ends[feature[0]]
            first, last = (from_middle(feature, code) for code in codes)
            steps = [(first * b, last * b) for b in parameters]
            low = [before + min(step) for before in low for step in steps]
            high = [before + max(step) for before in high for step in steps]
        first, last = sorted(value(response, code) for code in ends[response[0]])
        if all(a == b for a, b in ends.values()):
            single = [math.floor(loss_of(loss, first, t) / unit + 0.5) for t in low]
            return single, single
        least, most = [], []
        for t, u in zip(low, high, strict=True):
            at_ends = loss_of(loss, first, u), loss_of(loss, last, t)
            inside = first <= u and t <= last and loss["kind"] != "logistic"
            least.append(math.floor((0.0 if inside else min(at_ends)) / unit + 0.5) - 1)
            most.append(math.floor(max(at_ends) / unit + 0.5) + 1)
        return least, most

    def of(row: Row) -> dict[int, int]:
        return dict(enumerate(ranges({name: (code, code) for name, code in row.items()})[0]))

    bounds = [UNIT] * math.prod(map(len, along))
    features = (response, *filter(None, regressors))
    by_value = {name for name, level in features if level is None}
    # Over several codes of a number, its bins are not between those of the ends.
    mixed = any(level is not None and name in by_value for name, level in features)
    return Block(plain, columns, bounds, of, None, by_value, ranges=None if mixed else ranges)


def loss_of(loss: dict[str, Any], response: float, predictor: float) -> float:
    """The loss itself."""
    kind = loss["kind"]
    if kind == "logistic":
        wrong = -predictor if response > 0 else predictor
        knots = _softplus()
        place = min(abs(wrong), _LAST) * _KNOTS
        k = min(int(place), len(knots) - 2)
        return max(wrong, 0.0) + (knots[k] + (place - k) * (knots[k + 1] - knots[k]))
    residual = response - predictor
    if kind == "huber":
        inner = min(abs(residual), float(loss["k"]))
        return inner * (abs(residual) - inner / 2)
    p = float(loss.get("probability", 0.5))
    return max(p * residual, (p - 1) * residual)


@cache
def _softplus() -> list[float]:
    """log(1 + exp(-u)) at u = 0, 1/64, .., 40: between them the loss is a straight line."""
    with localcontext() as context:
        context.prec = 20
        points = (Decimal(j) / _KNOTS for j in range(_LAST * _KNOTS + 1))
        return [float((1 + (-u).exp()).ln()) for u in points]
