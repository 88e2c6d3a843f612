"""The Bernstein kernel density (BL24, Algorithm 3, after Alda & Rubinstein 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Codes, Floats
from dpstats.checks import check_whole, short
from dpstats.errors import FileFormatError, RequestError
from dpstats.families.block import Block
from dpstats.families.tables.lattice import MAX_COLUMNS, MAX_DEGREE, KernelLattice
from dpstats.privacy.noise import MAX_SUM
from dpstats.rows.base import Density, read_share
from dpstats.rows.uniform import Uniform
from dpstats.schema import Number, Schema

if TYPE_CHECKING:
    from dpstats.measured.measurements import NoisyBlock
    from dpstats.privacy.laws import LatticeLaw

STEPS = (32, 12, 6, 4)  # default k for 1, 2, 3, 4 columns
MAX_ORDER = 16
_CHUNK = 2**22  # floats held at once


@dataclass(frozen=True)
class BernsteinKDE(Density):
    """A private kernel density estimate for continuous columns, as a mixture of Betas.

    Kernel sums at the points of a lattice are measured with noise, spread by the iterated
    Bernstein operator, clipped at zero and normalised. The kernel's bandwidth is public,
    h = max(C (log n / n)^(1/p), 1 / (2k)) of each column's range for p columns: the rate of BL24,
    Theorem t2, but at least half a lattice step, so that every row counts at some lattice point
    (eq. kernel-bandwidth of docs/explanation/privacy/privacy.md). All other columns are drawn
    uniformly over their levels and bins, independently.

    Parameters
    ----------
    columns : sequence of str, optional
        1 to 4 numbers declared by their bounds; all that the plan uses if not given.
    k : int, optional
        Lattice steps along each column, (k + 1)^p lattice points; 32, 12, 6, 4 for 1 to 4
        columns if not given. A finer lattice has less bias and more noise.
    C : float
        Positive factor of the bandwidth.
    order : int
        Order j of the iterated operator, 1 to 16; 1 is the plain Bernstein polynomial. Higher
        orders smooth less and have more noise.
    share : rational in (0, 1)
        Share of the whole budget; one half as in the paper (eps + eps = 2 eps).

    Raises
    ------
    RequestError
        For parameters outside these ranges.

    Notes
    -----
    The paper's noise scale, S(F) (k + 1) / eps with S(F) the sensitivity at one point, is too small
    for p > 1: the lattice has (k + 1)^p points. Here the noise is scaled to the L1 sensitivity of
    the whole lattice, see `KernelLattice.sensitivity`.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Number("age", 0, 100, edges=[18, 65], missing=40)])
    >>> asked, budget = {"age": dps.Mean("age")}, dps.PureDP(1)
    >>> plan = dps.plan(schema, asked, budget=budget, n=10_000, reference=dps.BernsteinKDE(k=16))
    >>> plan.reference_block.block.size  # lattice points, on half of the budget
    17
    """

    columns: Sequence[str] | None = None
    k: int | None = None
    C: float = 1.0
    order: int = 2
    share: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        if self.columns is not None:
            given = self.columns
            if (
                isinstance(given, str)
                or not isinstance(given, Sequence)
                or not all(isinstance(name, str) for name in given)
                or not 1 <= len(set(given)) == len(given) <= MAX_COLUMNS
            ):
                raise RequestError(
                    "BernsteinKDE(columns=...) must be a list of 1 to "
                    f"{MAX_COLUMNS} different names, got {short(given)}"
                )
            object.__setattr__(self, "columns", tuple(given))
        if self.k is not None:
            check_whole("BernsteinKDE(k=...)", self.k, 1, MAX_DEGREE)
        check_whole("BernsteinKDE(order=...)", self.order, 1, MAX_ORDER)
        factor = self.C
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not (
            0 < factor < math.inf
        ):  # fmt: skip
            raise RequestError(
                f"BernsteinKDE(C=...) must be a positive finite number, got {short(factor)}; the "
                "bandwidth is a public choice and never learned from the data"
            )
        object.__setattr__(self, "share", read_share(self.share, "BernsteinKDE"))

    def block(self, schema: Schema, n: int | None = None) -> Block:
        """The kernel sums on the lattice.

        Raises
        ------
        RequestError
            Without n, or if the lattice or its bandwidth cannot work; from public numbers only.
        """
        chosen = self._chosen(schema)
        if n is None:
            raise RequestError(
                "the bandwidth of BernsteinKDE depends on the public number of rows; give it: "
                "dps.plan(..., n=...), or rows = ... in a request"
            )
        p = len(chosen)
        k = STEPS[p - 1] if self.k is None else self.k
        if self.k is None:
            k = min(k, *(column.points - 1 for column in chosen))
        bandwidth = max(self.C * (math.log(n) / n) ** (1 / p), 1 / (2 * k))
        if bandwidth > 0.5:
            raise RequestError(
                f"at n = {n} rows and p = {p} columns the bandwidth C (log n / n)^(1/p) is "
                f"{bandwidth:.2g} of the range, more than half of it; use a smaller C "
                f"(now {self.C:g}), fewer columns, or the default reference"
            )
        return KernelLattice(chosen, k, bandwidth)

    def _chosen(self, schema: Schema) -> tuple[Number, ...]:
        numbers = [c for c in schema if isinstance(c, Number) and c.values is None]
        continuous = [c for c in numbers if not c.allow_missing]
        names = [column.name for column in continuous]
        if self.columns is None:
            if not continuous:
                raise RequestError(
                    "BernsteinKDE is for numbers declared by low and high, without allow_missing, "
                    "and no analysis uses one; use the default reference"
                )
            if len(continuous) > MAX_COLUMNS:
                raise RequestError(
                    f"BernsteinKDE covers at most {MAX_COLUMNS} numbers and the analyses use "
                    f"{names}; name some of them: dps.BernsteinKDE(columns=[...]), the others are "
                    "drawn uniformly"
                )
            return tuple(continuous)
        wrong = sorted(set(self.columns) - set(names))
        if wrong:
            raise RequestError(
                f"BernsteinKDE cannot cover {wrong}: it needs numbers declared by low and high, "
                f"without allow_missing, that some analysis uses; here these are {names}"
            )
        return tuple(column for column in continuous if column.name in self.columns)

    def check(self, block: Block, n: int, law: LatticeLaw) -> None:
        """Refuse a density whose expected positive noise exceeds what the rows themselves add."""
        lattice = _lattice(block)
        names = [column.name for column in lattice.columns]
        if n * int(lattice.ranges[1][0]) >= MAX_SUM:
            raise RequestError(
                f"kernel sums of n = {n} rows over {names} could overflow exact "
                "integers; use fewer columns or a smaller C"
            )
        spread = _iterated(lattice.k, self.order) / lattice.face_weights
        deviation = math.sqrt(law.variance) * int(lattice.ranges[1][0])
        # E max(Z, 0) of a coefficient, taken as normal, summed over the lattice ...
        reach = float(np.linalg.norm(spread, axis=1).sum()) ** len(names)
        noise = deviation * reach / math.sqrt(2 * math.pi)
        # ... against the coefficients of n rows spread evenly over the grid.
        rows = n * math.prod(float((spread @ t).sum(axis=0).mean()) for t in lattice.tables)
        if noise > rows:
            raise RequestError(
                f"a Bernstein density on {lattice.size} lattice points (k = {lattice.k}) would "
                f"hold about {noise / rows:.2g} times as much noise as data at n = {n}; use a "
                "smaller k or order, fewer columns, a larger share or budget, or "
                "the default reference"
            )

    def density(self, measured: NoisyBlock | None) -> BernsteinDensity | None:
        """The density on the unit cube; None where no coefficient is positive.

        Parameters
        ----------
        measured : NoisyBlock
            ``measurements.reference``.
        """
        assert measured is not None  # it was paid for with the plan
        lattice = _lattice(measured.block)
        coefficients = measured.sums.reshape(lattice.shape).astype(np.float64)
        spread = _iterated(lattice.k, self.order) / lattice.face_weights
        for axis in range(coefficients.ndim):
            coefficients = np.moveaxis(np.tensordot(spread, coefficients, (1, axis)), 0, axis)
        positive = np.clip(coefficients, 0, None)
        total = positive.sum()
        return BernsteinDensity(positive / total) if total > 0 else None

    def draw(
        self, m: int, schema: Schema, measured: NoisyBlock | None, rng: np.random.Generator
    ) -> dict[str, Codes]:
        """M independent points, column name -> (m,) codes: draws moved to the nearest code."""
        points = Uniform().draw(m, schema, None, rng)
        density = self.density(measured)
        if density is not None:
            assert measured is not None
            sample = density.sample(m, rng)
            for column, y in zip(_lattice(measured.block).columns, sample.T, strict=True):
                codes = column.codes_in_use
                points[column.name] = codes[np.rint(y * (len(codes) - 1)).astype(np.int64)]
        return points

    def note(self, measured: NoisyBlock | None) -> str | None:
        """A note where noise made all coefficients of the density zero or negative."""
        if self.density(measured) is not None:
            return None
        return (
            "with noise, no coefficient of the Bernstein density is positive: candidates were "
            "drawn uniformly instead. Intervals and tests do not use them and remain valid"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = {"kind": "bernstein_kde", "C": self.C, "order": self.order}
        if self.columns is not None:
            plain["columns"] = list(self.columns)
        if self.k is not None:
            plain["k"] = self.k
        return {**plain, "share": str(self.share)}


@dataclass(frozen=True, eq=False)
class BernsteinDensity:
    """A density on [0, 1]^p: a mixture of products of Beta(l + 1, k - l + 1) densities.

    The Bernstein polynomial b_{l,k}(y) = C(k, l) y^l (1 - y)^(k - l) is 1/(k + 1) times the density
    of Beta(l + 1, k - l + 1), so a Bernstein polynomial with coefficients c >= 0 is, normalised,
    the mixture with weights c / sum(c).
    """

    # (k + 1, .., k + 1): one non-negative weight per lattice point, summing to one; p axes
    weights: Floats

    def pdf(self, y: ArrayLike) -> Floats:
        """Density at points of the unit cube; zero outside.

        Parameters
        ----------
        y : (m, p) array, or (m,) if p = 1
            Each column as a share of its range, (value - low) / (high - low).

        Returns
        -------
        (m,) float64
        """
        p, k = self.weights.ndim, self.weights.shape[0] - 1
        points = np.asarray(y, dtype=np.float64).reshape(-1, p)
        inside = np.all((points >= 0) & (points <= 1), axis=1)
        result = np.zeros(len(points))
        step = max(1, _CHUNK // self.weights.size)
        index = np.flatnonzero(inside)
        for start in range(0, len(index), step):
            some = index[start : start + step]
            value = np.broadcast_to(self.weights, (len(some), *self.weights.shape))
            for j in reversed(range(p)):
                beta = (k + 1) * _bernstein(k, points[some, j])
                value = np.einsum("m...l,ml->m...", value, beta)
            result[some] = value
        return result

    def sample(self, m: int, rng: np.random.Generator) -> Floats:
        """M independent draws, exact: (m, p) float64 in the unit cube."""
        chosen = rng.choice(self.weights.size, size=m, p=self.weights.ravel())
        lattice = np.stack(np.unravel_index(chosen, self.weights.shape), axis=1)
        return rng.beta(lattice + 1.0, self.weights.shape[0] - lattice)


def _lattice(block: Block) -> KernelLattice:
    if not isinstance(block, KernelLattice):
        raise FileFormatError("a Bernstein density is made from kernel sums; the file holds others")
    return block


def _bernstein(k: int, y: Floats) -> Floats:
    """(m, k + 1) values b_{l,k}(y) of the Bernstein polynomials at y (m,)."""
    from scipy import special

    ell, y = np.arange(k + 1.0), y[:, np.newaxis]
    log_binomial = special.gammaln(k + 1) - special.gammaln(ell + 1) - special.gammaln(k - ell + 1)
    result: Floats = np.exp(
        log_binomial + special.xlogy(ell, y) + special.xlog1py(k - ell, -y)
    )  # fmt: skip
    return result


def _iterated(k: int, order: int) -> Floats:
    """(k + 1, k + 1) matrix from lattice values to coefficients, along one column.

    B^(j) f = sum_{i=1..j} C(j, i) (-1)^(i-1) B^i f has the coefficients
    sum_i C(j, i) (-1)^(i-1) M^(i-1) F with M[i, l] = b_{l,k}(i / k), and that polynomial in M is
    sum_{i<j} (I - M)^i (eq. iterated-bernstein of docs/explanation/privacy/privacy.md). The
    eigenvalues of M lie in (0, 1], so this form loses no digits.
    """
    rest = np.eye(k + 1) - _bernstein(k, np.arange(k + 1) / k)
    total = power = np.eye(k + 1)
    for _ in range(order - 1):
        power = power @ rest
        total = total + power
    return total
