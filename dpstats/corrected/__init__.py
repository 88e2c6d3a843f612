"""Intervals and tests from a centre and a radius, if you have only the synthetic rows.

A centre is a statistic of the synthetic rows or a noisy answer. A radius bounds the distance of
every entry of the centre from that of the private rows, for all entries jointly with probability at
least 1 - beta; one number applies to every entry. It is that of the analysis,
``release.radius("name", alpha=beta)``. Nothing here depends on a release.

`infer` does all of it for any analysis, from the rows.
"""

from typing import TYPE_CHECKING

from dpstats.corrected.chi_square import chisquare
from dpstats.corrected.eigenvalues import eigenvalues
from dpstats.corrected.least_squares import ols
from dpstats.corrected.proportions import clopper_pearson, proportion_confint

if TYPE_CHECKING:
    from dpstats.releases.published_rows import infer as infer

__all__ = ["chisquare", "clopper_pearson", "eigenvalues", "infer", "ols", "proportion_confint"]


def __getattr__(name: str) -> object:
    """`infer` needs the analyses, which need the modules beside this file; it loads when used."""
    if name == "infer":
        from dpstats.releases.published_rows import infer

        return infer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)  # not the modules beside this file
