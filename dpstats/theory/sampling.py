"""The theorems: any reference fixed beforehand, uniform, perturbed histogram, kernel density.

All assume that the n rows are independent draws from one distribution nu, that neighbours replace
one row, that every mean gets independent Laplace noise of scale sigma, that the density is the
minimax one, and that the k rows are independent draws from it. BL24 is Bojkovic & Loh (2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpstats.checks import check_whole
from dpstats.errors import RequestError
from dpstats.theory.theorem import Theorem, check_range

# At beta = 2/3 and 1/2, (beta^-3 - 1)/(1 - beta) is 57/8 and 14: the constants that BL24's proofs
# leave unnamed. The total variations that they multiply have a factor 1/2, 1 and tau/3.
_C1, _C2, _C_KERNEL = 57 / 16, 57 / 8, 14 / 3
HISTOGRAM_CONDITION = 9 / 5
PEAK, FACES = 0.8, 1.2  # of a folded normal kernel with bandwidth h <= 1/2, times 1/h
_ROUNDING = 1e-9


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

    K = |Omega|, whatever the distribution of the rows. As printed, with the sensitivity as an
    argument: 2 |F| is valid, but for the cells of m tables it is 2 m.

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
    cell's. It needs n of order log|Omega| / tau_1, where the paper's needs |Omega| / tau_1^2.

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
    bandwidth and a lattice in proportion to tau / L, and has explicit constants, for the operator
    of order one: every one of four errors is at most tau / 6, and K = 3 + 2 tau.

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
