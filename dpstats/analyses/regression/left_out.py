"""The model without some levels, and the combinations of coefficients that it determines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.measured.answers import joint_noise_quantiles

if TYPE_CHECKING:
    from dpstats.inference.moment_matrix import NoisyMatrix

_SAME = 1e-9  # relative, up to which a combination has no part in a direction


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
