"""Levels of regressors that may have no rows, and the combinations that the others determine."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.design_moments import multiplied
from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni
from dpstats.families.features import Feature, Term, feature_name, is_level, product
from dpstats.measured.answers import joint_noise_quantiles
from dpstats.privacy.weighted_noise import Combination

if TYPE_CHECKING:
    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.inference.moment_matrix import NoisyMatrix

PRESENCE = 0.001  # probability that noise alone shows rows in some level without any
_SAME = 1e-9  # relative, up to which a combination has no part in a direction
Expansion = dict[Term, float]
Event = tuple[Feature, ...]  # a level, or a cell of two columns


@dataclass(frozen=True)
class LeftOut:
    """Levels that the noisy counts do not show to have rows, and the model without them.

    With v'x = 0 in every row, v can be added to the coefficients without any change (eq. 4 of
    docs/explanation/regression/ols.md): combinations h with h'v = 0 for all such v are determined.
    """

    names: tuple[str, ...]
    directions: Floats  # (m, p) in the basis
    # (l, q) the number of rows in each level over n, as combinations of features squared
    counts: Floats
    # (l, p) members of the basis that are not zero in all rows of each level
    touched: NDArray[np.bool_]
    level_of: NDArray[np.int64]  # (m,) level of each direction

    @property
    def kept(self) -> NDArray[np.intp]:
        """Members of the basis that are enough where the directions are arbitrary."""
        from scipy import linalg

        p = self.directions.shape[1]
        if not len(self.directions):
            return np.arange(p)
        _, r, order = linalg.qr(self.directions, pivoting=True, mode="economic")
        own = np.abs(np.diag(r))
        return np.setdiff1d(np.arange(p), order[: int(np.sum(own > _SAME * own[0]))])

    def undetermined(self, combinations: Floats) -> NDArray[np.bool_]:
        """(k,) whether each combination (k, p) changes along some direction."""
        along = np.abs(combinations @ self.directions.T)
        size = np.abs(combinations) @ np.abs(self.directions.T)
        return np.asarray(np.any(along > _SAME * size, axis=1))

    def determined_part(self, combinations: Floats) -> Floats:
        """(r, k) independent combinations of combinations (k, p) that change along no direction."""
        from scipy import linalg

        unknown = self.undetermined(combinations)
        whole = np.eye(len(combinations))
        if not unknown.any():
            return whole
        along = combinations[unknown] @ self.directions.T
        length = (np.abs(combinations[unknown]) @ np.abs(self.directions.T)).max(axis=1)
        part = linalg.null_space((along / length[:, np.newaxis]).T, rcond=_SAME).T / length
        return np.vstack([whole[~unknown], part @ whole[unknown]])

    def radius(self, matrix: NoisyMatrix, beta: float, response: float) -> Floats:
        """(k + 1, k + 1) what the rows of the levels add to the radii of the moments (eq. 8).

        Of the k members that are kept, and of the response in products with them; on the event of
        `matrix.radius`.
        """
        k = len(self.kept)
        total = np.zeros((k + 1, k + 1))
        if not self.names:
            return total
        radius = joint_noise_quantiles(matrix.answers, beta)
        reach = [np.abs(weights_of_count(matrix, count)[0]) @ radius for count in self.counts]
        counts = [noisy_count(matrix, count) for count in self.counts]
        most = np.maximum(np.add(counts, reach), 0.0) / matrix.n
        for share, touched in zip(most.tolist(), self.touched, strict=True):
            own = np.append(touched[self.kept], response)
            total += share * np.outer(own, own)
        total[-1, -1] = 0.0
        return total


def weights_of_count(matrix: NoisyMatrix, count: Floats) -> tuple[Floats, float]:
    """Write a count as a combination (d,) of the measured functions, and a known number."""
    place, known = np.diag(matrix.place), 0.0
    weights = np.zeros(len(matrix.answers.sums))
    for i in np.flatnonzero(count):
        if place[i] >= 0:
            weights[place[i]] += count[i]
        else:
            known += count[i] * matrix.n
    return weights, known


def noisy_count(matrix: NoisyMatrix, count: Floats) -> float:
    """Noisy number of rows of a count."""
    weights, known = weights_of_count(matrix, count)
    return float(weights @ matrix.answers.sums) + known


def find_absent(moments: DesignMoments, matrix: NoisyMatrix) -> dict[Event, Expansion]:
    """Levels, and cells of products of two columns, that noise may have filled alone.

    With their indicators in the terms of the regressors. A level stays if its noisy count exceeds
    the quantile of the noise that holds jointly over all of them, at `PRESENCE`; all of a column
    stay where none does.
    """
    terms = moments.regressor_terms[0]
    events = [*_levels(moments, terms), *_cells(moments, terms)]
    shares = {e: s for e in events if (s := _expanded(moments, terms, (), e)) is not None}
    counts = {event: _count(moments, share) for event, share in shares.items()}
    each = bonferroni(PRESENCE, max(len(shares), 1))
    low = {e for e, c in counts.items() if noisy_count(matrix, c) <= _reach(matrix, c, each)}
    return {e: s for e, s in shares.items() if e in low and not _all_absent(e, low, shares)}


def _count(moments: DesignMoments, share: Expansion) -> Floats:
    """(q,) an indicator as a combination of the features."""
    count = np.zeros(len(moments.features))
    for term, by in share.items():
        count[moments.features.index(term)] = by
    return count


def left_out(moments: DesignMoments, matrix: NoisyMatrix | None) -> LeftOut:
    """The model without the levels of `find_absent`; with all levels where there is no matrix."""
    basis, terms = moments.rows[:-1], moments.regressor_terms[0]
    used = [moments.features.index(term) for term in terms]
    absent = {} if matrix is None else find_absent(moments, matrix)
    counts = [_count(moments, share) for share in absent.values()]
    directions = [_directions(moments, terms, basis[:, used], event) for event in absent]
    touched = [_touched(terms, basis[:, used], share) for share in absent.values()]
    return LeftOut(
        tuple(_name(moments, event) for event in absent),
        np.concatenate([np.zeros((0, len(basis))), *directions]),
        np.array(counts).reshape(len(absent), len(moments.features)),
        np.array(touched, dtype=np.bool_).reshape(len(absent), len(basis)),
        np.repeat(np.arange(len(absent)), [len(each) for each in directions]),
    )


def _levels(moments: DesignMoments, terms: list[Term]) -> Iterator[Event]:
    for name in dict.fromkeys(f[0] for term in terms for f in term if is_level(f)):
        yield from (((name, level),) for level in range(moments.schema[name].bins))


def _cells(moments: DesignMoments, terms: list[Term]) -> Iterator[Event]:
    groups = (tuple(f[0] for f in term if is_level(f)) for term in terms)
    for pair in dict.fromkeys(group for group in groups if len(group) == 2):
        bins = [range(moments.schema[name].bins) for name in pair]
        for levels in itertools.product(*bins):
            yield tuple(zip(pair, levels, strict=True))


def _all_absent(
    event: Event,
    absent: Collection[Event],
    known: dict[Event, Expansion],
) -> bool:
    """True if all levels of its column are absent, or all cells of a level that is present.

    Where the terms give no count of a level, its cells show whether it is present.
    """
    if len(event) == 1:
        levels = [e for e in known if len(e) == 1 and e[0][0] == event[0][0]]
        return all(e in absent for e in levels)
    gone = {e[0] for e in absent if len(e) == 1}
    present = {e[0] for e in known if len(e) == 1 and e not in absent}
    names = [name for name, _ in event]
    cells = [e for e in known if [name for name, _ in e] == names and gone.isdisjoint(e)]
    if event not in cells or all(e in absent for e in cells):
        return True  # of an absent level, which leaves it out by itself; or noise hides all
    lines = ([e for e in cells if level in e] for level in present.intersection(event))
    return any(all(e in absent for e in line) for line in lines)


def _expanded(
    moments: DesignMoments, terms: list[Term], rest: Term, event: Event
) -> Expansion | None:
    """The indicator of levels times `rest` in the terms; None where they do not hold it."""
    names = {name for name, _ in event}
    alike = [t for t in terms if tuple(f for f in t if f[0] not in names) == rest]
    own = {feature for term in alike for feature in term}
    one: Expansion = {(): 1.0}
    if rest == () and () not in terms:
        others = dict.fromkeys(f[0] for t in terms for f in t if is_level(f) and f[0] not in names)
        full = ([((name, level),) for level in range(moments.schema[name].bins)] for name in others)
        one = next((dict.fromkeys(o, 1.0) for o in full if set(terms).issuperset(o)), one)
    expansion: Expansion = {rest: 1.0}
    for name, level in event:
        indicator: Expansion = {((name, level),): 1.0}
        if (name, level) not in own:
            indicator = dict(one)
            for k in range(moments.schema[name].bins):
                if k != level:
                    indicator[((name, k),)] = -1.0
        expansion = multiplied(expansion, indicator)
    for term in [term for term in expansion if term not in terms]:
        by = expansion.pop(term)
        if (instead := _by_other_levels(moments, terms, term)) is None:
            return None
        for more, sign in instead.items():
            expansion[more] = expansion.get(more, 0.0) + by * sign
    return expansion


def _by_other_levels(moments: DesignMoments, terms: list[Term], term: Term) -> Expansion | None:
    """A product with a level as that without it less those with the other levels of the column."""
    for factor in filter(is_level, term):
        rest = tuple(f for f in term if f != factor)
        levels = range(moments.schema[factor[0]].bins)
        others = [product(rest, ((factor[0], k),)) for k in levels if k != factor[1]]
        if set(terms).issuperset([rest, *others]):
            total: Expansion = dict.fromkeys([other for other in others if other is not None], -1.0)
            total[rest] = 1.0
            return total
    return None


def _directions(moments: DesignMoments, terms: list[Term], basis: Floats, event: Event) -> Floats:
    """Directions (m, p) of the coefficients along which no row outside the levels changes."""
    from scipy import linalg

    names = {name for name, _ in event}
    rests = dict.fromkeys(tuple(f for f in term if f[0] not in names) for term in terms)
    at = {term: i for i, term in enumerate(terms)}
    zero = []
    for rest in rests:
        if (expansion := _expanded(moments, terms, rest, event)) is not None:
            row = np.zeros(len(terms))
            row[[at[term] for term in expansion]] = list(expansion.values())
            zero.append(row)
    vanishing = np.array(zero)
    if len(basis) == len(terms) and np.all(np.count_nonzero(basis, axis=1) == 1):
        return np.asarray(vanishing @ np.linalg.inv(basis))
    left = linalg.orth(vanishing.T)
    directions = linalg.null_space((basis - basis @ left @ left.T).T, rcond=_SAME).T
    return np.where(np.abs(directions) > _SAME, directions, 0.0)


def _touched(terms: list[Term], basis: Floats, indicator: Expansion) -> list[bool]:
    """For each member of the basis (p, t), True if its product with an indicator is not zero."""
    members = ({terms[i]: row[i] for i in np.flatnonzero(row)} for row in basis)
    return [
        any(abs(value) > _SAME for value in multiplied(member, indicator).values())
        for member in members
    ]


def _name(moments: DesignMoments, event: Event) -> str:
    return " and ".join(feature_name(f, moments.schema[f[0]].bin_labels) for f in event)


def _reach(matrix: NoisyMatrix, count: Floats, beta: float) -> float:
    """Quantile of the noise on a count."""
    weights, answers = weights_of_count(matrix, count)[0], matrix.answers
    used = np.flatnonzero(weights).tolist()
    each = bonferroni(beta, max(len(used), 1))
    most = sum(abs(weights[f]) * float(answers.law(f).quantile(each)) for f in used)
    if len(used) < 2 or most == 0 or answers.bound_only:
        return float(most)
    return min(float(most), Combination(tuple(answers.noise_of(weights))).quantile(beta))
