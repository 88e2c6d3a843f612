"""Where conditions change, and many one-dimensional roots at once."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats

_EPS = float(np.finfo(np.float64).eps)

Function = Callable[[Floats, NDArray[np.intp]], Floats]


def bisect(holds: Callable[[float], bool], low: float, high: float, steps: int) -> float:
    """Point, just above the change, of a condition that holds at `high` and not at `low`."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def find_roots(
    function: Function,
    low: Floats,
    high: Floats,
    *,
    tolerance: float | Floats = 1e-10,
    values: tuple[Floats, Floats] | None = None,
    straight: bool = False,
) -> Floats:
    """Roots of many continuous functions, each with a change of sign between its ends.

    Chandrupatla's method: inverse quadratic interpolation where it is safe, else bisection,
    so never slower than a few bisections and usually about twelve evaluations in all.

    Parameters
    ----------
    function : callable
        ``function(y, which)`` evaluates function number ``which[i]`` at ``y[i]``; both are (k,).
    low, high : (m,) float64
        Brackets. If there is no change of sign, the end with the smaller absolute value wins.
    tolerance : float or (m,) float64
        Largest absolute error of each root, in units of the argument (never below its rounding).
    values : pair of (m,) float64, optional
        The functions at `low` and `high`, where they are known.
    straight : bool
        Whether the functions are nearly linear there, so that the first step is a secant's.

    Returns
    -------
    (m,) float64

    References
    ----------
    Chandrupatla, T. R. (1997). A new hybrid quadratic/bisection algorithm for finding the zero
    of a nonlinear function. Advances in Engineering Software 28, 145-149.
    """
    which = np.arange(low.size)
    a, b = high.astype(np.float64), low.astype(np.float64)
    fb, fa = (function(b, which), function(a, which)) if values is None else values
    root = np.where(np.abs(fa) < np.abs(fb), a, b)
    open_ = np.sign(fa) * np.sign(fb) < 0
    which, a, b, fa, fb = which[open_], a[open_], b[open_], fa[open_], fb[open_]
    tolerances = np.broadcast_to(tolerance, low.shape)
    step = fa / (fa - fb) if straight else np.full(which.size, 0.5)
    tight = 0.5 * tolerances[which] / np.abs(b - a)
    step = np.clip(step, np.minimum(tight, 0.5), np.maximum(1 - tight, 0.5))
    while which.size:
        x = a + step * (b - a)
        fx = function(x, which)
        same = np.sign(fx) == np.sign(fa)
        # the newest point becomes a; b keeps the other sign; c is the point that was dropped
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        limit = (0.5 * tolerances[which] + 2 * _EPS * np.abs(best)) / np.abs(b - a)
        done = (limit > 0.5) | (fa == 0)
        root[which[done]] = best[done]
        keep = ~done
        which, limit = which[keep], limit[keep]
        a, b, c, fa, fb, fc = a[keep], b[keep], c[keep], fa[keep], fb[keep], fc[keep]
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        safe = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        with np.errstate(divide="ignore", invalid="ignore"):
            quadratic = fa / (fb - fa) * fc / (fb - fc)
            quadratic += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        step = np.clip(np.where(safe, quadratic, 0.5), limit, 1 - limit)
    return root


def find_roots_near(
    function: Function,
    guess: Floats,
    step: Floats,
    low: Floats,
    high: Floats,
    *,
    tolerance: float | Floats = 1e-10,
) -> Floats:
    """The roots of many decreasing functions, each with a guess that is usually close.

    From the guess the bracket grows towards the root, fivefold each time, until it holds it.

    Parameters
    ----------
    function, tolerance :
        As for `find_roots`; every function decreases.
    guess, step : (m,) float64
        Where to look first, and a likely distance from there, above 0.
    low, high : (m,) float64
        Ends between which roots are looked for.

    Returns
    -------
    (m,) float64
        Infinite where a function keeps its sign: -inf if it is negative, inf if positive.
    """
    far = np.clip(guess, low, high)
    f_far = function(far, np.arange(far.size))
    side = np.where(f_far >= 0, 1.0, -1.0)
    near, f_near = far.copy(), f_far.copy()
    which, step = np.arange(far.size), np.asarray(step, dtype=np.float64)
    while which.size:
        near[which], f_near[which] = far[which], f_far[which]
        far[which] = np.clip(near[which] + side[which] * step[which], low[which], high[which])
        f_far[which] = function(far[which], which)
        step = 5 * step
        which = which[((side * f_far > 0) & (low < far) & (far < high))[which]]
    values = f_near, f_far
    found = find_roots(function, near, far, tolerance=tolerance, values=values, straight=True)
    return np.where(side * f_far > 0, side * np.inf, found)
