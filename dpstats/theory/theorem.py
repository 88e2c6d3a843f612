"""What the theorems on Algorithm 1 of BL24 share: sizes forwards from delta, backwards from n."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dpstats.checks import check_whole, is_finite, is_number, short
from dpstats.errors import RequestError

LARGEST_DELTA, LARGEST_GAMMA = 0.5, 0.25
_HALVINGS = 100


@dataclass(frozen=True)
class Sizes:
    """Sizes that a theorem asks for, and what it then promises.

    Attributes
    ----------
    n, k, m : int
        Least numbers of private rows, synthetic rows and candidates.
    sigma : float
        Scale of the Laplace noise on every mean.
    condition_number : float
        K, the bound on the Renyi condition number of nu and the reference density mu, the
        mean under mu of (dnu/dmu)^2; the candidates are in proportion to it.
    error : float
        With the probability below, the mean of every function over the synthetic rows is within
        this of that over the private rows: 8 delta. Functions have values in [-1, 1], so 2 or
        more says nothing.
    probability : float
        Over rows, noise and candidates; 0 if the theorem says nothing.
    epsilon : float
        What the release spends in all.
    least_n : mapping of str to float
        The conditions on n, of which `n` meets the largest: "privacy", "sampling" and, if the
        reference is measured, "reference".

    Examples
    --------
    >>> import dpstats as dps
    >>> uniform = dps.theory.UniformSampling(epsilon=0.1, gamma=0.05, functions=10, cells=64)
    >>> sizes = uniform.sizes(delta=0.1)
    >>> {name: round(least) for name, least in sizes.least_n.items()}  # privacy decides
    {'privacy': 10597, 'sampling': 530}
    """

    n: int
    k: int
    m: int
    sigma: float
    condition_number: float
    error: float
    probability: float
    epsilon: float
    least_n: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """Any reference density: the conditions that all theorems share.

    Parameters
    ----------
    epsilon : float
        Budget of the noisy means, positive. A measured reference spends as much again.
    gamma : float
        In (0, 1/4]: the probability of failure is a multiple of it. The theorems exclude 1/4, at
        which they promise nothing; the simulation of BL24 has it.
    functions : int
        |F|, functions with values in [-1, 1].
    sensitivity : float, optional
        L1 sensitivity of the sums of all functions; 2 |F| if not given, which is always valid.
    """

    epsilon: float
    gamma: float
    functions: int
    sensitivity: float | None = None

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon, above=0)
        check_range("gamma", self.gamma, above=0, most=LARGEST_GAMMA)
        check_whole("functions", self.functions, 1)
        if self.sensitivity is not None:
            check_range("sensitivity", self.sensitivity, above=0, most=2 * self.functions)

    def sizes(self, delta: float) -> Sizes:
        """Sizes for 8 delta-accurate rows.

        Parameters
        ----------
        delta : float
            In (0, 1/2]; the promise is 8 delta.

        Raises
        ------
        RequestError
        """
        check_range("delta", delta, above=0, most=LARGEST_DELTA)
        try:
            return self._sizes(float(delta))
        except (OverflowError, ZeroDivisionError):
            raise RequestError(
                "the theorem asks for more rows or candidates than floating point holds; give "
                "fewer columns or cells, or a larger delta or epsilon"
            ) from None

    def _sizes(self, delta: float) -> Sizes:
        needs = {name: float(least) for name, least in self._needs(delta).items()}
        n = math.ceil(max(needs.values()))
        failure, parts = self._failure(n)
        return Sizes(
            n=n,
            k=math.ceil(self._sampled(delta)),
            m=math.ceil(self._candidates(delta, n)),
            sigma=float(delta / self._log),
            condition_number=float(self._condition(delta, n)),
            error=8 * delta,
            probability=float(max(0.0, 1 - failure)),
            epsilon=float(parts * self.epsilon),
            least_n=needs,
        )

    def delta(self, n: int, *, k: int | None = None, m: int | None = None) -> float:
        """Return the smallest delta that n rows afford; the promise is 8 times it.

        Parameters
        ----------
        n : int
            Private rows.
        k, m : int, optional
            Synthetic rows and candidates; as many as are needed if not given.

        Returns
        -------
        float
            In (0, 1/2]; infinite if the theorem promises nothing at these sizes.
        """
        for name, size in (("n", n), ("k", k), ("m", m)):
            if size is not None:
                check_whole(name, size, 1)
        try:
            return self._delta(n, k, m)
        except OverflowError:  # the reference asks for more rows than floating point holds
            return math.inf

    def _delta(self, n: int, k: int | None, m: int | None) -> float:
        def affords(delta: float) -> bool:
            rows = n if k is None else min(n, k)
            return (
                self._private(delta) <= n
                and self._sampled(delta) <= rows
                and (m is None or self._candidates(delta, n) <= m)
            )

        low, high = 0.0, LARGEST_DELTA
        if not affords(high):
            return math.inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if affords(middle) else (middle, high)
        # What a measured reference asks for does not decrease in delta: it decides last.
        return high if max(self._needs(high).values()) <= n else math.inf

    @property
    def _log(self) -> float:
        return math.log(self.functions / self.gamma)

    def _needs(self, delta: float) -> dict[str, float]:
        return {"privacy": self._private(delta), "sampling": self._sampled(delta)}

    def _private(self, delta: float) -> float:
        moved = 2 * self.functions if self.sensitivity is None else self.sensitivity
        return moved * self._log / (self.epsilon * delta)

    def _sampled(self, delta: float) -> float:
        return self._log / delta**2

    def _candidates(self, delta: float, n: int) -> float:
        return self._condition(delta, n) * self.functions / (delta**2 * self.gamma)

    def _condition(self, delta: float, n: int) -> float:
        """K."""
        raise NotImplementedError

    def _failure(self, n: int) -> tuple[float, int]:
        """Probability of failure, and how many times epsilon is spent."""
        return 4 * self.gamma, 1


def check_range(
    name: str,
    value: float,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Refuse what is not a finite number of a range, of whose limits some are given."""
    limits = {"above": above, "at least": least, "at most": most}
    numeric = is_number(value) and is_finite(value)
    if not (numeric and value > above and least <= value <= most):
        said = " and ".join(f"{word} {x:g}" for word, x in limits.items() if math.isfinite(x))
        of = "" if math.isfinite(above) else "of "
        raise RequestError(f"{name} must be a number {of}{said}, got {short(value)}")
