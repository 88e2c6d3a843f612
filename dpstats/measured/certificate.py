"""The certificate: how far the synthetic rows can be from the private ones, without assumptions.

For every test function |mean_Y f - mean_X f| <= |mean_Y f - b_f| + |b_f - mean_X f| (eq.
certificate of docs/explanation/synthetic-rows/certificate.md, as all here). The first term follows
from the release; the second is the noise itself, whose law is known exactly. The bound holds for
any data and any Y, however the rows were fitted. Where the number of rows n is not public,
quantiles of the noise give a box for the sum S_f and n (eq. box-of-sums); the bound is the largest
|mean_Y f - S / (n B_f)| over the box, reached at a corner because S / n is monotone in each (eq.
corners-of-mean). A private mean is within the range of its function, so the box is cut to it and no
bound exceeds it.

Functions that only calibrate intervals (coarse moments) are measured roughly, and no answer is a
mean of them; the certificate leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.checks import check_alpha, first_few
from dpstats.display import as_html, html_table
from dpstats.error_rates import bonferroni, percent
from dpstats.families.block import Block, Family
from dpstats.families.tables.cells import Indicator, Table
from dpstats.measured.answers import Answers, answer, joint_noise_quantiles
from dpstats.measured.combining import Sources
from dpstats.measured.contents import kind_of
from dpstats.measured.measurements import Measurements
from dpstats.measured.radius import Rows
from dpstats.privacy.laws import joint_quantiles

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.measured.row_count import RowCount
    from dpstats.privacy.laws import LatticeLaw


_LARGEST = 20  # functions in the table of a notebook
MOST_PUBLISHED = 2_000
"""Functions of an analysis whose radius is published; more take long."""


@dataclass(frozen=True, repr=False)
class Accuracy:
    """The certificate of a release, in unit scale (functions in [-1, 1]).

    Attributes
    ----------
    names : list of str
    synthetic, noisy : (|F|,) float64
        Means over the synthetic rows, and the noisy answers b_f.
    ends, joint_ends : (2, |F|) float64
        Intervals for the private means: each of the first holds with probability 1 - alpha, and
        all of the joint ones together. Where n is public: b_f -+ a quantile of the noise.
    alpha : float
    target : str
        What was compared: the synthetic rows or the weighted candidates.
    rows : int, or (int, int)
        The number of private rows; bounds on it, joint with `joint_ends`, where it is not public.
    of_sums : (|F|,) float64
        Bounds, joint with `joint_ends`, on the distance of mean_Y f from S_f / (N B_f), N the
        published number of rows or the estimate of it.
    analysis : str
        Whose functions they are; "" for all that were measured and answer.
    blocks : tuple of Block
        The blocks of the functions, in their order.

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
    >>> accuracy = dps.release(plan, rows).accuracy(alpha=0.05)
    >>> accuracy.delta < 0.001, accuracy.worst
    (True, 'smoker')
    >>> accuracy.to_frame().shape[0]
    1
    """

    names: list[str]
    synthetic: Floats
    noisy: Floats
    ends: Floats
    joint_ends: Floats
    alpha: float
    target: str
    rows: Rows
    of_sums: Floats
    analysis: str = ""
    blocks: tuple[Block, ...] = ()

    @property
    def radius(self) -> Floats:
        """How far a private mean can be from b_f, each with probability 1 - alpha."""
        return _furthest(self.noisy, self.ends)

    @property
    def joint_radius(self) -> Floats:
        """How far the private means can be from b_f, jointly with probability 1 - alpha."""
        return _furthest(self.noisy, self.joint_ends)

    @property
    def bounds(self) -> Floats:
        """For each function alone: a bound on its error, with probability 1 - alpha."""
        return _furthest(self.synthetic, self.ends)

    @property
    def joint_bounds(self) -> Floats:
        """For all functions at once: bounds on their errors, with probability 1 - alpha."""
        return _furthest(self.synthetic, self.joint_ends)

    @property
    def delta(self) -> float:
        """The release is delta-accurate (BL24, Definition II.2) with probability 1 - alpha."""
        return float(self.joint_bounds.max())

    @property
    def worst(self) -> str:
        """The function with the largest joint bound."""
        return self.names[int(self.joint_bounds.argmax())]

    @property
    def of_tables(self) -> float | None:
        """The largest joint bound of tables and conditions alone; None if it is the largest.

        None, too, where no table is among the blocks.
        """
        if not any(isinstance(block, Table) for block in self.blocks):
            return None
        kinds = [np.full(b.size, isinstance(b, Table | Indicator)) for b in self.blocks]
        in_tables = np.concatenate(kinds)
        if in_tables[self.joint_bounds.argmax()]:
            return None
        return float(self.joint_bounds[in_tables].max())

    @property
    def block(self) -> str:
        """The block with the largest joint bound, such as "offsets in bins of age, region".

        Empty where all are of one kind, such as tables.
        """
        if len({kind_of(block) for block in self.blocks}) < 2:
            return ""
        ends = np.cumsum([block.size for block in self.blocks])
        worst = self.blocks[int(np.searchsorted(ends, self.joint_bounds.argmax(), side="right"))]
        return f"{kind_of(worst)} of {', '.join(column.name for column in worst.columns)}"

    def to_frame(self) -> pd.DataFrame:
        """One row per test function.

        Returns
        -------
        DataFrame
            Columns function, synthetic, noisy_answer, bound and joint_bound, in unit scale; the
            level of the bounds is in ``attrs``.
        """
        import pandas as pd

        frame = pd.DataFrame(
            {
                "function": self.names,
                "synthetic": self.synthetic,
                "noisy_answer": self.noisy,
                "bound": self.bounds,
                "joint_bound": self.joint_bounds,
            }
        )
        frame.attrs["level"] = round(1 - self.alpha, 12)
        return frame

    def __str__(self) -> str:
        worst = int(self.joint_bounds.argmax())
        fit = float(np.abs(self.synthetic - self.noisy)[worst])
        noise = float(self.joint_radius[worst])
        whose = f" of {self.analysis!r}" if self.analysis else ""
        count = len(self.names)
        every = f"all {count} test functions{whose} have means" if count > 1 else (
            f"the test function{whose} has a mean"
        )  # fmt: skip
        empty = (
            "\nA bound of 1 or more does not constrain a proportion: plan fewer functions, more "
            "candidates or a larger budget."
            if self.delta >= 1
            else ""
        )
        whose = block_of_largest(self.block, self.of_tables)
        return (
            f"Certificate: with probability {percent(self.alpha)} over the privacy noise, "
            f"{every} on the {self.target} within\n"
            f"delta = {self.delta:.3g} of those on the private rows (the largest bound is that of "
            f"{self.names[worst]!r}: misfit to its noisy answer {fit:.2g}, joint noise quantile "
            f"{noise:.2g}).\n"
            + (f"{whose[0].upper()}{whose[1:]}.\n" if whose else "")
            + f"It assumes nothing about the data, the candidates or the fit.{empty}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        largest = np.argsort(-self.joint_bounds, kind="stable")[:_LARGEST]
        rows = [
            [self.names[i], *(f"{column[i]:.4g}" for column in
                              (self.synthetic, self.noisy, self.joint_bounds))]
            for i in largest
        ]  # fmt: skip
        header = ["function", "synthetic rows", "noisy answer", "joint bound"]
        left = len(self.names) - len(rows)
        more = [f"and {left} functions with smaller bounds, in to_frame()"] if left else []
        table = html_table(header, rows)
        return as_html("dpstats certificate", str(self).splitlines(), table, more)


def block_of_largest(block: str, of_tables: float | None) -> str:
    """Name the block whose error a headline is, and that of tables where theirs is less."""
    tables = "" if of_tables is None else f"; the tables alone: {of_tables:.3g}"
    return f"the largest error allowed is that of {block}{tables}" if block else ""


def published_answers(measured: Measurements | Sources) -> Answers:
    """Noisy answers to the published family; as measured, where no table is by residuals."""
    sources = _without_constraints(measured)
    strategy = sources.measurements.strategy
    return answer(sources, strategy.published, disjoint=not strategy.tables)


def _without_constraints(measured: Measurements | Sources) -> Sources:
    """Sources for a certificate, which uses no rule between columns and no public total."""
    sources = measured if isinstance(measured, Sources) else Sources(measured)
    return sources.with_constraints("none")


def certify(
    measured: Measurements | Sources, synthetic: Floats, *, alpha: float, target: str
) -> Accuracy:
    """Certificate of means (|F|,) over any synthetic rows, for all test functions that answer.

    The noises are independent: bounds whose product of probabilities is 1 - alpha hold jointly,
    exactly so (eq. joint-certificate); for the number of rows see `joint_with_count`. Tables that
    follow from residuals share noise: then see `certify_answers`.
    """
    check_alpha(alpha)
    sources = _without_constraints(measured)
    measurements = sources.measurements
    family = measurements.published.answering
    chosen = places_in(measurements.published, family)
    if measurements.strategy.tables:
        answers = answer(sources, family, with_count=True)
        return certify_answers(answers, family, synthetic[chosen], alpha=alpha, target=target)
    rows, at = measurements.rows, measurements.strategy.places[chosen]
    laws, which = measurements.laws
    single = np.array([law.quantile(alpha - rows.spent(alpha)) for law in laws])[which[at]]
    together = joint_with_count(measurements, [laws[i] for i in which[at]], alpha)
    return _accuracy(
        family,
        measurements.sums[at].astype(np.float64),
        (single, together.astype(np.float64)),
        rows,
        synthetic[chosen],
        alpha=alpha,
        target=target,
    )


def joint_with_count(measurements: Measurements, laws: Sequence[LatticeLaw], alpha: float) -> Codes:
    """Bounds on noises of these laws, and last on that of the number of rows if it is not public.

    They hold jointly with probability 1 - alpha. The noise of a measured count is one more
    independent one. That of a total of cells or sets is not: it gets alpha over the number of
    bounds, and the others, which are independent, what is left (Bonferroni's inequality).
    """
    count = measurements.rows.law
    if count is None:
        return joint_quantiles(laws, alpha)
    if measurements.counted_alone:
        return joint_quantiles([*laws, count], alpha)
    own = bonferroni(alpha, len(laws) + 1)
    return np.append(joint_quantiles(laws, alpha - own), int(count.quantile(own)))


def certify_answers(
    answers: Answers,
    family: Family,
    synthetic: Floats,
    *,
    alpha: float,
    target: str,
    analysis: str = "",
) -> Accuracy:
    """Certificate for the d functions of one analysis, at a level of their own.

    The answers hold the functions, and the number of rows where it is not public. b_f is a fixed
    combination of measured sums whose noise has a known law. Independent ones have exact joint
    bounds; others share measured noises, and every one gets alpha over their number (Bonferroni's
    inequality), that of the number of rows included.
    """
    check_alpha(alpha)
    rows, d = answers.rows, family.size
    single = answers.quantiles(alpha - rows.spent(alpha))[:d]
    return _accuracy(
        family,
        answers.sums[:d],
        (single, joint_noise_quantiles(answers, alpha)),
        rows,
        synthetic,
        alpha=alpha,
        target=target,
        analysis=analysis,
    )


def _accuracy(
    family: Family,
    sums: Floats,
    quantiles: tuple[Floats, Floats],
    rows: RowCount,
    synthetic: Floats,
    *,
    alpha: float,
    target: str,
    analysis: str = "",
) -> Accuracy:
    """From noisy sums and quantiles of their noise (joint ones with the count of rows last)."""
    (single, together), unit = quantiles, rows.value * family.bounds
    sizes, joint_sizes = rows.bounds(rows.spent(alpha)), rows.within(0.0)
    if not rows.public:
        joint_sizes = rows.within(float(together[family.size]))
    together, means = together[: family.size], sums / unit
    return Accuracy(
        names=family.names,
        synthetic=synthetic,
        noisy=means,
        ends=_mean_ends(family, sums, single, sizes),
        joint_ends=_mean_ends(family, sums, together, joint_sizes),
        alpha=alpha,
        target=target,
        rows=rows.value if rows.public else joint_sizes,
        of_sums=np.abs(synthetic - means) + together / unit,
        analysis=analysis,
        blocks=family.blocks,
    )


def places_in(whole: Family, chosen: Family) -> NDArray[np.intp]:
    """Numbers of the functions of some blocks of a family."""
    kept = [np.full(block.size, block in chosen.blocks) for block in whole.blocks]
    return np.flatnonzero(np.concatenate(kept))


def _furthest(means: Floats, ends: Floats) -> Floats:
    return np.asarray(np.abs(means - ends).max(axis=0), dtype=np.float64)


def _mean_ends(family: Family, sums: Floats, q: Floats, sizes: tuple[int, int]) -> Floats:
    """Smallest and largest means (2, |F|) of sums within q of the noisy ones, over sizes of n."""
    bounds = family.bounds
    corners = np.stack([end / (n * bounds) for end in (sums - q, sums + q) for n in sizes])
    ranges = zip(*(block.ranges for block in family.blocks), strict=True)
    low, high = (np.concatenate(ends) / bounds for ends in ranges)
    return np.asarray(np.clip([corners.min(axis=0), corners.max(axis=0)], low, high))


def written(whole: Accuracy, own: Mapping[str, Accuracy]) -> dict[str, Any]:
    """Plain data: headline and radius of each analysis with their levels, rounded up."""
    return {
        "of": whole.target,
        "level": _level(whole),
        "delta": _up(whole.delta),
        "worst": whole.worst,
        "n": whole.rows,
        "analyses": {
            name: {"level": _level(a), "radius": _up(a.delta), "worst": a.worst, "n": a.rows}
            for name, a in own.items()
        },
    }


def printed(plain: Mapping[str, Any], whole: Accuracy, planned: Collection[str]) -> list[str]:
    """Lines for a reader, from what `written` gives, and the certificate that it is of.

    They say which of the planned analyses have no radius in it.
    """
    lines = [
        f"Accuracy of the rows: with probability {100 * plain['level']:g}% every measured function "
        f"is within {plain['delta']:g} of the private rows, coarse moments left out "
        f"(worst: {plain['worst']})"
    ]
    if whose := block_of_largest(whole.block, whole.of_tables):
        lines[0] += f"; {whose}"
    radii = [f"{name} {one['radius']:g}" for name, one in plain["analyses"].items()]
    if radii:
        level = next(iter(plain["analyses"].values()))["level"]
        lines.append(f"Radius of each analysis, with {100 * level:g}% each: {', '.join(radii)}")
    if left := [name for name in planned if name not in plain["analyses"]]:
        lines.append(
            f"Radius not printed for {first_few(left)}: more than {MOST_PUBLISHED:,} functions, or "
            "none that follows from the measurements; release.radius(name) gives it or says why not"
        )
    return lines


def _level(accuracy: Accuracy) -> float:
    return round(1 - accuracy.alpha, 12)


def _up(bound: float) -> float:
    if not bound > 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(bound)) - 3)
    return float(f"{math.ceil(bound / step * (1 - 1e-12)) * step:.4g}")
