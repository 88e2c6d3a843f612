r"""The log-linear model of the noisy answers, fitted by rows that follow it.

The model is base(x) exp(c'f(x)), its dual y = c sd in units of the noise (eq. 2 of
docs/explanation/synthetic-rows/generator.md). At the optimum of the penalised fit b - E f = s2 y,
in noise standard deviations (eq. 4). The sums over all states that E needs are out of reach where a
domain is large, so a set of rows that follow the model stands for it: every round moves them by one
Gibbs sweep, takes a few steps of conjugate gradients towards the optimum with the covariance of the
functions over the rows, and resamples them by the change of the density. The change is held to what
the rows can carry: the variance of its logarithm over them is at most `TRUST` (eq. 6). Without that
bound the rows would be reweighted to fit the answers beyond what the model behind them does, and
would leave that fit again in the next sweep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Family
from dpstats.families.tables.cells import Indicator, Table
from dpstats.rows.drawing import systematic
from dpstats.rows.gibbs import GibbsSampler
from dpstats.rows.products import Products

ROUNDS = 20
STEPS = 3  # of conjugate gradients in a round
TRUST = 0.15  # most variance over the rows of the logarithm of a round's change of the density
LONGEST = 0.7  # part of a step that is taken at most
FIRST, LEAST = 16.0, 0.1  # penalties at first and at least, over the noise standard deviation
ADAPTED = range(4, 16, 2)  # rounds in which the penalties change
LATE = 17  # round until which fewer rows may serve
FALL = 0.5  # least factor of such a change
FREEDOM = 2.5  # weight of degrees of freedom: 2 for a penalty that is given, more for one chosen
SAMPLING = 2.0  # variance of a mean over the rows, over that of independent ones
SETTLING = 0.9  # factor of the longest step in every round after the penalties are settled
MOST = 3.0, 20.0  # of the coefficient of a cell in a round, and at all
PROBES, PROBE_STEPS, PROBE_ROWS = 4, 10, 4_000  # for the degrees of freedom of blocks
FOLLOWED = 10  # rounds after which a fit has followed a change of the answers

_FACTORS = 2.0 ** np.arange(-8, 9)


@dataclass(frozen=True)
class LogLinearFit:
    """A fitted model, with rows that follow it."""

    sampler: GibbsSampler
    deviations: Floats  # (|F|,): standard deviations of the noise on the means, unit scale
    codes: dict[str, Codes]  # column name -> (m,)
    target: Floats  # (|F|,): noisy means b, in noise standard deviations
    # dual, penalty: (|F|,): y and s2
    dual: Floats
    penalty: Floats

    @property
    def family(self) -> Family:
        """The test functions."""
        return self.sampler.family

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.codes.values())))

    @property
    def expected(self) -> Floats:
        """Means of the penalised fit, b - s2 y, in noise standard deviations (eq. 4).

        The rows' own means have a sampling error besides; these hardly do.
        """
        return self.target - self.penalty * self.dual

    def trusted(self, rng: np.random.Generator) -> Floats:
        """Means between those of the fit and the answers, in noise standard deviations (eq. 13)."""
        every = slice(None, None, max(1, self.rows // PROBE_ROWS))
        at = _At(replace(self, codes={name: codes[every] for name, codes in self.codes.items()}))
        residual, block, kept = self.penalty * self.dual, self._block, np.zeros(len(self.dual))
        for _ in range(PROBES):
            signs = rng.choice([-1.0, 1.0], len(kept))
            solved, _ = _solve(at.products, signs, self.penalty, at.variances, PROBE_STEPS)
            kept += self.penalty * signs * solved / PROBES
        squares = np.maximum(np.bincount(block, residual**2), 1e-300)
        share = np.clip(np.bincount(block, kept) / squares, 0, 1)
        return np.asarray(self.target - share[block] * residual)

    @property
    def _block(self) -> Codes:
        """The number of the block of every function, (|F|,)."""
        sizes = [block.size for block in self.family.blocks]
        return np.repeat(np.arange(len(sizes)), sizes)

    def moved(self, rng: np.random.Generator, *, alone: bool = False) -> LogLinearFit:
        """Model with its rows moved by a Gibbs sweep (of each column alone)."""
        self.sampler.set_coefficients(self.dual / self.deviations)
        return replace(self, codes=self.sampler.sweep(self.codes, rng, alone=alone))

    def improved(
        self, longest: float, rows: int, rng: np.random.Generator, *, adapts: bool = False
    ) -> LogLinearFit:
        """A step towards the optimum of the penalties, with rows resampled by it.

        Where it `adapts`, that of the penalties which the rows suggest.
        """
        at, penalty = _At(self), self.penalty
        if adapts:
            by_chance = SAMPLING * at.variances / self.rows
            found = adapted(at.residual, self.dual, penalty, at.variances, self._block, by_chance)
            penalty = np.maximum(found, LEAST / self.deviations)
        right = at.residual - penalty * self.dual
        step, log_change = _solve(at.products, right, penalty, at.variances, STEPS)
        # Eq. 6: more would rest on few rows, and leave the fit in the next sweep.
        length = min(longest, math.sqrt(TRUST / max(float(np.var(log_change)), 1e-12)))
        most_change, most = (_limits(self.family, self.deviations, of) for of in MOST)
        change = np.clip(length * step, -most_change, most_change)
        dual = np.clip(self.dual + change, -most, most)
        log_change = at.products.combine(dual - self.dual)
        beyond = float(np.var(log_change)) / TRUST  # where what was cut off had cancelled the rest
        if beyond > 1:
            dual = self.dual + (dual - self.dual) / math.sqrt(beyond)
            log_change = log_change / math.sqrt(beyond)
        copies = systematic(np.exp(log_change - log_change.max()), rows, rng)
        codes = {name: np.repeat(values, copies) for name, values in self.codes.items()}
        return replace(self, codes=codes, dual=dual, penalty=penalty)

    def following(self, change: Floats, rng: np.random.Generator) -> Floats:
        """Means of the fit to answers that are changed (in noise standard deviations)."""
        fit = replace(self, target=self.target + change)
        for _ in range(FOLLOWED):
            fit = fit.improved(1.0, self.rows, rng).moved(rng)
        return fit.expected


class _At:
    """The functions at the rows of a fit, scaled by the noise."""

    def __init__(self, fit: LogLinearFit) -> None:
        values = fit.family.evaluate(fit.codes)
        self.products = Products(values, 1 / fit.deviations, joint=False)
        rows = self.products.points
        even = np.full(rows, 1 / rows)
        self.residual = fit.target - self.products.average(even)
        least = 0.5 / rows / fit.deviations**2  # half a row in every cell
        self.variances = np.maximum(self.products.variances(even), least)


def fit_loglinear(
    sampler: GibbsSampler,
    means: Floats,
    deviations: Floats,
    m: int,
    rng: np.random.Generator,
    *,
    early: int | None = None,
) -> LogLinearFit:
    """Fit the sampler's family to noisy means, from independent rows of its base.

    Parameters
    ----------
    sampler : GibbsSampler
    means, deviations : (|F|,) float64
        Noisy means and the standard deviations of their noise, unit scale.
    m : int
        Number of rows.
    rng : numpy Generator
    early : int, optional
        Number of rows until round `LATE`; m if not given.
    """
    rows, longest = early or m, LONGEST
    none, first = np.zeros(len(means)), FIRST / deviations
    codes = sampler.draw_base(rows, rng)
    fit = LogLinearFit(sampler, deviations, codes, means / deviations, none, first)
    for number in range(ROUNDS):
        if number > max(ADAPTED):
            longest = max(0.1, SETTLING * longest)
        rows = m if number >= LATE else rows
        fit = fit.improved(longest, rows, rng, adapts=number in ADAPTED).moved(rng)
    return fit


def _limits(family: Family, deviations: Floats, most: float) -> Floats:
    """Largest absolute dual of a cell, by its coefficient; none for other functions."""
    cell = np.concatenate(
        [np.full(block.size, isinstance(block, Table | Indicator)) for block in family.blocks]
    )
    return np.where(cell, most * deviations, np.inf)


def _solve(
    products: Products, right: Floats, penalty: Floats, variances: Floats, steps: int
) -> tuple[Floats, Floats]:
    """A few steps towards (C + s2) x = right, C the covariance over the rows; x and A'x.

    A'x, (m,), is centred.
    """
    m = products.points
    diagonal = variances + penalty
    x, log_change, rest = np.zeros_like(right), np.zeros(m), right
    direction = conjugate = rest / diagonal
    product = float(rest @ conjugate)
    for _ in range(steps):
        if product <= 0:
            break
        along = products.combine(direction)
        along -= along.mean()
        image = products.average(along / m) + penalty * direction
        length = product / float(direction @ image)
        x, log_change = x + length * direction, log_change + length * along
        rest = rest - length * image
        conjugate = rest / diagonal
        following = float(rest @ conjugate)
        direction = conjugate + following / product * direction
        product = following
    return x, log_change


def adapted(
    residual: Floats,
    dual: Floats,
    penalty: Floats,
    variances: Floats,
    block: Codes,
    by_chance: Floats | float = 0.0,
) -> Floats:
    """Penalties by block: small where the signal in the answers exceeds the noise.

    At the optimum the residual of function f is r_f = s_f y_f. To first order, and the other
    functions fixed, without a penalty it would be u_f = r_f + c_f y_f, with c_f its variance;
    another penalty s would leave s u_f / (c_f + s), and take c_f / (c_f + s) degrees of freedom.
    The sum over a block of (s u_f / (c_f + s))^2 + 2 c_f / (c_f + s) estimates its part of the
    risk, as Stein's formula does for the whole; with `FREEDOM` in place of 2, since the penalty is
    chosen. The s that makes it least is used for the whole block, within the limits.

    Parameters
    ----------
    residual, dual, penalty, variances : (|F|,) float64
        In noise standard deviations; variances in their squares.
    block : (|F|,) int64
        The number of the block of every function.
    by_chance : (|F|,) float64
        Variance of the residuals because the fitted means are those of some rows.

    Returns
    -------
    (|F|,) float64
    """
    unshrunk = (residual + dual * variances) ** 2 - by_chance
    risks = []
    for factor in _FACTORS:
        kept = penalty * factor / (variances + penalty * factor)
        risks.append(np.bincount(block, kept**2 * unshrunk + FREEDOM * (1 - kept)))
    best = _FACTORS[np.argmin(risks, axis=0)]
    return np.asarray(penalty * np.clip(best, FALL, 1)[block])
