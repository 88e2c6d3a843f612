"""The theorems: any reference fixed beforehand, uniform, perturbed histogram, kernel density.

All assume that the n rows are independent draws from one distribution nu, that neighbours replace
one row, that every mean gets independent Laplace noise of scale sigma, that the density is the
minimax one, and that the k rows are independent draws from it. BL24 is Bojkovic & Loh (2024).
Equations are those of docs/explanation/synthetic-rows/theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dpstats.checks import check_whole, is_finite, is_number, short
from dpstats.errors import RequestError
from dpstats.roots import bisect

LARGEST_DELTA, LARGEST_GAMMA = 0.5, 0.25
_HALVINGS = 100
# At beta = 2/3 and 1/2, (beta^-3 - 1)/(1 - beta) is 57/8 and 14: the constants that BL24's proofs
# leave unnamed (eq. printed-condition). The total variations that they multiply have a factor 1/2,
# 1 and tau/3.
_C1, _C2, _C_KERNEL = 57 / 16, 57 / 8, 14 / 3
HISTOGRAM_CONDITION = 9 / 5
PEAK, FACES = 0.8, 1.2  # of a folded normal kernel with bandwidth h <= 1/2, times 1/h
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sizes:
    """Sizes that a theorem asks for, and what it then promises.

    Attributes
    ----------
    n, k, m : int
        Least numbers of private rows, synthetic rows and candidates.
    sigma : float
        Scale of the Laplace noise on every mean (eq. condition-and-scale).
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
    """Any reference density: the conditions that all theorems share (eq. reference-sizes).

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

        Returns
        -------
        Sizes

        Raises
        ------
        RequestError
            For a delta out of its range, or sizes that floating point does not hold.
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

        if not affords(LARGEST_DELTA):
            return math.inf
        delta = bisect(affords, 0.0, LARGEST_DELTA, _HALVINGS)
        # What a measured reference asks for does not decrease in delta: it decides last.
        return delta if max(self._needs(delta).values()) <= n else math.inf

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


@dataclass(frozen=True, kw_only=True)
class ReferenceSampling(Theorem):
    """Boedihardjo, Strohmer & Vershynin (2022), Theorems 2.2 and 2.3 (BL24, Theorem II.1).

    The reference density mu is fixed before the data are seen.

    Parameters
    ----------
    epsilon, gamma, functions, sensitivity
        As for `UniformSampling`.
    condition_number : float
        K, at least 1: a bound on the mean under mu of (dnu/dmu)^2.

    Examples
    --------
    >>> import dpstats as dps
    >>> known = dps.theory.ReferenceSampling(
    ...     epsilon=1, gamma=0.05, functions=100, condition_number=2
    ... )
    >>> sizes = known.sizes(delta=0.05)
    >>> sizes.n, sizes.k, sizes.m
    (30404, 3041, 1600000)
    """

    condition_number: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("condition_number", self.condition_number, least=1)

    def _condition(self, delta: float, n: int) -> float:
        return self.condition_number


@dataclass(frozen=True, kw_only=True)
class UniformSampling(Theorem):
    """BL24, Theorem B.1: uniform candidates on a finite domain.

    K = |Omega|, whatever the distribution of the rows (eq. uniform-condition). As printed, with the
    sensitivity as an argument: 2 |F| is valid, but for the cells of m tables it is 2 m.

    Parameters
    ----------
    epsilon : float
        Positive.
    gamma : float
        In (0, 1/4]; the promise holds with probability 1 - 4 gamma.
    functions : int
        |F|, functions with values in [-1, 1].
    sensitivity : float, optional
        L1 sensitivity of the sums of all functions; 2 |F| if not given, which is always valid.
    cells : int
        |Omega|.
    printed : bool
        As for the other theorems; the sizes are the printed ones in any case.

    Examples
    --------
    >>> import dpstats as dps
    >>> uniform = dps.theory.UniformSampling(epsilon=1, gamma=0.0125, functions=100, cells=1000)
    >>> sizes = uniform.sizes(delta=0.05)
    >>> sizes.n, sizes.k, sizes.m, sizes.error, sizes.probability
    (35949, 3595, 3200000000, 0.4, 0.95)
    >>> round(8 * uniform.delta(n=1_000_000), 3)  # what a million rows are promised
    0.024
    """

    cells: int
    printed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("cells", self.cells, 1)
        _refuse_sensitivity(self.sensitivity, self.printed)

    def _condition(self, delta: float, n: int) -> float:
        return float(self.cells)


@dataclass(frozen=True, kw_only=True)
class HistogramSampling(Theorem):
    """BL24, Theorem III.1: candidates from a perturbed histogram of all cells.

    Without `smallest` and `largest`, rows that are uniform: Corollary III.1.1.

    Parameters
    ----------
    epsilon, gamma, functions, sensitivity
        As for `UniformSampling`. The release spends 2 epsilon.
    cells : int
        |Omega|.
    smallest, largest : float, optional
        tau_1 > 0 and tau_2, the least and largest probability of a cell; 1/|Omega| if not given.
        Only the printed theorem uses the second.
    printed : bool
        The paper's own sizes, its unnamed constants as its proof gives them. They are not proved.

    Notes
    -----
    Corrected are: the noise of the histogram, Laplace of scale 2/epsilon on counts, in whose place
    the printed condition has sigma, so that it does not depend on epsilon at all; the bound
    nu_1 <= tau_2 on the cells' shares, which the largest cell exceeds in most samples; and the
    probability, which leaves out the 4 gamma of Theorem II.1 and applies it to a density that
    depends on the rows. Default sizes come from a shorter proof: K <= max dnu/dmu = 9/5 where
    every cell holds 3/4 of its expected rows and no noise is more than an eighth of the smallest
    cell's (eq. histogram-size). It needs n of order log|Omega| / tau_1, where the paper's needs
    |Omega| / tau_1^2.

    Examples
    --------
    >>> import dpstats as dps
    >>> about = dict(epsilon=1, gamma=0.05 / 6, functions=100, cells=1000)
    >>> corrected = dps.theory.HistogramSampling(**about).sizes(delta=0.05)
    >>> corrected.n, corrected.m, round(corrected.probability, 3), corrected.epsilon
    (374248, 8640000, 0.95, 2.0)
    >>> dps.theory.HistogramSampling(**about, printed=True).sizes(delta=0.05).n
    8076599868
    """

    cells: int
    smallest: float | None = None
    largest: float | None = None
    printed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("cells", self.cells, 1)
        even = 1 / self.cells
        if self.smallest is not None:
            check_range("smallest", self.smallest, above=0, most=even)
        if self.largest is not None:
            check_range("largest", self.largest, least=even, most=1)
        _refuse_sensitivity(self.sensitivity, self.printed)

    @property
    def _tau1(self) -> float:
        return 1 / self.cells if self.smallest is None else self.smallest

    def _needs(self, delta: float) -> dict[str, float]:
        log = math.log(self.cells / self.gamma)
        own = max(32, 16 / self.epsilon) * log / self._tau1
        if self.printed:
            filled = 8 * (self.cells - 2 * math.log(self.gamma)) / self._tau1**2
            own = max(filled, 8 * self._printed_noise(delta) / self._tau1)
        return {**super()._needs(delta), "reference": own}

    def _printed_noise(self, delta: float) -> float:
        """Return delta |Omega| (1 + tau_2 |Omega|) log|Omega| / (gamma log(|F| / delta))."""
        largest = 1 / self.cells if self.largest is None else self.largest
        spread = delta * self.cells * (1 + largest * self.cells) * math.log(self.cells)
        return spread / (self.gamma * math.log(self.functions / delta))

    def _condition(self, delta: float, n: int) -> float:
        if not self.printed:
            return HISTOGRAM_CONDITION
        sampled = math.sqrt(-2 * math.log(self.gamma) / n) + math.sqrt(self.cells / n)
        noise = self._printed_noise(delta) / n
        return math.sqrt((1 + _C1 * sampled) * (1 + _C2 * noise))

    def _candidates(self, delta: float, n: int) -> float:
        return (2 if self.printed else 1) * super()._candidates(delta, n)

    def _failure(self, n: int) -> tuple[float, int]:
        return (3 if self.printed else 6) * self.gamma, 2  # printed: and exp(-c n), c unnamed


@dataclass(frozen=True, kw_only=True)
class KernelSampling(Theorem):
    """BL24, Theorem IV.1: candidates from a Bernstein kernel density on [0, 1]^p.

    Without `smallest` and `lipschitz`, rows that are uniform: Corollary IV.1.1.

    Parameters
    ----------
    epsilon, gamma, functions, sensitivity
        As for `UniformSampling`. The release spends 2 epsilon.
    columns : int
        p.
    smallest : float
        tau, the least value of the density of the rows on the cube, in (0, 1].
    lipschitz : float
        L, of that density in the Euclidean norm. Only the corrected theorem uses it: the printed
        one has it in its assumptions and in no size.
    printed : bool
        The paper's own sizes; those for n leave out constants of its proof and are not proved.

    Notes
    -----
    The printed bandwidth (log n / n)^(1/p) makes the noise of the lattice, whose sensitivity at a
    point is of order 1 / (n h^p) and not 1 / (n h), decrease with log n only; the kernel estimate
    is half of the density or less on the faces of the cube; the noise has (k + 1) where the
    lattice has (k + 1)^p points. The corrected theorem folds the kernel at the faces, keeps a
    bandwidth and a lattice in proportion to tau / L (eq. kernel-lattice), and has explicit
    constants, for the operator of order one: every one of four errors is at most tau / 6, and
    K = 3 + 2 tau (eq. kernel-sizes).

    Examples
    --------
    >>> import dpstats as dps
    >>> smooth = dps.theory.KernelSampling(
    ...     epsilon=1, gamma=0.05 / 6, functions=20, columns=2, smallest=0.5, lipschitz=0.5
    ... )
    >>> smooth.steps, round(smooth.bandwidth, 3)
    (18, 0.118)
    >>> sizes = smooth.sizes(delta=0.05)
    >>> sizes.n, sizes.m, sizes.condition_number
    (203512, 3840000, 4.0)
    """

    columns: int
    smallest: float = 1.0
    lipschitz: float = 0.0
    printed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("columns", self.columns, 1)
        check_range("smallest", self.smallest, above=0, most=1)
        check_range("lipschitz", self.lipschitz, least=0)
        if not self.printed and self._largest < 1 - _ROUNDING:
            raise RequestError(
                f"a density with smallest={self.smallest:g} and lipschitz={self.lipschitz:g} is at "
                f"most {self._largest:g} on the cube, and its integral would be less than one; "
                "give a larger Lipschitz constant"
            )
        _refuse_sensitivity(self.sensitivity, self.printed)

    @property
    def _largest(self) -> float:
        """A bound on the density: the cube has diameter sqrt(p)."""
        return self.smallest + self.lipschitz * math.sqrt(self.columns)

    def _refuse_printed(self, what: str) -> None:
        if self.printed:
            raise RequestError(
                f"the printed {what} has constants that the paper does not name; leave "
                "printed=True out for that of the corrected theorem"
            )

    @property
    def bandwidth(self) -> float:
        """Bandwidth h of the corrected theorem: the bias is at most tau / 6.

        Raises
        ------
        RequestError
            With ``printed=True``: the paper does not name the constant of its bandwidth.
        """
        self._refuse_printed("bandwidth, C' (log n / n)^(1/p),")
        slope = 6 * self.lipschitz * math.sqrt(self.columns)
        return min(0.5, self.smallest / slope) if slope else 0.5

    @property
    def steps(self) -> int:
        """Lattice steps along every column, of the corrected theorem.

        Raises
        ------
        RequestError
            With ``printed=True``, as for `bandwidth`.
        """
        self._refuse_printed("lattice")
        return max(1, math.ceil(9 * self.columns * (self.lipschitz / self.smallest) ** 2))

    def _needs(self, delta: float) -> dict[str, float]:
        tau, p = self.smallest, self.columns
        if self.printed:
            root = math.sqrt((2 * math.pi) ** p)
            own = (3 / tau) ** (p + 1) * 2 * -math.log(self.gamma) / (self.epsilon * root)
            return {**super()._needs(delta), "reference": own}
        h, k, points = self.bandwidth, self.steps, p * math.log(self.steps + 1)
        peak, row = (PEAK / h) ** p, 2 * (k + FACES / h) ** p
        variance = peak * (self._largest + tau / 18)  # with the linear term of Bernstein's bound
        estimate = 72 * variance * (points + math.log(2 / self.gamma)) / tau**2
        noise = 6 * row * (points - math.log(self.gamma)) / (self.epsilon * tau)
        return {**super()._needs(delta), "reference": max(estimate, noise)}

    def _condition(self, delta: float, n: int) -> float:
        return 1 + _C_KERNEL * self.smallest if self.printed else 3 + 2 * self.smallest

    def _candidates(self, delta: float, n: int) -> float:
        return (2 if self.printed else 1) * super()._candidates(delta, n)

    def _failure(self, n: int) -> tuple[float, int]:
        return (self.gamma + 1 / n if self.printed else 6 * self.gamma), 2


def _refuse_sensitivity(sensitivity: float | None, printed: bool) -> None:
    if printed and sensitivity is not None:
        raise RequestError(
            "printed=True takes the paper's sensitivity, 2 |F|; leave sensitivity= out, or "
            "printed=True"
        )
